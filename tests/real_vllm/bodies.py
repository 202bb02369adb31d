"""Generated requests for every route, from a fixed seed.

Each is a `Case`: the route, a name, the body and whether it streams. Nothing here
sends `seed`: with a prompt longer than one prefill step it ends the CPU engine of
vLLM 0.32.
"""

import dataclasses
import random

from prompts import CLOCK, TEXTS, WEATHER, user

FEW = 4
WORDS = (
    "tide gate harbour lock sluice keel anchor 12 3.5 0x1F the of and to in is that for it as was with on be at by",
    "vejret i Århus er gråt søndag får tølper kæmper øl blåbær",
    "水 门 潮汐 港口 今天 天气 很好 你 我们 去 看 海",
    "الماء البحر مرحبا بالعالم اليوم",
    "вода море прилив ворота сегодня погода",
    "def return {'a': [1, 2]} for i in range(10): print(f\"{i}\\n\") // ; == != <= &&",
    "👩‍👩‍👧 🇩🇰 👍🏽 e\u0301 n\u0303 \u200b \u00a0 <|im_end|> <tool_call> <|endoftext|>",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One request; `estimated` says that the gateway may not be able to know its count."""

    route: str
    name: str
    body: dict
    stream: bool = False
    estimated: bool = False


class Author:
    """Writes texts and conversations."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self, most=120):
        if self.random.random() < 0.2:
            return self.random.choice([text for text in TEXTS.values() if text.strip() and len(text) < 3000])
        words = self.random.choice(WORDS).split(" ")
        chosen = [self.random.choice(words) for _ in range(self.random.randint(1, most))]
        return self.random.choice([" ", " ", " ", "\n", ", ", "  ", "\r\n"]).join(chosen)

    def parts(self, kind):
        return [{"type": kind, "text": self.text(20)} for _ in range(self.random.randint(1, 3))]

    def maybe(self, share):
        return self.random.random() < share

    def turns(self):
        """Alternating texts of user and assistant, ending with the user."""
        count = self.random.choice([1, 1, 3, 5])
        return [("user" if at % 2 == 0 else "assistant", self.text()) for at in range(count)]

    # === one body of each kind ===

    def chat(self):
        messages = [{"role": "system", "content": self.text(30)}] if self.maybe(0.4) else []
        for role, text in self.turns():
            messages.append({"role": role, "content": self.parts("text") if self.maybe(0.2) else text})
        body = {"messages": messages}
        if self.maybe(0.3):
            body["tools"] = self.random.sample([WEATHER, CLOCK], self.random.randint(1, 2))
            body["tool_choice"] = self.random.choice(["auto", "none"])
            if self.maybe(0.5):
                messages[-1:] = [messages[-1], *self.called(), {"role": "user", "content": self.text(10)}]
        return body

    def called(self):
        arguments = self.random.choice(['{"place": "Århus", "days": 2}', '{ "a":1.50,"b" : [true,null] }', "{}", ""])
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
        said = self.text(10) if self.maybe(0.5) else None
        result = self.parts("text") if self.maybe(0.3) else self.text(20)
        return [{"role": "assistant", "content": said, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": result}]

    def ids(self, most=200):
        return [self.random.randrange(3, 4000) for _ in range(self.random.randint(1, most))]

    def prompt(self):
        form = self.random.randrange(4)
        several = range(self.random.randint(1, 4))
        return [self.text(), [self.text() for _ in several], self.ids(), [self.ids() for _ in several]][form]

    def items(self):
        """Items of the Responses API."""
        items = [{"role": self.random.choice(["system", "developer"]), "content": self.text(20)}] if self.maybe(0.3) else []
        for role, text in self.turns():
            if role == "assistant":
                content = [{"type": "output_text", "text": text, "annotations": []}]
                items.append({"type": "message", "role": role, "id": "msg_1", "status": "completed", "content": content})
            else:
                items.append({"role": role, "content": self.parts("input_text") if self.maybe(0.4) else text})
        if self.maybe(0.3):
            call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"place": "Århus"}'}
            items += [call, {"type": "function_call_output", "call_id": "call_1", "output": self.text(10)}]
        return items

    def response(self):
        body = {"input": self.text() if self.maybe(0.4) else self.items()}
        if self.maybe(0.4):
            body["instructions"] = self.text(20)
        if self.maybe(0.3):
            body["tools"] = [{"type": "function", **tool["function"]} for tool in (WEATHER, CLOCK)]
        return body

    def message(self):
        messages = []
        for role, text in self.turns():
            messages.append({"role": role, "content": self.parts("text") if self.maybe(0.3) else text})
        body = {"messages": messages}
        if self.maybe(0.5):
            body["system"] = self.parts("text") if self.maybe(0.4) else self.text(20)
        if self.maybe(0.4):
            body["tools"] = [
                {"name": "weather", "description": "At a place.", "input_schema": WEATHER["function"]["parameters"]},
                {"name": "clock", "input_schema": {"type": "object", "properties": {}}},
            ]
            if self.maybe(0.6):
                messages += self.used()
        return body

    def used(self):
        use = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"place": "Århus", "days": 2}}
        said = [{"type": "text", "text": self.text(5)}] if self.maybe(0.5) else []
        content = self.parts("text") if self.maybe(0.5) else self.text(10)
        result = {"type": "tool_result", "tool_use_id": "call_1", "content": content}
        after = [{"type": "text", "text": self.text(5)}] if self.maybe(0.5) else []
        return [{"role": "assistant", "content": [*said, use]}, {"role": "user", "content": [result, *after]}]

    def pair(self, many):
        several = [self.text(30) for _ in range(self.random.randint(2, 4))]
        return (self.text(30), several) if many else (self.text(30), self.text(30))


# === routes of a generating server ===

CHAT_OPTIONS = {
    "n": {"n": 3},
    "beam": {"use_beam_search": True, "n": 2, "temperature": 0},
    "echo": {"echo": True, "add_generation_prompt": False, "messages": user("The tide comes in twice")},
    "thinking off": {"chat_template_kwargs": {"enable_thinking": False}},
    "thinking on": {"chat_template_kwargs": {"enable_thinking": True, "unknown": [1, "é"]}},
    "no generation prompt": {"add_generation_prompt": False},
    "special tokens": {"add_special_tokens": True},
    "documents": {"documents": [{"title": "A", "text": "b"}]},
    "reasoning effort none": {"reasoning_effort": "none"},
    "reasoning effort high": {"reasoning_effort": "high"},
    "truncated": {"truncate_prompt_tokens": 9},
    "truncated to the model": {"truncate_prompt_tokens": -1},
    "truncated on the left": {"truncate_prompt_tokens": 7, "truncation_side": "left"},
    "prompt logprobs": {"prompt_logprobs": 1},
    "JSON": {"response_format": {"type": "json_object"}},
    "token ids returned": {"return_token_ids": True},
    "stop": {"stop": ["e", " "]},
}
COMPLETION_OPTIONS = {
    "n": {"n": 3},
    "beam": {"use_beam_search": True, "n": 2, "temperature": 0},
    "echo": {"echo": True},
    "echo of nothing more": {"echo": True, "max_tokens": 0, "logprobs": 1},
    "prompt logprobs": {"prompt_logprobs": 2},
    "no special tokens": {"add_special_tokens": False},
    "truncated": {"truncate_prompt_tokens": 9},
    "token ids returned": {"return_token_ids": True},
}


def chats(author):
    for at in range(40):
        yield Case("chat", f"conversation {at}", author.chat(), stream=at % 2 == 1)
    for name, option in CHAT_OPTIONS.items():
        for stream in (False, True):
            if stream and name in ("beam", "prompt logprobs", "echo"):
                continue
            yield Case("chat", name, {**author.chat(), **option}, stream)
    for stream in (False, True):
        going_on = {"role": "assistant", "content": author.text(8).strip()}
        messages = [*author.chat()["messages"], going_on]
        open_end = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
        yield Case("chat", "final message continued", open_end, stream)


def completions(author):
    for at in range(40):
        yield Case("completions", f"prompt {at}", {"prompt": author.prompt()}, stream=at % 2 == 1)
    for name, option in COMPLETION_OPTIONS.items():
        for stream in (False, True):
            if stream and name in ("beam", "prompt logprobs", "echo of nothing more"):
                continue
            yield Case("completions", name, {"prompt": author.text(), **option}, stream)


def responses(author):
    for at in range(50):
        yield Case("responses", f"response {at}", author.response(), stream=at % 2 == 1)
    reasoning = {"reasoning": {"effort": "low"}}
    for name, more in (("reasoning", reasoning), ("truncation", {"truncation": "auto"}), ("choice none", {"tool_choice": "none"})):
        yield Case("responses", name, {**author.response(), **more})


def messages(author):
    for at in range(50):
        yield Case("messages", f"message {at}", author.message(), stream=at % 2 == 1)
    off = {"thinking": {"type": "disabled"}}
    for stream in (False, True):
        yield Case("messages", "thinking disabled", {**author.message(), **off}, stream)


def asides(author):
    for at in range(30):
        yield Case("count_tokens", f"message {at}", author.message())
    for at in range(15):
        yield Case("tokenize", f"text {at}", {"prompt": author.text()})
        yield Case("tokenize", f"conversation {at}", author.chat())
    for name in ("thinking off", "no generation prompt", "special tokens"):
        yield Case("tokenize", name, {**author.chat(), **CHAT_OPTIONS[name]})
    yield Case("tokenize", "no special tokens", {"prompt": author.text(), "add_special_tokens": False})
    for at in range(10):
        yield Case("detokenize", f"ids {at}", {"tokens": author.ids()})


def generating():
    """All requests to a server that generates."""
    author = Author(20)
    for route in (chats, completions, responses, messages, asides):
        yield from route(author)


# === routes of a pooling server ===


def inputs(author, route, count):
    for at in range(count):
        if at % 4 == 3:
            messages = [{"role": role, "content": text} for role, text in author.turns()]
            yield Case(route, f"conversation {at}", {"messages": messages})
        else:
            yield Case(route, f"input {at}", {"input": author.prompt()})
    yield Case(route, "truncated", {"input": author.text(60) + " tide" * 20, "truncate_prompt_tokens": 10})
    yield Case(route, "no special tokens", {"input": author.text(), "add_special_tokens": False})
    going_on = {"messages": author.chat()["messages"], "add_generation_prompt": True}
    yield Case(route, "generation prompt", going_on)


NAMES = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))


def pairs(author):
    """All estimates: whether a model reads a pair as one prompt is known to its engine only."""
    for at in range(16):
        many = at % 2 == 1
        first, second = author.pair(many)
        one, other = NAMES[at // 2 % 4]
        yield Case("score", f"{one} and {other} {at}", {one: first, other: second}, estimated=True)
    yield Case("score", "pairs", {"text_1": ["a tide", "a gate"], "text_2": ["water", "a wall of wood"]}, estimated=True)
    cut = {"text_1": "tide " * 30, "text_2": "gate " * 30, "truncate_prompt_tokens": 20}
    yield Case("score", "truncated", cut, estimated=True)
    for at in range(12):
        query, documents = author.pair(True)
        yield Case("rerank", f"query {at}", {"query": query, "documents": documents}, estimated=True)
    query, document = author.pair(False)
    yield Case("rerank", "one document", {"query": query, "documents": [document]}, estimated=True)


def embedding():
    """All requests to a server that embeds."""
    author = Author(21)
    yield from inputs(author, "embeddings", 40)
    yield from inputs(author, "pooling", 12)
    yield from pairs(author)


def classifying():
    """All requests to a server that classifies, and so scores pairs as one."""
    author = Author(22)
    yield from inputs(author, "classify", 20)
    yield from inputs(author, "pooling", 12)
    yield from pairs(author)
