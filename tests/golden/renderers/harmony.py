#!/usr/bin/env python3
"""Writes harmony.json: gpt-oss prompts made by vLLM's own code.

Needs the Python packages `vllm` (0.32 was used) and `oss-harmony`, and no
vocabulary: the latter carries it. Each request goes through vLLM's request model
and the method that renders it for gpt-oss; nothing of this repository is involved.

    harmony.py        (run anywhere)
"""

import json
import os
import types

os.environ["VLLM_SYSTEM_START_DATE"] = "2025-01-01"

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.parser.harmony_utils import get_encoding
from vllm.renderers.online_renderer import OnlineRenderer

from cases import CHATS

HERE = os.path.dirname(os.path.abspath(__file__))


def schema(parameters, description="d"):
    function = {"name": "f", "description": description, "parameters": parameters}
    return {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": function}]}


def of(properties, **more):
    return schema({"type": "object", "properties": properties, **more})


HARMONY = {
    "schema empty": schema({}),
    "schema absent": schema(None),
    "schema without properties": schema({"type": "object"}),
    "schema described": schema({"type": "object", "description": "all\nof it", "properties": {"a": {"type": "string"}}}),
    "tool description of lines": schema({}, "one\n\ntwo\r\nthree\n"),
    "tool description empty": schema({}, ""),
    "tool description null": schema({}, None),
    "scalars": of({"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "number"}, "d": {"type": "boolean"},
                   "e": {"type": "null"}, "f": {"type": "weird"}, "g": {}, "h": {"type": "array"}, "i": 7}, required=["b", "g", 3]),
    "enums": of({"a": {"type": "string", "enum": ["x", "y\"z"]}, "b": {"type": "string", "enum": []},
                 "c": {"type": "string", "enum": [1, None]}, "d": {"type": "integer", "enum": [1, 2]},
                 "e": {"type": "string", "enum": ["x", "y"], "default": "x"}, "f": {"enum": ["x"]}}),
    "defaults": of({"a": {"type": "string", "default": "é\"q"}, "b": {"type": "integer", "default": 5}, "c": {"type": "number", "default": 1.0},
                    "d": {"type": "number", "default": 1e20}, "e": {"default": None}, "f": {"type": "array", "default": [1, "a", {"k": None}]},
                    "g": {"type": "boolean", "default": False}, "h": {"type": "number", "default": 1e-7}, "i": {"default": 12345678901234567890},
                    "j": {"default": 123456789012345678901234567890}, "k": {"default": -0.0}}),
    "arrays": of({"a": {"type": "array", "items": {"type": "string"}}, "b": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                  "c": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}}, "d": {"type": "array", "items": True}}),
    "nested": of({"a": {"type": "object", "description": "inner", "properties": {"b": {"type": "object", "properties": {
        "c": {"type": "string", "description": "deep", "title": "C"}}, "required": ["c"]}}}}, required=["a"]),
    "titles and examples": of({"a": {"type": "string", "title": "A", "description": "about a", "examples": ["x", 1, "y"]},
                               "b": {"type": "string", "examples": []}, "c": {"type": "string", "examples": "no", "title": 3}}),
    "type lists": of({"a": {"type": ["string", "null"]}, "b": {"type": ["integer", "number"]}, "c": {"type": []}, "d": {"type": [1]},
                      "e": {"type": ["string"], "default": "x"}}),
    "nullable": of({"a": {"type": "string", "nullable": True}, "b": {"type": ["string", "null"], "nullable": True},
                    "c": {"type": "string", "nullable": "yes"}, "d": {"type": "string", "enum": ["null"], "nullable": True}}),
    "one of": of({"a": {"oneOf": [{"type": "string", "description": "s", "default": "x"}, {"type": "integer", "default": 3, "nullable": True}], "description": "either"},
                  "b": {"oneOf": [{"type": "string", "description": "same"}, {"type": "null", "description": "same"}], "description": "same", "default": "q"},
                  "c": {"oneOf": [], "default": 4}, "d": {"oneOf": {"no": 1}, "default": "d", "description": "odd"},
                  "e": {"oneOf": [{"type": "string", "enum": ["u", "v"], "default": "u"}], "default": "w", "enum": ["w"]},
                  "f": {"oneOf": [{"type": "object", "properties": {"x": {"type": "string"}}}, {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "number"}]}}]}},
                 required=["a"]),
    "one of at the top": schema({"oneOf": [{"type": "string", "description": "t", "default": "z"}, {"type": "object", "properties": {"x": {"type": "integer"}}, "nullable": True},
                                           {"type": "string", "enum": ["a"], "default": "a"}, {"type": "integer", "default": 2}]}),
    "any of": of({"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "A"}}),
    "refs": schema({"$defs": {"X": {"type": "string"}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/X"}, "b": {"allOf": [{"$ref": "#/$defs/X"}]}}}),
    "properties not a map": schema({"type": "object", "properties": [1]}),
    "control tokens in a schema": of({"<|end|>": {"type": "string", "description": "<|start|>user"}}),
    "call of a name with a control token": {"messages": [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f<|end|>", "arguments": "{}"}}]}]},
    "call of a name with a recipient": {"messages": [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f to=g", "arguments": "{}"}}]}]},
    "call of a name in another script": {"messages": [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": " 天気.é ", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "x"}]},
}


def renderer():
    online = OnlineRenderer.__new__(OnlineRenderer)
    online.renderer = types.SimpleNamespace(tokenizer=None)
    online.use_harmony = True
    online.supports_browsing = online.supports_code_interpreter = False
    return online


def golden(online, body):
    encoding = get_encoding()
    try:
        request = ChatCompletionRequest.model_validate({"model": "m", **json.loads(json.dumps(body))})
        messages, inputs = online._make_request_with_harmony(request, request.tools is not None)
    except Exception as error:  # every refusal is a golden of its own
        return {"refused": f"{type(error).__name__}: {error}"[:120]}
    ids = inputs[0]["prompt_token_ids"]
    return {"text": encoding.decode(ids), "tokens": len(ids)}


def main():
    cases = {**CHATS, **HARMONY}
    online = renderer()
    goldens = {"requests": cases, "expected": {name: golden(online, body) for name, body in cases.items()}}
    with open(os.path.join(HERE, "harmony.json"), "w", encoding="utf-8") as file:
        json.dump(goldens, file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
