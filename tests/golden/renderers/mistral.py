#!/usr/bin/env python3
"""Writes mistral_v*.json and tekken/tekken.json: prompts made by vLLM's own code.

Needs the Python packages `vllm` (0.32 was used), `transformers` and
`mistral-common`, whose vocabulary (Apache-2.0) is cut to its first 3,000 tokens and
put as a file of each version of Mistral's formats. Each request goes through vLLM's
request model and its tokenizer mode `mistral`.

    mistral.py        (run anywhere)
"""

import json
import os
import tempfile
import types

import mistral_common
from mistral_common.tokens.tokenizers.base import SpecialTokens
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.mistral import safe_apply_chat_template
from vllm.renderers.params import merge_kwargs
from vllm.tokenizers import mistral as mt

from cases import CHATS, TOOLS, assistant, call, result, system, text, user

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = types.SimpleNamespace(enable_prompt_embeds=False, multimodal_config=None)
SPECIALS = [token["token_str"] for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS] + [
    "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]", "[MODEL_SETTINGS]", "[/MODEL_SETTINGS]"]
SETTINGS = {"reasoning_effort": {"type": "enum", "values": ["none", "high"], "accepts_none": True, "default": "none"}, "json_schema": None}

MORE = {
    "aggregated users": {"messages": [user("a"), user([text("b"), text(""), text("c")]), user(""), user("d"), assistant("e"), user("f"), user("g")]},
    "aggregated answers": {"messages": [user("a"), assistant("b "), assistant("c "), user("d")]},
    "aggregated thoughts": {"messages": [user("a"), assistant("b ", reasoning="r"), assistant("c ", reasoning="s"), user("d")]},
    "aggregated empty answers": {"messages": [user("a"), assistant(""), assistant("c"), user("d")]},
    "aggregated calls": {"messages": [user("a"), assistant("", tool_calls=[call("{}")]), assistant("", tool_calls=[call("{}", id="call00002")]),
                                      result("x"), result("y", id="call00002")], "tools": TOOLS},
    "trailing blanks": {"messages": [user("a  "), assistant("b  "), user("c  ")]},
    "systems around": {"messages": [system("a"), system([text("b"), text("c")]), user("d"), system("e"), user("f")]},
    "system after an answer": {"messages": [user("a"), assistant("b"), system("c"), user("d")]},
    "system and assistant": {"messages": [system("a"), assistant("b"), user("c")]},
    "swapped twice": {"messages": [user("a"), assistant("", tool_calls=[call("{}"), call("{}", id="call00002"), call("{}", id="call00003")]),
                                   result("z", id="call00003"), result("x"), result("y", id="call00002")], "tools": TOOLS},
    "result of a list": {"messages": [user("a"), assistant("", tool_calls=[call("{}")]), result('[1,2.50,"é\\u00e9",null,true,{"b":1e3}]')]},
    "result of a string": {"messages": [user("a"), assistant("", tool_calls=[call("{}")]), result('"x"')]},
    "result of a number": {"messages": [user("a"), assistant("", tool_calls=[call("{}")]), result(" 1.0 ")]},
    "result of a huge number": {"messages": [user("a"), assistant("", tool_calls=[call("{}")]), result("123456789012345678901234567890")]},
    "result of no number": {"messages": [user("a"), assistant("", tool_calls=[call("{}")]), result("NaN")]},
    "result of quotes": {"messages": [user("a"), assistant("", tool_calls=[call("{}")]), result('say "hi" \\ \n\t\x7f é')]},
    "duplicate results": {"messages": [user("a"), assistant("", tool_calls=[call("{}")]), result("x"), result("y")]},
    "duplicate calls": {"messages": [user("a"), assistant("", tool_calls=[call("{}"), call("{}")]), result("x")]},
    "call id null": {"messages": [user("a"), assistant("", tool_calls=[call("{}", id="null")]), result("x", id="null")]},
    "call id with a dash": {"messages": [user("a"), assistant("", tool_calls=[call("{}", id="call-0001")]), result("x", id="call-0001")]},
    "name with a dot": {"messages": [user("a"), assistant("", tool_calls=[call("{}", name="a.b")]), result("x")]},
    "tool with a dot": {"messages": [user("a")], "tools": [{"type": "function", "function": {"name": "a.b"}}]},
    "open answer with a call": {"messages": [user("a"), assistant("b ", tool_calls=[call("{}")])], "add_generation_prompt": False, "continue_final_message": True},
    "open answer of two": {"messages": [user("a"), assistant("b"), assistant("c ")], "add_generation_prompt": False, "continue_final_message": True},
    "open thought": {"messages": [user("a"), assistant("", reasoning="hm")], "add_generation_prompt": False, "continue_final_message": True},
    "empty kwargs": {"messages": [user("a")], "chat_template_kwargs": {}},
    "thought in a system": {"messages": [system([{"type": "thinking", "thinking": "hm"}]), user("a")]},
    "thought in a question": {"messages": [user([{"type": "thinking", "thinking": "hm"}])]},
    "thought that is open": {"messages": [user("a"), assistant([{"type": "thinking", "thinking": "hm", "closed": False}]), user("b")]},
    "thought and reasoning": {"messages": [user("a"), assistant([{"type": "thinking", "thinking": "hm"}], reasoning="r"), user("b")]},
    "one result in parts and empty": {"messages": [user("a"), assistant("", tool_calls=[call("{}")]), result([text(""), text("x"), text("y")])]},
}


def base():
    path = os.path.join(os.path.dirname(mistral_common.__file__), "data", "tekken_240911.json")
    with open(path, encoding="utf-8") as file:
        tekken = json.load(file)
    tekken["vocab"] = tekken["vocab"][:3100]
    tekken["config"].update(num_vocab_tokens=3100, default_vocab_size=4000)
    del tekken["image"]
    return tekken


def of_version(tekken, version):
    specials = [{"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(SPECIALS)]
    tekken = {**tekken, "config": {**tekken["config"], "version": version}, "special_tokens": specials}
    return {**tekken, "model_settings_builder": SETTINGS} if version == "v15" else tekken


def load(tekken):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "tekken.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(tekken, file)
        return mt.MistralTokenizer.from_pretrained(directory)


def render(tokenizer, body):
    request = ChatCompletionRequest.model_validate({"model": "m", **json.loads(json.dumps(body))})
    mt.maybe_serialize_tool_calls(request)
    mt.truncate_tool_call_ids(request)
    mt.validate_request_params(request)
    tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
    params = request.build_chat_params(None, "auto").with_defaults(merge_kwargs({}, {"tools": tools, "tokenize": True}))
    parse_chat_messages(request.messages, MODEL, content_format="string")
    return safe_apply_chat_template(tokenizer, request.messages, **params.get_apply_chat_template_kwargs())


def golden(tokenizer, body):
    try:
        ids = render(tokenizer, body)
    except Exception as error:  # every refusal is a golden of its own
        return {"refused": f"{type(error).__name__}: {error}"[:120]}
    return {"text": tokenizer.decode(ids), "tokens": len(ids)}


def main():
    tekken = base()
    os.makedirs(os.path.join(HERE, "tekken"), exist_ok=True)
    with open(os.path.join(HERE, "tekken", "tekken.json"), "w", encoding="utf-8") as file:
        json.dump(tekken, file, separators=(",", ":"))
        file.write("\n")
    cases = {**CHATS, **MORE}
    goldens = {"requests": cases, "specials": SPECIALS, "settings": SETTINGS, "texts": {}}
    for version in ("v3", "v7", "v11", "v13", "v15"):
        tokenizer = load(of_version(tekken, version))
        goldens["texts"][version] = [len(tokenizer("Hello, <s> wörld", add_special_tokens=add).input_ids) for add in (True, False)]
        expected = {name: golden(tokenizer, body) for name, body in cases.items()}
        with open(os.path.join(HERE, f"mistral_{version}.json"), "w", encoding="utf-8") as file:
            json.dump({"expected": expected}, file, ensure_ascii=False, indent=0)
            file.write("\n")
    with open(os.path.join(HERE, "mistral.json"), "w", encoding="utf-8") as file:
        json.dump(goldens, file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
