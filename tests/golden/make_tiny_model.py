#!/usr/bin/env python3
"""Trains the tokenizer in tests/golden/tiny-model.

Needs the Python package `tokenizers`. The corpus is the source and the docstrings
of the Python standard library of the interpreter that runs this, plus the lines
below, so another interpreter gives another vocabulary: the committed files and the
goldens made from them belong together.

    make_tiny_model.py OUT
"""

import glob
import json
import os
import sys
import sysconfig

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

VOCABULARY = 2048
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
LINES = [
    "The quick brown fox jumps over the lazy dog. How many tokens does this prompt have?",
    "Please summarise the following document in three sentences and answer the question.",
    "人工智能模型的上下文长度有限，请把文档分成小段。今天天气很好，我们去公园散步吧。",
    "Быстрая коричневая лиса прыгает через ленивую собаку. Сколько токенов в этом запросе?",
    "これは短い日本語の文章です。モデルの文脈の長さには限りがあります。",
]


def corpus(limit=6_000_000):
    stdlib = sysconfig.get_paths()["stdlib"]
    total = 0
    for path in sorted(glob.glob(os.path.join(stdlib, "*.py"))):
        with open(path, encoding="utf-8", errors="ignore") as file:
            text = file.read()
        total += len(text)
        if total > limit:
            break
        yield text
    for line in LINES:
        for _ in range(400):
            yield line


def main():
    out = sys.argv[1]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(PLAIN),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    ))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens(PLAIN)
    data = json.loads(tokenizer.to_str())
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, separators=(",", ":"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
    }
    with open(os.path.join(out, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
