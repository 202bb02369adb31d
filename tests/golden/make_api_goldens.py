#!/usr/bin/env python3
"""Writes tests/golden/apis.json: Responses and Messages bodies as vLLM makes chats of them.

Needs the Python packages `vllm` (0.32 was used) and `transformers`. Each body goes
through vLLM's request model, its converter to chat messages, its template call and
the tokenizer in tests/golden/tiny-model; nothing of this repository is involved.

    make_api_goldens.py        (run in tests/golden)
"""

import asyncio
import json
import os
import types

from api_bodies import MESSAGES, RESPONSES
from transformers import AutoTokenizer
from vllm.entrypoints.anthropic.protocol import AnthropicCountTokensRequest, AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts
from vllm.renderers import hf
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.params import merge_kwargs

HERE = os.path.dirname(os.path.abspath(__file__))
TEMPLATES = ["alternate", "chatml", "parts", "qwen3", "thinking", "tools-json", "values"]
MODEL = types.SimpleNamespace(enable_prompt_embeds=False, multimodal_config=None, max_model_len=4096)


def plain(value):
    """The value as JSON holds it; pydantic leaves lazy iterators behind."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    return [plain(inner) for inner in value]


def render(tokenizer, template, request, messages, tools, defaults):
    defaults = merge_kwargs(defaults, {"tools": tools, "tokenize": False})
    params = request.build_chat_params(template, "auto").with_defaults(defaults)
    form = hf._detect_content_format(template, default="string")
    conversation, _, _ = parse_chat_messages(messages, MODEL, content_format=form)
    text = hf.safe_apply_chat_template(MODEL, tokenizer, conversation, **params.get_apply_chat_template_kwargs())
    special = request.build_tok_params(MODEL).add_special_tokens
    return {"text": text, "tokens": len(tokenizer(text, add_special_tokens=special).input_ids)}


def attempt(make):
    try:
        return make()
    except Exception as error:  # every refusal is a golden of its own
        return {"refused": f"{type(error).__name__}: {error}"[:200]}


def without_media(messages):
    return not any(isinstance(m.get("content"), list) and any("image" in str(p.get("type")) for p in m["content"])
                   for m in messages)


def harmony(body):
    """What gpt-oss is given, which no template renders."""
    renderer = OnlineRenderer.__new__(OnlineRenderer)
    renderer.parser, renderer.model_config = None, MODEL
    renderer.renderer = types.SimpleNamespace(tokenizer=None)
    request = ResponsesRequest.model_validate({"model": "m", **json.loads(json.dumps(body))})
    rendered = renderer._render_responses_with_harmony(
        request, previous_messages=None, previous_response_outputs=None, tool_server=None)
    return {"tokens": len(rendered.engine_input["prompt_token_ids"])}


def responses(tokenizer, templates, body):
    request = ResponsesRequest.model_validate({"model": "m", **json.loads(json.dumps(body))})
    tools = construct_tool_dicts(request.tools, request.tool_choice, False)
    messages = plain(construct_input_messages(request_instructions=request.instructions, request_input=request.input))
    params = request.build_chat_params(None, "auto")
    tok = request.build_tok_params(MODEL)
    kwargs = params.chat_template_kwargs
    golden = {"messages": messages, "tools": tools, "effort": kwargs.get("reasoning_effort"),
              "continued": kwargs["continue_final_message"], "special": tok.add_special_tokens,
              "truncate": tok.truncate_prompt_tokens, "max_tokens": request.max_output_tokens, "stream": bool(request.stream)}
    if without_media(messages):
        golden["harmony"] = attempt(lambda: harmony(body))
        golden["prompts"] = {name: attempt(lambda: render(tokenizer, template, request, json.loads(json.dumps(messages)), tools, kwargs))
                             for name, template in templates.items()}
    return golden


class Probe(AnthropicServingMessages):
    """What a server finds out about its template when it starts."""

    def __init__(self, tokenizer, template):
        self.tokenizer, self.template = tokenizer, template

    async def _render_probe_prompt(self, effort):
        request = ChatCompletionRequest(messages=[{"role": "user", "content": "Hi"}], reasoning_effort=effort)
        found = attempt(lambda: render(self.tokenizer, self.template, request, request.messages, None, {}))
        return found.get("text")


def probe(tokenizer, template):
    return {"merge": AnthropicServingMessages._detect_merge_inline_system(template),
            "disabled": asyncio.run(Probe(tokenizer, template)._probe_disabled_thinking_effort())}


def messages(tokenizer, templates, probes, body):
    kind = AnthropicMessagesRequest if "max_tokens" in body else AnthropicCountTokensRequest
    read = lambda: kind.model_validate({"model": "m", **json.loads(json.dumps(body))})
    convert = lambda found: AnthropicServingMessages.to_chat_completion_request(
        read(), merge_inline_system=found["merge"], disabled_thinking_effort=found["disabled"])
    chat = convert({"merge": False, "disabled": "none"})
    golden = {"messages": plain(chat.messages), "tools": None if chat.tools is None else [t.model_dump() for t in chat.tools],
              "effort": chat.reasoning_effort, "max_tokens": chat.max_tokens, "stream": bool(chat.stream)}
    if without_media(golden["messages"]):
        golden["prompts"] = {}
        for name, template in templates.items():
            chat = convert(probes[name])
            tools = None if chat.tools is None else [t.model_dump() for t in chat.tools]
            golden["prompts"][name] = attempt(lambda: render(tokenizer, template, chat, plain(chat.messages), tools, {}))
    return golden


def main():
    tokenizer = AutoTokenizer.from_pretrained(os.path.join(HERE, "tiny-model"))
    templates = {}
    for name in TEMPLATES:
        with open(os.path.join(HERE, "templates", f"{name}.jinja"), encoding="utf-8") as file:
            templates[name] = file.read()
    probes = {name: probe(tokenizer, template) for name, template in templates.items()}
    goldens = {
        "probes": probes,
        "responses": [{"name": name, "body": body, **attempt(lambda: responses(tokenizer, templates, body))}
                      for name, body in RESPONSES.items()],
        "messages": [{"name": name, "body": body, **attempt(lambda: messages(tokenizer, templates, probes, body))}
                     for name, body in MESSAGES.items()],
    }
    with open(os.path.join(HERE, "apis.json"), "w", encoding="utf-8") as file:
        json.dump(goldens, file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
