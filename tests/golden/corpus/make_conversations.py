#!/usr/bin/env python3
"""Writes conversations.json: chat requests put together from the corpus, the same on every run.

    make_conversations.py      (after make_corpus.py; needs nothing but Python)

Text in a request is an integer where it is an entry of corpus.json: of "content",
of a part's "text", and of a tool's "description". Requests written out by hand are
those of make_goldens.py, which make_counts.py counts as well.
"""

import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
RANDOM = random.Random(417)
COUNT = 320
SHORT = 900

pick = RANDOM.choice
chance = lambda share: RANDOM.random() < share


def load(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return json.load(file)


CORPUS = load("corpus.json")
TEXTS = [i for i, entry in enumerate(CORPUS) if len(entry["text"]) * entry.get("times", 1) <= SHORT]
ARGUMENTS = [{}, {"city": "Oslo"}, {"q": "naïve \"quotes\" <b>&</b>", "n": 3}, {"x": 1.0, "y": [1, None, {"k": True}]}, {"text": "行1\n行2\t😀"},
             {"deep": {"a": {"b": {"c": []}}}, "e": -1.5e-9}, {"path": "C:\\tmp\\x", "u": "\u2028"}, {"big": 12345678901234567890, "neg": -0.0}]
TYPES = [{"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "number", "default": 1.0}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}},
         {"type": "string", "enum": ["celsius", "fahrenheit", "Kelvin’s"]}, {"type": ["string", "null"]}, {"type": "object", "properties": {"z": {"type": "null"}, "a": {}}}]
NAMES = ["get_weather", "search", "run-sql", "calc2", "ns_tool_x"]


def tool():
    names = RANDOM.sample(["city", "days", "query", "größe", "b", "a", "options"], RANDOM.randint(0, 5))
    parameters = {"type": "object", "properties": {name: {**pick(TYPES), **({"description": pick(TEXTS)} if chance(0.4) else {})} for name in names}, "required": names[:2]}
    function = {"name": pick(NAMES), "description": pick(TEXTS), "parameters": parameters}
    return {"type": "function", "function": dict(sorted(function.items())) if chance(0.3) else function}


def content():
    if chance(0.15):
        return [{"type": "text", "text": pick(TEXTS)} for _ in range(RANDOM.randint(1, 3))]
    return pick(TEXTS)


def calls(number):
    arguments = lambda: json.dumps(pick(ARGUMENTS), ensure_ascii=chance(0.5), separators=(",", ":") if chance(0.3) else None)
    return [{"id": f"call{RANDOM.randrange(10 ** 5):05}", "type": "function", "function": {"name": pick(NAMES), "arguments": arguments()}} for _ in range(number)]


def tool_turn():
    made = calls(1 if chance(0.7) else 2)
    said = pick([None, "", "Let me look.", "<think>\nhm\n</think>\n\nLooking."])
    return [{"role": "assistant", "content": said, "tool_calls": made}, *({"role": "tool", "tool_call_id": call["id"], "content": content()} for call in made)]


def answer():
    more = {"reasoning": pick(["Because.", "Step 1.\nStep 2."])} if chance(0.1) else {}
    thought = pick(["", "", "", "<think>\nfirst this\n</think>\n\n", "<think></think>", "</think>"])
    return {"role": "assistant", "content": thought + "Yes." if thought else content(), **more}


def messages(with_tools):
    found = [{"role": "system", "content": content()}] if chance(0.5) else []
    for _ in range(RANDOM.randint(1, 5)):
        found.append({"role": "user", "content": content()})
        if with_tools and chance(0.6):
            found += tool_turn()
        found.append(answer())
    return found[:-1] if chance(0.85) else found


def request():
    with_tools = chance(0.4)
    body = {"messages": messages(with_tools)}
    if with_tools and chance(0.9):
        body["tools"] = [tool() for _ in range(RANDOM.randint(1, 3))]
    if body["messages"][-1]["role"] == "assistant":
        body["add_generation_prompt"] = False
        if chance(0.6):
            body["continue_final_message"] = True
    elif chance(0.1):
        body["add_generation_prompt"] = False
    if chance(0.2):
        body["chat_template_kwargs"] = pick([{"enable_thinking": False}, {"enable_thinking": True}, {"thinking": True}, {"date_string": "1 Jan 2026"}, {"tools_in_user_message": False}])
    if chance(0.1):
        body["reasoning_effort"] = pick(["low", "medium", "high", "none"])
    if chance(0.08):
        body["documents"] = [{"title": "T", "text": "Some text."}]
    if chance(0.12):
        body["add_special_tokens"] = True
    return body


def main():
    lines = ",\n".join(json.dumps(request(), ensure_ascii=True) for _ in range(COUNT))
    with open(os.path.join(HERE, "conversations.json"), "w", encoding="utf-8") as file:
        file.write(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
