"""A checkpoint as a server wants it, and a stand-in for its NVFP4: headers and scales as llm-compressor's.

Its quantised values are zeros; what llm-compressor really writes is looked at in test_nvfp4.py.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core import shards
from quant import inspect
from tests import tiny_model

LAYERS = "model.language_model.layers"
Q = f"{LAYERS}.3.self_attn.q_proj"
BESIDE = ("tokenizer.json", "preprocessor_config.json", "video_preprocessor_config.json")
QUANTIZED = re.compile(
    r"model\..*layers\.\d+\.(self_attn|mlp\.(shared_expert|experts\.\d+))\.[a-z]+_proj\.weight"
)
Tensors = dict[str, Any]
Change = Callable[[Tensors, dict[str, Any]], Any]


def make_base(path: Path) -> Path:
    """A BF16 checkpoint with all that a server asks for, experts stacked."""
    tiny_model.make(path)
    for name in BESIDE:
        (path / name).write_text("{}", encoding="utf-8")
    edit(path, lambda _, config: config["text_config"].update(mtp_num_hidden_layers=1))
    return path


def make_nvfp4(base: Path) -> Path:
    """The stand-in for its NVFP4, beside it."""
    import torch

    path = base.with_name("nvfp4")
    shutil.copytree(base, path)

    def quantize(tensors: Tensors, config: dict[str, Any]) -> None:
        mtp = {name: tensors.pop(name) for name in list(tensors) if name.startswith("mtp.")}
        apart = tiny_model.unstack(dict(tensors))
        tensors.clear()
        ignore = ["re:^mtp.*"]
        for name, tensor in apart.items():
            if not QUANTIZED.fullmatch(name):
                tensors[name] = tensor
                ignore += [name.removesuffix(".weight")] if tensor.dim() == 2 else []
                continue
            rows, columns = tensor.shape[0], -(-tensor.shape[1] // 16) * 16
            tensors[f"{name}_packed"] = torch.zeros(rows, columns // 2, dtype=torch.uint8)
            tensors[f"{name}_scale"] = torch.zeros(rows, columns // 16).to(torch.float8_e4m3fn)
            tensors[f"{name}_global_scale"] = torch.tensor([2688.0])
            tensors[f"{name.removesuffix('weight')}input_global_scale"] = torch.tensor([96.0])
        tensors |= mtp
        groups = {"group_0": {"targets": ["Linear"], "weights": {}, "input_activations": {"num_bits": 4}}}
        config["quantization_config"] = {
            "format": "nvfp4-pack-quantized",
            "config_groups": groups,
            "ignore": ignore,
        }

    edit(path, quantize)
    return path


def edit(checkpoint: Path, change: Change) -> None:
    """Write a checkpoint anew with its tensors and config.json changed."""
    from safetensors.torch import load_file

    tensors = {n: t for file in shards.shard_files(checkpoint) for n, t in load_file(file).items()}
    config = json.loads((checkpoint / "config.json").read_text())
    change(tensors, config)
    for file in shards.shard_files(checkpoint):
        file.unlink()
    shards.write_checkpoint(checkpoint, tensors, max_shard_bytes=500_000)
    (checkpoint / "config.json").write_text(json.dumps(config))


def altered(checkpoint: Path, into: Path, change: Change) -> Path:
    """A changed copy."""
    shutil.copytree(checkpoint, into)
    edit(into, change)
    return into


def plain(tensors: Tensors, module: str, dtype: Any) -> None:
    """Put an unquantised weight in a quantised one's place."""
    import torch

    for name in [name for name in tensors if name.startswith(f"{module}.")]:
        del tensors[name]
    tensors[f"{module}.weight"] = torch.zeros(64, 64).to(dtype)


def look(checkpoint: Path | str, against: Path | str = "") -> int:
    """`make inspect`."""
    return inspect.main(
        ["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models", f"CHECKPOINT={checkpoint}", f"AGAINST={against}"]
    )
