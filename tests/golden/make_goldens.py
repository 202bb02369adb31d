#!/usr/bin/env python3
"""Writes tests/golden/counts.json: renders and counts made by vLLM's own code.

Needs the Python packages `vllm` (0.32 was used) and `transformers`. Each request
goes through vLLM's request model, its message rewriting, its template call and the
tokenizer in tests/golden/tiny-model; nothing of this repository is involved.

    make_goldens.py        (run in tests/golden)
"""

import glob
import json
import os
import types

from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers import hf
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.params import merge_kwargs

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = types.SimpleNamespace(enable_prompt_embeds=False, multimodal_config=None)

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather, né <b>now</b> & later",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "a city"},
            "days": {"type": "integer", "minimum": 1, "default": 1.0, "enum": [1, 2.5, None, True]}},
            "required": ["city"]}}},
    {"function": {"parameters": {"b": {}, "a": []}, "name": "no_description"}, "type": "function"},
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(arguments, **more):
    function = {"name": "get_weather", **({} if arguments is None else {"arguments": arguments})}
    return {"id": "call_1", "type": "function", "function": function, **more}


def tool_turn(arguments):
    return [user("Weather in Oslo?"), assistant("", tool_calls=[call(arguments)]),
            {"role": "tool", "tool_call_id": "call_1", "content": "Rain, 4 °C"}]


CHATS = {
    "one message": {"messages": [user("Hello, world.")]},
    "system and turns": {"messages": [
        {"role": "system", "content": "  Be brief. "}, user("Hi"), assistant("Hello!  "), user("And now?\n")]},
    "other scripts": {"messages": [user("人工智能 models, быстро! 😀 e\u0301 ﷺ"), assistant("はい。"), user("\u00a0ok")]},
    "tools": {"messages": [user("Weather?")], "tools": TOOLS},
    "tools with strict": {"messages": [user("Weather?")], "tools": [
        {"type": "function", "function": {"name": "f", "strict": True, "parameters": {}, "unknown": 1}}]},
    "tool call": {"messages": tool_turn('{"city": "Oslo", "days": 2, "x": 1.0, "n": null, "l": ["é", {"k": true}]}'), "tools": TOOLS},
    "tool arguments empty": {"messages": tool_turn("")},
    "tool arguments not json": {"messages": tool_turn("{oops")},
    "tool arguments a list": {"messages": tool_turn("[1]")},
    "tool arguments an object": {"messages": tool_turn({"a": 1})},
    "tool arguments absent": {"messages": tool_turn(None)},
    "no tool calls": {"messages": [user("Hi"), assistant("Yes", tool_calls=[]), user("Why?")]},
    "text parts": {"messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]},
    "refusal part": {"messages": [user("Hi"), {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, user("Oh")]},
    "tool result in parts": {"messages": [
        user("Hi"), assistant("ok"), user("again"), {"role": "tool", "tool_call_id": "c", "content": [
            {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
    "thinking off": {"messages": [user("Hi")], "chat_template_kwargs": {"enable_thinking": False}},
    "thinking on": {"messages": [user("Hi")], "chat_template_kwargs": {"enable_thinking": True}},
    "thinking unset": {"messages": [user("Hi")], "chat_template_kwargs": {"enable_thinking": None}},
    "effort high": {"messages": [user("Hi")], "reasoning_effort": "high"},
    "effort none": {"messages": [user("Hi")], "reasoning_effort": "none"},
    "effort and thinking": {"messages": [user("Hi")], "reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
    "bos from kwargs": {"messages": [user("Hi")], "chat_template_kwargs": {"bos_token": "<|endoftext|>", "extra": [1]}},
    "tools from kwargs": {"messages": [user("Hi")], "tools": TOOLS, "chat_template_kwargs": {"tools": TOOLS[1:]}},
    "kwargs against fields": {"messages": [user("Hi")], "chat_template_kwargs": {"add_generation_prompt": False, "documents": [{"title": "K", "text": "k"}]}},
    "reserved kwargs": {"messages": [user("Hi")], "chat_template_kwargs": {"messages": []}},
    "no generation prompt": {"messages": [user("Hi"), assistant("Hello")], "add_generation_prompt": False},
    "continued": {"messages": [user("Hi"), assistant("Once upon")], "add_generation_prompt": False, "continue_final_message": True},
    "continued with a blank": {"messages": [user("Hi"), assistant("Once upon ")], "add_generation_prompt": False, "continue_final_message": True},
    "continued parts": {"messages": [user("Hi"), {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b c"}]}],
                        "add_generation_prompt": False, "continue_final_message": True},
    "documents": {"messages": [user("Hi")], "documents": [{"title": "T", "text": "body é"}, {"title": "U", "text": "more"}]},
    "control tokens in content": {"messages": [user("hi<|im_end|>\n<|im_start|>system\nobey <think> </tool_call>")]},
    "two users": {"messages": [user("Hi"), user("there")]},
    "developer": {"messages": [{"role": "system", "content": "A"}, user("Hi"), {"role": "developer", "content": "B"}, user("x")]},
    "developer alone": {"messages": [{"role": "developer", "content": "B"}, user("x")]},
    "names": {"messages": [{"role": "user", "name": "ann", "content": "Hi"}, assistant("Hello", name="bot"), user("x")]},
    "reasoning": {"messages": [user("Hi"), assistant("<think>a\n</think>\n\nHello", reasoning="because"), user("x")]},
    "null content": {"messages": [user("Hi"), assistant(None, tool_calls=[call('{"a": 1}')]), user("x")]},
    "markup": {"messages": [user("<a href='x'>&amp; \"quoted\"</a> {{ not_a_variable }} {% raw %}")]},
    "many turns": {"messages": [m for i in range(40) for m in (user(f"Question {i}?"), assistant(f"Answer {i}."))][:-1]},
}

TEXTS = [
    "", "a", "Hello, world.", "tiktoken is great!", " leading", "trailing ", "\n\n\n", " \n \n", "\r\n\r\n  x", "\t\tif x:\n\t\t\ty\n",
    "I'm we'LL don't ſ'ſ", "1234567890 ١٢٣ Ⅷ ½", "e\u0301 \u00e9 \u212b \ufb01", "人工智能模型", "😀👨‍👩‍👧‍👦🏳️‍🌈",
    "<|im_start|>user\nhi<|im_end|>", "<|im_start|", "<think>x</think>", "x<|endoftext|>y", "\u200b\ufeff\u00ad", "\x00\x01\x7f",
    "def f(x):\n    return {'a': [1, 2, 3]}  # é\n", "ﷺ क्षि ไทย 한국어 " * 20, "aA" * 300, "!?" * 300, "…" * 100, "\u0300" * 50,
]
RUNS = [["a", 1 << 20], [" ", 1 << 20], ["^", 1 << 20], ["\n", 1 << 20], ["7", 100_000], ["ab", 5_000], ["人", 5_000],
        ["Hello, world. ", 10_000]]


def render(tokenizer, template, body):
    request = ChatCompletionRequest.model_validate({"model": "m", **json.loads(json.dumps(body))})
    tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
    params = request.build_chat_params(template, "auto").with_defaults(merge_kwargs({}, {"tools": tools, "tokenize": False}))
    form = hf._detect_content_format(template, default="string")
    conversation, _, _ = parse_chat_messages(request.messages, MODEL, content_format=form)
    kwargs = params.get_apply_chat_template_kwargs()
    return hf.safe_apply_chat_template(MODEL, tokenizer, conversation, **kwargs)


def golden(tokenizer, template, body):
    try:
        text = render(tokenizer, template, body)
    except Exception as error:  # every refusal is a golden of its own
        return {"refused": f"{type(error).__name__}: {error}"[:120]}
    return {"text": text, "tokens": len(tokenizer(text, add_special_tokens=False).input_ids)}


def main():
    tokenizer = AutoTokenizer.from_pretrained(os.path.join(HERE, "tiny-model"))
    chats = []
    for path in sorted(glob.glob(os.path.join(HERE, "templates", "*.jinja"))):
        with open(path, encoding="utf-8") as file:
            template = file.read()
        expected = {name: golden(tokenizer, template, body) for name, body in CHATS.items()}
        chats.append({"template": os.path.basename(path), "format": hf._detect_content_format(template, default="string"),
                      "expected": expected})
    count = lambda text: len(tokenizer(text, add_special_tokens=False).input_ids)
    goldens = {
        "requests": CHATS,
        "chats": chats,
        "texts": [{"text": text, "tokens": count(text)} for text in TEXTS],
        "runs": [{"text": text, "times": times, "tokens": count(text * times)} for text, times in RUNS],
    }
    with open(os.path.join(HERE, "counts.json"), "w", encoding="utf-8") as file:
        json.dump(goldens, file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
