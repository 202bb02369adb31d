#!/usr/bin/env python3
"""Writes counts/FAMILY.json: what vLLM's own code counts for the corpus.

Needs the Python packages `vllm` (0.32 was used, with `transformers` 5.19 and
`tokenizers` 0.23), and the model directories that families/fetch.py writes.

    make_counts.py [FAMILY...]

Every request goes through vLLM's request model, its message rewriting, its template
call or renderer, and its tokenizer; nothing of this repository is involved. For
each entry of corpus.json: tokens of it as a completion, with and without the
post-processor's tokens, and as the only message of a chat; then of each request of
conversations.json and of make_goldens.py. null is a request that vLLM refuses.
templates.json holds, for other templates and DeepSeek's special tokens, checksums
of the texts that vLLM renders; those that write the date of the day are left out.
"""

import json
import os
import sys
import types
import zlib

os.environ["VLLM_SYSTEM_START_DATE"] = "2025-01-01"
HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.dirname(HERE)
MODELS = os.path.join(os.path.dirname(os.path.dirname(GOLDEN)), "target", "golden-models")
sys.path.insert(0, GOLDEN)

import make_goldens
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.parser.harmony_utils import get_encoding
from vllm.renderers import mistral as mistral_renderer
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.renderers.params import merge_kwargs
from vllm.tokenizers import get_tokenizer
from vllm.tokenizers import mistral as mistral_tokenizer

FAMILIES = ["qwen2.5", "qwen3", "deepseek_v3", "gpt_oss", "llama3", "llama3.1", "llama3.2", "gemma3", "mistral_tekken", "mistral_v7"]


def load(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return json.load(file)


def spelled_out(value, texts, key=None):
    """A request with the corpus's texts put where it only numbers them."""
    if isinstance(value, dict):
        return {name: spelled_out(item, texts, name) for name, item in value.items()}
    if isinstance(value, list):
        return [spelled_out(item, texts) for item in value]
    numbered = key in ("content", "text", "description") and isinstance(value, int)
    return texts[value] if numbered else value


class Templated:
    """A model whose chats a template renders."""

    def __init__(self, family):
        self.tokenizer = get_tokenizer(os.path.join(MODELS, family))

    def text(self, text, special):
        return len(self.tokenizer(text, add_special_tokens=special).input_ids)

    def chat(self, body):
        text = make_goldens.render(self.tokenizer, self.tokenizer.chat_template, body)
        return self.text(text, body.get("add_special_tokens", False))


class Mistral:
    """A model that mistral-common renders."""

    def __init__(self, family):
        self.tokenizer = mistral_tokenizer.MistralTokenizer.from_pretrained(os.path.join(MODELS, family))

    def text(self, text, special):
        return len(self.tokenizer(text, add_special_tokens=special).input_ids)

    def chat(self, body):
        request = ChatCompletionRequest.model_validate({"model": "m", **body})
        mistral_tokenizer.maybe_serialize_tool_calls(request)
        mistral_tokenizer.truncate_tool_call_ids(request)
        mistral_tokenizer.validate_request_params(request)
        tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
        params = request.build_chat_params(None, "auto").with_defaults(merge_kwargs({}, {"tools": tools, "tokenize": True}))
        kwargs = params.get_apply_chat_template_kwargs()
        return len(mistral_renderer.safe_apply_chat_template(self.tokenizer, request.messages, **kwargs))


class Harmony(Templated):
    """gpt-oss, whose chats are rendered by harmony."""

    def __init__(self, family):
        super().__init__(family)
        self.online = OnlineRenderer.__new__(OnlineRenderer)
        self.online.renderer = types.SimpleNamespace(tokenizer=None)
        self.online.use_harmony = True
        self.online.supports_browsing = self.online.supports_code_interpreter = False
        get_encoding()

    def chat(self, body):
        request = ChatCompletionRequest.model_validate({"model": "m", **body})
        _, inputs = self.online._make_request_with_harmony(request, request.tools is not None)
        return len(inputs[0]["prompt_token_ids"])


def model(family):
    kinds = {"gpt_oss": Harmony, "mistral_tekken": Mistral, "mistral_v7": Mistral}
    return kinds.get(family, Templated)(family)


def counted(chat, body):
    try:
        return chat(json.loads(json.dumps(body)))
    except Exception:  # a refusal
        return None


def count(family, texts, conversations):
    reference = model(family)
    chats = [{"messages": [{"role": "user", "content": text}]} for text in texts]
    return {
        "completions": [reference.text(text, True) for text in texts],
        "bare": [reference.text(text, False) for text in texts],
        "chats": [counted(reference.chat, body) for body in chats],
        "conversations": [counted(reference.chat, body) for body in conversations],
        "requests": {name: counted(reference.chat, body) for name, body in make_goldens.CHATS.items()},
    }


def templates(conversations):
    """{template: checksums of what it renders}"""
    tokenizer, found = get_tokenizer(os.path.join(MODELS, "deepseek_v3")), {}
    folder = os.path.join(MODELS, "templates")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            template = file.read()
        if "strftime_now" in template:
            continue
        checksum = lambda body: zlib.crc32(make_goldens.render(tokenizer, template, body).encode())
        bodies = conversations + list(make_goldens.CHATS.values())
        found[name] = [counted(checksum, body) for body in bodies]
    return found


def write(name, value):
    with open(os.path.join(HERE, "counts", name + ".json"), "w", encoding="utf-8") as file:
        rows = ",\n".join(f"{json.dumps(key)}:{json.dumps(item, separators=(',', ':'))}" for key, item in value.items())
        file.write("{\n" + rows + "\n}\n")


def main():
    texts = [entry["text"] * entry.get("times", 1) for entry in load("corpus.json")]
    conversations = [spelled_out(body, texts) for body in load("conversations.json")]
    os.makedirs(os.path.join(HERE, "counts"), exist_ok=True)
    for family in sys.argv[1:] or [*FAMILIES, "templates"]:
        if family == "templates":
            found = templates(conversations)
            write(family, found)
            print({name: sum(crc is not None for crc in crcs) for name, crcs in found.items()})
            continue
        counts = count(family, texts, conversations)
        write(family, counts)
        refused = {key: sum(n is None for n in (value.values() if isinstance(value, dict) else value)) for key, value in counts.items()}
        print(family, {key: f"{len(value) - refused[key]} of {len(value)}" for key, value in counts.items()}, flush=True)


if __name__ == "__main__":
    main()
