"""Captures what a real server answers, route by route, as fixtures for the tests.

    capture.py generate|pooling URL OUT

Each file is a list of exchanges `{name, method, path, body, status, content_type,
answer}`; `answer` is the text as it came, of a stream as of a whole answer. In `body`
`{repeat, times}` stands for a long text, and of vectors the beginning is kept. What
differs from run to run (ids, times) is replaced by zeros.
"""

import json
import pathlib
import re
import sys
import urllib.error
import urllib.request

from processes import MODEL

FEW = 4
NOT_SERVED = '{"detail":"Not Found"}'
USER = [{"role": "user", "content": "Name a town."}]
WEATHER = {
    "name": "weather",
    "description": "The weather at a place.",
    "schema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
RESPONSES_TOOL = {"type": "function", "name": WEATHER["name"], "description": WEATHER["description"],
                  "parameters": WEATHER["schema"]}  # fmt: skip
MESSAGES_TOOL = {"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["schema"]}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"place": "Aarhus"}'}

RESPONSES = {
    "responses-string": {"input": "Name a town."},
    "responses-instructions": {"input": "Name a town.", "instructions": "Be brief."},
    "responses-items": {"input": [
        {"role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Name a town."}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "Aarhus.", "annotations": []}]},
        {"role": "user", "content": "Another."},
    ]},
    "responses-tools": {"input": [*USER, CALL, {"type": "function_call_output", "call_id": "call_1", "output": "rain"}],
                        "tools": [RESPONSES_TOOL]},
    "responses-stream": {"input": "Name a town.", "stream": True},
    "responses-stream-tools": {"input": "Name a town.", "stream": True, "tools": [RESPONSES_TOOL]},
    "responses-previous": {"input": "Name a town.", "previous_response_id": "resp_1"},
    "responses-no-input": {},
    "responses-empty-input": {"input": []},
    "responses-unknown-model": {"input": "Name a town.", "model": "nobody"},
    "responses-too-long": {"input": "town " * 9000},
    "responses-too-long-stream": {"input": "town " * 9000, "stream": True},
    "responses-output-0": {"input": "Name a town.", "max_output_tokens": 0},
    "responses-output-too-large": {"input": "Name a town.", "max_output_tokens": 9000},
    "responses-bad-tool-choice": {"input": "Name a town.", "tool_choice": "sometimes"},
    "responses-reasoning": {"input": "Name a town.", "reasoning": {"effort": "low"}},
}  # fmt: skip
MESSAGES = {
    "messages": {"messages": USER},
    "messages-system": {"messages": USER, "system": "Be brief."},
    "messages-system-blocks": {"messages": USER, "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
    "messages-tools": {
        "tools": [MESSAGES_TOOL],
        "messages": [
            *USER,
            {"role": "assistant", "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"place": "Aarhus"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "rain"}]},
                {"type": "text", "text": "And?"},
            ]},
        ],
    },
    "messages-stream": {"messages": USER, "stream": True},
    "messages-stream-tools": {"messages": USER, "stream": True, "tools": [MESSAGES_TOOL]},
    "messages-stop": {"messages": USER, "stop_sequences": ["e", "a", "i", "o", " "]},
    "messages-empty": {"messages": []},
    "messages-no-messages": {},
    "messages-no-max": {"messages": USER, "max_tokens": None},
    "messages-max-0": {"messages": USER, "max_tokens": 0},
    "messages-max-too-large": {"messages": USER, "max_tokens": 9000},
    "messages-unknown-model": {"messages": USER, "model": "nobody"},
    "messages-too-long": {"messages": [{"role": "user", "content": "town " * 9000}]},
    "messages-too-long-stream": {"messages": [{"role": "user", "content": "town " * 9000}], "stream": True},
    "messages-bad-role": {"messages": [{"role": "tool", "content": "x"}]},
}  # fmt: skip
TOKENIZE = {
    "tokenize-text": {"prompt": "Name a town."},
    "tokenize-text-strings": {"prompt": "Name a town.", "return_token_strs": True},
    "tokenize-messages": {"messages": USER},
    "tokenize-messages-tools": {"messages": USER, "tools": [{"type": "function", "function": {
        "name": "weather", "description": "The weather at a place.", "parameters": WEATHER["schema"]}}]},
    "tokenize-too-long": {"prompt": "town " * 9000},
    "tokenize-list": {"prompt": ["a", "b"]},
    "tokenize-empty": {},
    "tokenize-unknown-model": {"prompt": "x", "model": "nobody"},
}  # fmt: skip
DETOKENIZE = {
    "detokenize": {"tokens": [1, 3011, 201]},
    "detokenize-none": {"tokens": []},
    "detokenize-beyond": {"tokens": [999999]},
    "detokenize-empty": {},
}
COMPLETIONS = {
    "completions-echo": {"prompt": "Name a town.", "echo": True, "max_tokens": FEW},
    "completions-echo-0": {"prompt": "Name a town.", "echo": True, "max_tokens": 0},
    "completions-prompt-logprobs": {"prompt": "Name a town.", "prompt_logprobs": 1, "max_tokens": 1},
    "completions-truncated": {"prompt": "town " * 100, "truncate_prompt_tokens": 20, "max_tokens": FEW},
    "completions-truncated-0": {"prompt": "Name a town.", "truncate_prompt_tokens": 0, "max_tokens": FEW},
    "completions-truncated-minus-2": {"prompt": "Name a town.", "truncate_prompt_tokens": -2, "max_tokens": FEW},
    "completions-truncated-too-far": {"prompt": "Name a town.", "truncate_prompt_tokens": 9000, "max_tokens": FEW},
    "completions-empty-list": {"prompt": [], "max_tokens": FEW},
    "completions-id-beyond": {"prompt": [999999], "max_tokens": FEW},
    "completions-beam": {"prompt": "Name a town.", "use_beam_search": True, "n": 2, "max_tokens": FEW, "temperature": 0},
}

PROMPTS = {
    "text": {"input": "Name a town."},
    "texts": {"input": ["Name a town.", "And a river, and a lake."]},
    "ids": {"input": [1, 3011, 201]},
    "id-lists": {"input": [[1, 3011, 201], [36, 71]]},
    "chat": {"messages": USER},
    "chat-generation": {"messages": USER, "add_generation_prompt": True},
    "truncated": {"input": "town " * 100, "truncate_prompt_tokens": 20},
    "too-long": {"input": "town " * 9000},
    "empty-text": {"input": ""},
    "empty-list": {"input": []},
    "id-beyond": {"input": [999999]},
    "no-input": {},
    "unknown-model": {"input": "x", "model": "nobody"},
    "base64": {"input": "Name a town.", "encoding_format": "base64"},
    "bytes": {"input": "Name a town.", "encoding_format": "bytes"},
}
PAIRS = {
    "score-text": {"text_1": "Name a town.", "text_2": "Aarhus"},
    "score-one-to-many": {"text_1": "Name a town.", "text_2": ["Aarhus", "The Gudena is a river."]},
    "score-many-to-many": {"text_1": ["a town", "a river"], "text_2": ["Aarhus", "The Gudena is a river."]},
    "score-queries-documents": {"queries": "Name a town.", "documents": ["Aarhus", "Gudena"]},
    "score-queries-items": {"queries": "Name a town.", "items": ["Aarhus", "Gudena"]},
    "score-data": {"data_1": "Name a town.", "data_2": ["Aarhus"]},
    "score-uneven": {"text_1": ["a", "b"], "text_2": ["c", "d", "e"]},
    "score-truncated": {"text_1": "Name a town.", "text_2": "town " * 100, "truncate_prompt_tokens": 20},
    "score-too-long": {"text_1": "Name a town.", "text_2": "town " * 9000},
    "score-empty": {"text_1": "Name a town.", "text_2": []},
    "score-none": {},
    "score-token-limits": {"text_1": "town " * 100, "text_2": "river " * 100, "max_tokens_per_query": 10, "max_tokens_per_doc": 15},
}
RANKS = {
    "rerank": {"query": "Name a town.", "documents": ["Aarhus", "The Gudena is a river."]},
    "rerank-top": {"query": "Name a town.", "documents": ["Aarhus", "The Gudena is a river."], "top_n": 1},
    "rerank-parts": {"query": "Name a town.", "documents": {"content": [{"type": "text", "text": "Aarhus"}]}},
    "rerank-none": {"query": "Name a town.", "documents": []},
}


def generate():
    groups = (
        ("/v1/responses", RESPONSES, {"max_output_tokens": FEW}),
        ("/v1/messages", MESSAGES, {"max_tokens": FEW}),
        ("/v1/messages/count_tokens", counted(), {}),
        ("/tokenize", TOKENIZE, {}),
        ("/detokenize", DETOKENIZE, {}),
        ("/v1/completions", COMPLETIONS, {}),
    )
    for path, bodies, extra in groups:
        for name, body in bodies.items():
            yield name, path, {"model": MODEL, **extra, **body}


def counted():
    names = ("messages", "messages-system", "messages-system-blocks", "messages-tools", "messages-empty",
             "messages-no-messages", "messages-unknown-model", "messages-too-long", "messages-bad-role")  # fmt: skip
    return {name.replace("messages", "count-tokens", 1): MESSAGES[name] for name in names}


def pooling():
    for route, path in (("embeddings", "/v1/embeddings"), ("pooling", "/pooling"), ("classify", "/classify")):
        for name, body in PROMPTS.items():
            yield f"{route}-{name}", path, {"model": MODEL, **body}
    for name, body in PAIRS.items():
        yield name, "/score", {"model": MODEL, **body}
    for name, body in RANKS.items():
        yield name, "/rerank", {"model": MODEL, **body}


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.headers.get("content-type"), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("content-type"), error.read()


def scrubbed(text):
    text = re.sub(r"(?<![0-9a-zA-Z.])((?:[a-z]+[-_])?)[0-9a-f]{12,64}(?![0-9a-zA-Z])", r"\g<1>0", text)
    text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "0", text)
    text = re.sub(r'("(?:embedding|data)":")([A-Za-z0-9+/]{16})[A-Za-z0-9+/]+(={0,2}")', r"\1\2\3", text)
    return re.sub(r'("(?:created|created_at|completed_at)": ?)[0-9.]+', r"\g<1>0", text)


def shortened(value):
    """Vectors say nothing about tokens: two numbers of each stay, and of long texts the repeated part."""
    if isinstance(value, str) and len(value) > 2000:
        return {"repeat": value[: value.index(" ") + 1], "times": value.count(" ")}
    if isinstance(value, list) and len(value) > 200:
        return value[:2]
    if isinstance(value, list) and len(value) > 8 and all(isinstance(number, float) for number in value):
        return value[:2]
    if isinstance(value, list):
        return [shortened(item) for item in value]
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return value


def exchange(url, name, path, body):
    status, kind, answer = post(url + path, body)
    try:
        text = scrubbed(answer.decode())
    except UnicodeDecodeError:
        text = f"{len(answer)} bytes that are not text"
    if kind == "application/json":
        text = json.dumps(shortened(json.loads(text)), separators=(",", ":"), ensure_ascii=False)
    return {"name": name, "method": "POST", "path": path, "body": shortened(body), "status": status,
            "content_type": kind, "answer": text}  # fmt: skip


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("generate", "pooling"):
        sys.exit("usage: capture.py generate|pooling URL OUT")
    asked = generate() if sys.argv[1] == "generate" else pooling()
    seen = [exchange(sys.argv[2], *what) for what in asked]
    seen = [one for one in seen if one["answer"] != NOT_SERVED]
    for one in seen:
        print(f"{one['status']} {one['name']}")
    pathlib.Path(sys.argv[3]).write_text(json.dumps(seen, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
