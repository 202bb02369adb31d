"""Makes a Llama model directory small enough to serve on two CPU cores.

    make_tiny_model.py OUT

Nothing is downloaded: the weights are random numbers from a fixed seed, and the
tokenizer is a byte-level BPE trained on the reference manual that ships inside
Python's standard library. What it says is noise; what matters is that a real
engine serves it with a real tokenizer and a real chat template, at 512 bytes
of KV cache per token.

SPDX-License-Identifier: Apache-2.0
"""

import json
import pathlib
import sys

import torch
from pydoc_data.topics import topics
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

WIDTH = 128
LAYERS = 2
QUERY_HEADS, KV_HEADS, HEAD_WIDTH = 4, 2, 32
VOCABULARY = 4096
LONGEST_CONTEXT = 65_536

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Tokens of their own that are not "special": they survive skip_special_tokens,
# and a tokenizer that treats them like the others counts wrongly.
MARKUP = ["<tool_call>", "</tool_call>"]

# The split used by current open models: contractions, words with their leading
# space, single digits, punctuation runs, line ends, blanks.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Covers what templates in the wild do: tools as JSON, string and part contents,
# tool calls and results, an optional switch from chat_template_kwargs.
CHAT_TEMPLATE = r"""
{%- macro text(content) -%}
  {%- if content is string -%}{{ content }}
  {%- elif content -%}{%- for part in content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- if tools -%}
  {{- '<|im_start|>system\nTools, one JSON object a line:\n' -}}
  {%- for tool in tools -%}{{- tool | tojson -}}{{- '\n' -}}{%- endfor -%}
  {{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\n' + text(message.content) -}}
  {%- for call in message.tool_calls or [] -%}
    {{- '<tool_call>' + call.function.name + ' ' + (call.function.arguments | tojson) + '</tool_call>' -}}
  {%- endfor -%}
  {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}
{%- endif -%}
"""


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def train_tokenizer(out):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKUP),
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((topics[name] for name in sorted(topics)), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in MARKUP])
    if tokenizer.get_vocab_size() != VOCABULARY:
        sys.exit(f"the vocabulary has {tokenizer.get_vocab_size()} entries instead of {VOCABULARY}")
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": CHAT_TEMPLATE.strip(),
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "model_max_length": LONGEST_CONTEXT,
        "clean_up_tokenization_spaces": False,
    })


def draw_weights(out):
    random = torch.Generator().manual_seed(20)

    def matrix(rows, columns, scale):
        return (torch.randn(rows, columns, generator=random) * scale).to(torch.bfloat16)

    ones = torch.ones(WIDTH, dtype=torch.bfloat16)
    weights = {
        "model.embed_tokens.weight": matrix(VOCABULARY, WIDTH, 1.0),
        # Separate from the embedding: tied, a random model repeats its last token for ever.
        "lm_head.weight": matrix(VOCABULARY, WIDTH, 0.3),
        "model.norm.weight": ones,
    }
    for layer in range(LAYERS):
        shapes = {
            "self_attn.q_proj": (QUERY_HEADS * HEAD_WIDTH, WIDTH),
            "self_attn.k_proj": (KV_HEADS * HEAD_WIDTH, WIDTH),
            "self_attn.v_proj": (KV_HEADS * HEAD_WIDTH, WIDTH),
            "self_attn.o_proj": (WIDTH, QUERY_HEADS * HEAD_WIDTH),
            "mlp.gate_proj": (3 * WIDTH, WIDTH),
            "mlp.up_proj": (3 * WIDTH, WIDTH),
            "mlp.down_proj": (WIDTH, 3 * WIDTH),
        }
        for name, (rows, columns) in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = matrix(rows, columns, 0.05)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{norm}.weight"] = ones.clone()
    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})


def describe(out):
    write_json(out / "config.json", {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": 3 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": QUERY_HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_WIDTH,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": LONGEST_CONTEXT,
        "rope_theta": 10_000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "torch_dtype": "bfloat16",
    })
    write_json(out / "generation_config.json", {"eos_token_id": [2, 0], "do_sample": True, "temperature": 1.0})


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_tiny_model.py OUT")
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    train_tokenizer(out)
    describe(out)
    draw_weights(out)
    print(f"{out}: {LAYERS} layers, {VOCABULARY} tokens in the vocabulary")


if __name__ == "__main__":
    main()
