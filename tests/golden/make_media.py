"""Reference counts of image tokens, and small image files with their sizes.

    make_media.py OUT.json

Needs the Python environment of a real vLLM (tests/real_vllm/install.sh) and
torchvision; no weights and no network. The counts come from the processors' own code;
only the numbers of the public models' configuration files are written down here.
"""

import base64
import io
import json
import pathlib
import sys

SIZES = [
    (1, 1), (2, 3), (27, 28), (28, 28), (29, 57), (56, 56), (100, 19_000), (224, 224), (336, 336), (337, 335),
    (448, 448), (449, 900), (640, 480), (768, 1344), (1000, 1000), (1024, 1024), (1025, 1023), (1280, 720), (1540, 1540), (1541, 30),
    (1920, 1080), (2048, 64), (2481, 3508), (3024, 4032), (4096, 4096), (5000, 26), (8000, 6000), (10_000, 10_000), (12_345, 678), (16_384, 16_384),
]  # fmt: skip


def random_sizes(count):
    import random

    random = random.Random(7)
    for _ in range(count):
        short = random.randint(1, 3000)
        yield tuple(random.sample([short, min(20_000, random.randint(short, short * 12))], 2))


ALL = SIZES + list(random_sizes(120))


def qwen(name, patch, size=None, **old):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    kind = name.split("-")[0]
    images = {"patch_size": patch, "temporal_patch_size": 2, "merge_size": 2, **old}
    if size is not None:
        images["size"] = {"shortest_edge": size[0], "longest_edge": size[1]}
    least, most = (old["min_pixels"], old["max_pixels"]) if old else size
    unit = patch * 2

    def tokens(width, height):
        try:
            rows, columns = smart_resize(height, width, unit, least, most)
        except ValueError:
            return None
        return rows * columns // unit**2

    config = {"model_type": kind, "vision_config": {"patch_size": patch, "spatial_merge_size": 2}}
    return {"name": name, "config": config, "preprocessor": images, "processor": {}, "tokens": tokens}


def llava(name, vision, strategy="default"):
    from transformers import LlavaConfig
    from vllm.model_executor.models.vision import get_num_selected_vision_tokens, get_vision_encoder_info

    config = {"model_type": "llava", "vision_feature_select_strategy": strategy, "vision_config": vision}
    encoder = get_vision_encoder_info(LlavaConfig(**config))

    def tokens(width, height):
        seen = encoder.get_num_image_tokens(image_width=width, image_height=height)
        return get_num_selected_vision_tokens(seen, strategy)

    return {"name": name, "config": config, "preprocessor": {}, "processor": {}, "tokens": tokens}


def pixtral(name, image, patch):
    from transformers import LlavaConfig
    from vllm.model_executor.models.pixtral import PixtralHFEncoderInfo

    vision = {"model_type": "pixtral", "image_size": image, "patch_size": patch}
    config = {"model_type": "llava", "vision_feature_select_strategy": "full", "vision_config": vision}
    encoder = PixtralHFEncoderInfo(LlavaConfig(**config))
    return {"name": name, "config": config, "preprocessor": {}, "processor": {}, "tokens": rows(encoder)}


def mistral3(name, longest, patch, merge):
    from transformers import Mistral3Config
    from vllm.model_executor.models.mistral3 import Mistral3HFEncoderInfo

    vision = {"model_type": "pixtral", "image_size": longest, "patch_size": patch}
    config = {"model_type": "mistral3", "spatial_merge_size": merge, "vision_config": vision}
    encoder = Mistral3HFEncoderInfo(Mistral3Config(**config), longest)
    images = {"size": {"longest_edge": longest}, "patch_size": patch}
    return {"name": name, "config": config, "preprocessor": images, "processor": {}, "tokens": rows(encoder)}


def rows(encoder):
    def tokens(width, height):
        columns, rows = encoder.get_patch_grid_size(image_width=width, image_height=height)
        return (columns + 1) * rows if columns * rows else None

    return tokens


def internvl(name, tiles, **other):
    from vllm.transformers_utils.processors import internvl

    config = {
        "model_type": "internvl_chat", "downsample_ratio": 0.5, "dynamic_image_size": True, "use_thumbnail": True,
        "min_dynamic_patch": 1, "max_dynamic_patch": tiles, "vision_config": {"image_size": 448, "patch_size": 14}, **other,
    }  # fmt: skip
    thumbnail = config["use_thumbnail"]
    fewest, most = internvl.resolve_internvl_min_max_num(
        min_dynamic_patch=config["min_dynamic_patch"], max_dynamic_patch=tiles,
        dynamic_image_size=config["dynamic_image_size"], use_thumbnail=False,
    )  # fmt: skip
    ratios = internvl.get_internvl_target_ratios(fewest, most)

    def tokens(width, height):
        blocks, _, _ = internvl.calculate_internvl_targets(
            orig_width=width, orig_height=height, target_ratios=ratios, image_size=448, use_thumbnail=thumbnail,
        )  # fmt: skip
        return blocks * int((448 // 14) ** 2 * 0.5**2)

    return {"name": name, "config": config, "preprocessor": {}, "processor": {}, "tokens": tokens}


def gemma3(name):
    return {"name": name, "config": {"model_type": "gemma3", "mm_tokens_per_image": 256}, "preprocessor": {"do_pan_and_scan": None},
            "processor": {"image_seq_length": 256}, "tokens": lambda width, height: 256}  # fmt: skip


CLIP = {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}
SIGLIP = {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14}


def families():
    return [
        qwen("qwen2_vl-7b", 14, min_pixels=3136, max_pixels=12_845_056),
        qwen("qwen2_5_vl-7b", 14, min_pixels=3136, max_pixels=12_845_056),
        qwen("qwen2_5_vl-narrowed", 14, min_pixels=200_704, max_pixels=1_003_520),
        qwen("qwen3_vl-8b", 16, (65_536, 16_777_216)),
        llava("llava-1.5-7b", CLIP),
        llava("llava-siglip", SIGLIP, "full"),
        gemma3("gemma-3-4b"),
        pixtral("pixtral-12b", 1024, 16),
        mistral3("mistral-small-3.1", 1540, 14, 2),
        internvl("internvl2_5-8b", 12),
        internvl("internvl-still", 6, dynamic_image_size=False),
        internvl("internvl-no-overview", 6, use_thumbnail=False),
    ]


def files():
    """Small files of every format, plain and odd, with the size after the turn that a
    camera noted, or before it where the note is one the gateway does not read."""
    from PIL import Image, ImageOps

    def encoded(kind, size, **options):
        out = io.BytesIO()
        image = Image.new("P" if kind == "GIF" else "RGB", size)
        image.save(out, kind, **options)
        return out.getvalue()

    turned, upside_down, untold = Image.Exif(), Image.Exif(), Image.Exif()
    turned[0x0112], upside_down[0x0112], untold[0x0131] = 6, 3, "software"
    made = [
        ("png", encoded("PNG", (640, 480)), False),
        ("png-noted", encoded("PNG", (30, 20), exif=turned), True),
        ("jpeg", encoded("JPEG", (641, 479)), False),
        ("jpeg-progressive", encoded("JPEG", (33, 65), progressive=True), False),
        ("jpeg-turned", encoded("JPEG", (40, 20), exif=turned), False),
        ("jpeg-upside-down", encoded("JPEG", (41, 20), exif=upside_down), False),
        ("jpeg-untold", encoded("JPEG", (42, 20), exif=untold), False),
        ("jpeg-two-notes", encoded("JPEG", (43, 20), exif=turned, xmp=b"<x/>"), True),
        ("gif", encoded("GIF", (320, 200)), False),
        ("bmp", encoded("BMP", (17, 9)), False),
        ("webp", encoded("WEBP", (300, 111)), False),
        ("webp-lossless", encoded("WEBP", (299, 112), lossless=True), False),
        ("webp-noted", encoded("WEBP", (50, 60), exif=turned), True),
    ]
    for name, data, noted in made:
        with Image.open(io.BytesIO(data)) as image:
            image = image if noted else ImageOps.exif_transpose(image)
            yield {"name": name, "base64": base64.b64encode(data).decode(), "size": list(image.size), "noted": noted}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_media.py OUT.json")
    found = []
    for family in families():
        tokens = family.pop("tokens")
        sizes = [[width, height, tokens(width, height)] for width, height in ALL]
        found.append({**family, "sizes": sizes})
        print(family["name"], max(count or 0 for _, _, count in sizes))
    lines = [json.dumps(one, separators=(",", ":")) for one in found]
    images = [json.dumps(one, separators=(",", ":")) for one in files()]
    text = '{"families":[\n' + ",\n".join(lines) + '\n],"files":[\n' + ",\n".join(images) + "\n]}\n"
    pathlib.Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
