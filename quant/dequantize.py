"""`make dequantize`: an NVFP4 checkpoint's values in BF16, in the base's layout, for what cannot run NVFP4.

transformers loads the NVFP4 checkpoint itself without complaint and wrongly: it leaves out the experts'
weight_global_scale (huggingface/transformers#48371).
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import artifacts, config, errors, shards
from core.errors import UserError
from core.progress import Progress
from core.settings import DequantizeSettings
from core.shards import TensorInfo
from quant import merge

if TYPE_CHECKING:
    import torch

    Read = Callable[[TensorInfo], torch.Tensor]

FORMAT = "nvfp4-pack-quantized"
GROUP = 16  # weights that share one weight_scale
SHARD_BYTES = 4_000_000_000
MATRIX = re.compile(r"(?P<weight>.+\.weight)(?P<part>_packed|_scale|_global_scale)")
EXPERT = re.compile(r"(?P<experts>.+\.experts)\.(?P<index>\d+)\.(?P<leaf>gate|up|down)_proj\.weight")
FUSED = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}
"""Projections of an expert by the fused tensor that holds them, one's rows after the other's."""


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """A matrix [O, I] in NVFP4: E2M1 values in blocks of 16 columns."""

    packed: TensorInfo
    """uint8 [O, I / 2], the even columns in the low nibbles."""
    scale: TensorInfo
    """float8_e4m3fn [O, I / 16]."""
    global_scale: TensorInfo
    """float32 [1]; the scales are divided by it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """`(O, I)`."""
        rows, half = self.packed.shape
        return rows, 2 * half


@dataclass(frozen=True, kw_only=True)
class Restored:
    """One tensor in the base's layout: `parts` one after the other, in `shape`."""

    shape: tuple[int, ...]
    parts: list[TensorInfo | Quantized]

    @property
    def untouched(self) -> TensorInfo | None:
        """The tensor of the checkpoint whose bytes this is, if it is one."""
        only = self.parts[0]
        return only if isinstance(only, TensorInfo) and only.shape == self.shape else None


def main(words: list[str]) -> int:
    """Dequantise the run's NVFP4 checkpoint; exit code 0. UserError where it is missing or damaged."""
    settings = config.parse(DequantizeSettings, words)
    source, target = settings.nvfp4_dir, settings.dequantized_dir
    inputs = {"nvfp4": artifacts.as_input(source, artifacts.require(source, "quantize"))}
    recorded = config.recorded(settings)
    if not artifacts.differences(artifacts.read_manifest(target), recorded, inputs):
        print(f"dequantize: up to date ({target})")
        return errors.DONE
    with artifacts.create(
        target,
        kind="checkpoint",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        draft.counts = dequantize(source, draft.path)
    print(f"dequantize: {draft.counts['tensors']} tensors, {draft.counts['bytes'] / 1e6:,.1f} MB in {target}")
    return errors.DONE


def dequantize(source: Path, target: Path) -> dict[str, int]:
    """Write the NVFP4 checkpoint `source` to the directory `target` in BF16; returns tensors and bytes.

    Names and shapes are those of the checkpoint that was quantised; tensors that were not keep their bytes.
    Holds one shard in memory. UserError where `source` is not NVFP4 by compressed-tensors, or damaged.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    settings = read_config(source)
    tensors = plan(shards.read_checkpoint(source))
    groups = list(_shards(tensors))
    merge.require_space(target, sum(_bytes(tensor) for tensor in tensors.values()))
    merge.copy_other_files(source, target)
    del settings["quantization_config"]
    write_config(target, settings)
    progress = Progress("dequantize: tensors", len(tensors))
    weight_map, total = {}, 0
    with ExitStack() as stack:
        opened: dict[Path, Any] = {
            file: stack.enter_context(safe_open(file, "pt")) for file in shards.shard_files(source)
        }
        for number, group in enumerate(groups, 1):
            file = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
            restored = {}
            for name in group:
                restored[name] = _value(tensors[name], lambda info: opened[info.file].get_tensor(info.name))
                total += restored[name].nbytes
                progress.step(note=name)
            save_file(restored, target / file, metadata={"format": "pt"})
            (target / file).chmod(0o644)
            weight_map |= dict.fromkeys(group, file)
    progress.close()
    shards.write_index(target, weight_map, total)
    return {"tensors": len(weight_map), "bytes": total}


def read_config(checkpoint: Path) -> dict[str, Any]:
    """The checkpoint's config.json; UserError where it does not say NVFP4 by compressed-tensors."""
    path = checkpoint / "config.json"
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        raise UserError(f"{path}: missing or broken; make quantize") from None
    seen = settings.get("quantization_config", {}).get("format")
    if seen != FORMAT:
        raise UserError(f"{path}: quantization format is {seen}, expected {FORMAT}; make quantize")
    return settings


def write_config(checkpoint: Path, settings: dict[str, Any]) -> None:
    """Write config.json as the hub's are written."""
    (checkpoint / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def plan(tensors: Mapping[str, TensorInfo]) -> dict[str, Restored]:
    """The tensors in the base's layout by name, from those of an NVFP4 checkpoint.

    UserError where a quantised matrix lacks one of its scales, or a layer one of its experts.
    """
    weights: dict[str, TensorInfo | Quantized] = {}
    quantized: dict[str, dict[str, TensorInfo]] = defaultdict(dict)
    for name, info in tensors.items():
        if match := MATRIX.fullmatch(name):
            quantized[match["weight"]][match["part"].removeprefix("_")] = info
        elif not name.endswith(".input_global_scale"):
            weights[name] = info
    for name, found in quantized.items():
        weights[name] = _quantized(name, found)

    experts: dict[str, dict[tuple[int, str], TensorInfo | Quantized]] = defaultdict(dict)
    restored = {}
    for name, weight in weights.items():
        if match := EXPERT.fullmatch(name):
            experts[match["experts"]][int(match["index"]), match["leaf"]] = weight
        else:
            restored[name] = Restored(shape=weight.shape, parts=[weight])
    for prefix, found in experts.items():
        count = 1 + max(index for index, _ in found)
        for name, leaves in FUSED.items():
            wanted = [(index, leaf) for index in range(count) for leaf in leaves]
            for index, leaf in wanted:
                if (index, leaf) not in found:
                    raise UserError(f"{prefix}.{index}.{leaf}_proj is missing; make quantize")
            parts = [found[key] for key in wanted]
            rows, columns = parts[0].shape
            restored[f"{prefix}.{name}"] = Restored(shape=(count, rows * len(leaves), columns), parts=parts)
    return restored


def dense(packed: "torch.Tensor", scale: "torch.Tensor", global_scale: "torch.Tensor") -> "torch.Tensor":
    """The matrix [O, I] in bfloat16: E2M1 value * weight_scale / weight_global_scale, rounded at the end.

    Arguments as in `Quantized`. Formula: compressed_tensors' `NVFP4PackedCompressor.decompress` (0.19).
    """
    import torch
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8

    rows, half = packed.shape
    values = unpack_fp4_from_uint8(packed, rows, 2 * half, dtype=torch.float32)
    factors = scale.float() / global_scale
    return (values.unflatten(-1, (-1, GROUP)) * factors.unsqueeze(-1)).flatten(-2).bfloat16()


def _quantized(name: str, found: dict[str, TensorInfo]) -> Quantized:
    for part in ("packed", "scale", "global_scale"):
        if part not in found:
            raise UserError(f"{name}_{part} is missing; make quantize")
    whole = Quantized(**found)
    if whole.scale.shape != (whole.shape[0], whole.shape[1] // GROUP):
        raise UserError(
            f"{name}_scale is {list(whole.scale.shape)}, not one a {GROUP} columns; make quantize"
        )
    return whole


def _value(tensor: Restored, read: "Read") -> "torch.Tensor":
    import torch

    parts = [
        read(part)
        if isinstance(part, TensorInfo)
        else dense(read(part.packed), read(part.scale), read(part.global_scale))
        for part in tensor.parts
    ]
    return (torch.cat(parts) if len(parts) > 1 else parts[0]).view(tensor.shape)


def _shards(tensors: Mapping[str, Restored]) -> Iterator[list[str]]:
    """Names of the tensors of each shard."""
    group: list[str] = []
    filled = 0
    for name, tensor in tensors.items():
        size = _bytes(tensor)
        if group and filled + size > SHARD_BYTES:
            yield group
            group, filled = [], 0
        group.append(name)
        filled += size
    yield group


def _bytes(tensor: Restored) -> int:
    kept = tensor.untouched
    return kept.stop - kept.start if kept else 2 * math.prod(tensor.shape)


if __name__ == "__main__":
    errors.run(main)
