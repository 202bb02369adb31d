#!/usr/bin/env python3
"""Writes deepseek_v32.json and deepseek_v4.json: prompts made by vLLM's own code.

Needs the Python packages `vllm` (0.32 was used) and `transformers`. Each request
goes through vLLM's request model, its message rewriting and its encoder; tokens are
counted by the tokenizer in tests/golden/tiny-model.

    deepseek.py        (run anywhere)
"""

import json
import os
import types

from transformers import TokenizersBackend
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.params import merge_kwargs
from vllm.tokenizers.deepseek_v4 import get_deepseek_v4_tokenizer
from vllm.tokenizers.deepseek_v32 import get_deepseek_v32_tokenizer

from cases import CHATS

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = types.SimpleNamespace(enable_prompt_embeds=False, multimodal_config=None)
KINDS = {"v32": ("string", get_deepseek_v32_tokenizer), "v4": ("openai", get_deepseek_v4_tokenizer)}


def render(tokenizer, form, body):
    request = ChatCompletionRequest.model_validate({"model": "m", **json.loads(json.dumps(body))})
    tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
    params = request.build_chat_params(None, "auto").with_defaults(merge_kwargs({}, {"tools": tools, "tokenize": False}))
    conversation, _, _ = parse_chat_messages(request.messages, MODEL, content_format=form)
    return tokenizer.apply_chat_template(conversation=conversation, messages=request.messages, **params.get_apply_chat_template_kwargs())


def golden(plain, tokenizer, form, body):
    try:
        text = render(tokenizer, form, body)
    except Exception as error:  # every refusal is a golden of its own
        return {"refused": f"{type(error).__name__}: {error}"[:120]}
    return {"text": text, "tokens": len(plain(text, add_special_tokens=False).input_ids)}


def main():
    plain = TokenizersBackend.from_pretrained(os.path.join(HERE, "..", "tiny-model"))
    for name, (form, wrap) in KINDS.items():
        expected = {case: golden(plain, wrap(plain), form, body) for case, body in CHATS.items()}
        with open(os.path.join(HERE, f"deepseek_{name}.json"), "w", encoding="utf-8") as file:
            json.dump({"requests": CHATS, "expected": expected}, file, ensure_ascii=False, indent=0)
            file.write("\n")


if __name__ == "__main__":
    main()
