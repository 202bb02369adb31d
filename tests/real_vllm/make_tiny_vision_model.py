"""Makes a directory of a model that sees, small enough to serve on two CPU cores.

    make_tiny_vision_model.py qwen2_vl|llava|mistral3 TINY OUT

TINY is what make_tiny_model.py made: its tokenizer gets the family's control tokens.
There are no weights: serve it with `--load-format dummy`. What it says is noise; what
matters is how many tokens a real engine makes of an image.

SPDX-License-Identifier: Apache-2.0
"""

import json
import pathlib
import sys

from make_tiny_model import HEAD_WIDTH, WIDTH, write_json

PATCH = 14
EYE = 64
# Small enough for the largest image to be encoded in seconds on a CPU.
MOST_PIXELS = 400_000
LONGEST_SIDE = 630
SQUARE = 336

CHAT_TEMPLATE = r"""
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\n' -}}
  {%- if message.content is string -%}{{- message.content -}}
  {%- else -%}{%- for part in message.content -%}
    {%- if part.type == 'image' -%}{{- 'IMAGE' -}}
    {%- elif part.type == 'text' -%}{{- part.text -}}{%- endif -%}
  {%- endfor -%}{%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""
NORMAL = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
BRAIN = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
         "max_position_embeddings", "rope_theta", "rms_norm_eps", "hidden_act", "tie_word_embeddings", "bos_token_id",
         "eos_token_id", "pad_token_id")  # fmt: skip


def qwen2_vl(ids, brain):
    sections = [HEAD_WIDTH // 8, HEAD_WIDTH // 16 * 3, HEAD_WIDTH // 16 * 3]
    eyes = {"depth": 1, "embed_dim": EYE, "hidden_size": WIDTH, "num_heads": 2, "mlp_ratio": 2, "in_channels": 3,
            "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2}  # fmt: skip
    config = {
        **brain, "architectures": ["Qwen2VLForConditionalGeneration"], "rope_scaling": {"type": "mrope", "mrope_section": sections},
        "image_token_id": ids["<|image_pad|>"], "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"], "vision_end_token_id": ids["<|vision_end|>"],
        "vision_config": eyes,
    }  # fmt: skip
    images = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor", **NORMAL,
              "min_pixels": 56 * 56, "max_pixels": MOST_PIXELS, "patch_size": PATCH, "temporal_patch_size": 2, "merge_size": 2}  # fmt: skip
    return config, {"preprocessor_config.json": images}


def encoder(kind, image_size):
    return {"model_type": kind, "hidden_size": EYE, "intermediate_size": 2 * EYE, "num_hidden_layers": 2, "num_attention_heads": 2,
            "head_dim": EYE // 2, "image_size": image_size, "patch_size": PATCH, "projection_dim": EYE}  # fmt: skip


def llava(ids, brain):
    config = {"architectures": ["LlavaForConditionalGeneration"], "text_config": {**brain, "model_type": "llama"},
              "vision_config": encoder("clip_vision_model", SQUARE), "image_token_index": ids["<image>"],
              "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "projector_hidden_act": "gelu"}  # fmt: skip
    images = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": SQUARE},
              "crop_size": {"height": SQUARE, "width": SQUARE}, **NORMAL}  # fmt: skip
    processor = {"processor_class": "LlavaProcessor", "patch_size": PATCH, "vision_feature_select_strategy": "default",
                 "num_additional_image_tokens": 1, "image_token": "<image>"}  # fmt: skip
    return config, {"preprocessor_config.json": images, "processor_config.json": processor}


def mistral3(ids, brain):
    config = {"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {**brain, "model_type": "mistral"},
              "vision_config": encoder("pixtral", LONGEST_SIDE), "image_token_index": ids["[IMG]"], "spatial_merge_size": 2,
              "vision_feature_layer": -1, "projector_hidden_act": "gelu", "multimodal_projector_bias": False}  # fmt: skip
    images = {"image_processor_type": "PixtralImageProcessor", "processor_class": "PixtralProcessor", **NORMAL,
              "size": {"longest_edge": LONGEST_SIDE}, "patch_size": PATCH}  # fmt: skip
    processor = {"processor_class": "PixtralProcessor", "image_token": "[IMG]", "image_break_token": "[IMG_BREAK]",
                 "image_end_token": "[IMG_END]", "patch_size": PATCH, "spatial_merge_size": 2}  # fmt: skip
    return config, {"preprocessor_config.json": images, "processor_config.json": processor}


# The control tokens of each family and what its template writes for an image.
FAMILIES = {
    "qwen2_vl": (qwen2_vl, ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"],
                 "<|vision_start|><|image_pad|><|vision_end|>"),
    "llava": (llava, ["<image>"], "<image>\\n"),
    "mistral3": (mistral3, ["[IMG]", "[IMG_BREAK]", "[IMG_END]"], "[IMG]"),
}  # fmt: skip


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in FAMILIES:
        sys.exit("usage: make_tiny_vision_model.py qwen2_vl|llava|mistral3 TINY OUT")
    family, tiny, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    describe, control, image = FAMILIES[family]
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((tiny / "tokenizer.json").read_text())
    first = 1 + max(token["id"] for token in tokenizer["added_tokens"])
    ids = {text: first + at for at, text in enumerate(control)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"] += [{"id": number, "content": text, **plain} for text, number in ids.items()]
    settings = json.loads((tiny / "tokenizer_config.json").read_text())
    settings["chat_template"] = CHAT_TEMPLATE.strip().replace("IMAGE", image)
    if family == "qwen2_vl":
        settings |= {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    model = json.loads((tiny / "config.json").read_text())
    brain = {key: model[key] for key in BRAIN} | {"vocab_size": first + len(control)}
    config, files = describe(ids, brain)
    files |= {"tokenizer.json": tokenizer, "tokenizer_config.json": settings,
              "config.json": {"model_type": family, "torch_dtype": "bfloat16", **config}}  # fmt: skip
    for name, value in files.items():
        write_json(out / name, value)
    print(f"{out}: {family}")


if __name__ == "__main__":
    main()
