"""`make dequantize`: an NVFP4 checkpoint's values in BF16, in the base's layout, for what cannot run NVFP4.

transformers loads the NVFP4 checkpoint itself without complaint and wrongly: it leaves out the experts'
weight_global_scale (huggingface/transformers#48371).
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core import artifacts, config, errors, shards
from core.artifacts import Draft
from core.errors import UserError
from core.progress import Progress
from core.settings import DequantizeSettings
from core.shards import TensorInfo
from quant import merge
from quant.merging import stream
from quant.merging.stream import Piece
from quant.quantising import pack
from quant.quantising.pack import GROUP

FORMAT = "nvfp4-pack-quantized"
SHARD_BYTES = 4_000_000_000
ROWS = 512  # of a matrix, in memory at once
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
        resume=True,
    ) as draft:
        dequantize(source, draft)
    print(f"dequantize: {draft.counts['tensors']} tensors, {draft.counts['bytes'] / 1e6:,.1f} MB in {target}")
    return errors.DONE


def dequantize(source: Path, draft: Draft) -> None:
    """Write the NVFP4 checkpoint `source` into `draft` in BF16, and the counts: tensors, bytes.

    Names and shapes are those of the checkpoint that was quantised, its experts stacked; what was not
    quantised keeps its bytes. Goes on from the shards that an interrupted run finished; holds some rows of
    a matrix in memory. UserError where `source` is not NVFP4 by compressed-tensors, or damaged.
    """
    settings = read_config(source)
    tensors = plan(shards.read_checkpoint(source))
    groups = list(_shards(tensors))
    files = {f"model-{n:05d}-of-{len(groups):05d}.safetensors": group for n, group in enumerate(groups, 1)}
    left = {file: group for file, group in files.items() if file not in draft.finished}
    total = sum(_bytes(tensors[name]) for group in left.values() for name in group)
    merge.require_space(draft.path, total)
    merge.copy_other_files(source, draft.path)
    del settings["quantization_config"]
    write_config(draft.path, settings)
    progress, done = Progress("dequantize: MB", round(total / 1e6)), 0

    def passed(count: int) -> None:
        nonlocal done
        done += count
        progress.step(round(done / 1e6) - progress.done)

    for file, group in left.items():
        draft.finish(file, stream.write_shard(draft.path / file, _pieces(tensors, group), passed))
    progress.close()
    size = sum(map(_bytes, tensors.values()))
    shards.write_index(draft.path, {name: file for file, group in files.items() for name in group}, size)
    draft.counts = {"tensors": len(tensors), "bytes": size}


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
    matrices: dict[str, dict[str, TensorInfo]] = defaultdict(dict)
    for name, info in tensors.items():
        if match := MATRIX.fullmatch(name):
            matrices[match["weight"]][match["part"].removeprefix("_")] = info
        elif not name.endswith(".input_global_scale"):
            weights[name] = info
    for name, found in matrices.items():
        weights[name] = quantized(name, found)

    experts: dict[str, dict[tuple[int, str], TensorInfo | Quantized]] = defaultdict(dict)
    restored = {}
    for name, weight in weights.items():
        if match := EXPERT.fullmatch(name):
            experts[match["experts"]][int(match["index"]), match["leaf"]] = weight
        else:
            restored[name] = Restored(shape=weight.shape, parts=[weight])
    for prefix, found in experts.items():
        if not any(isinstance(weight, Quantized) for weight in found.values()):
            for index, leaf in found:  # the MTP head of a base that keeps its experts one by one
                name = f"{prefix}.{index}.{leaf}_proj.weight"
                restored[name] = Restored(shape=weights[name].shape, parts=[weights[name]])
            continue
        count = 1 + max(index for index, _ in found)
        for name, leaves in FUSED.items():
            wanted = [(index, leaf) for index in range(count) for leaf in leaves]
            for index, leaf in wanted:
                if (index, leaf) not in found:
                    raise UserError(f"{prefix}.{index}.{leaf}_proj is missing; make quantize")
            parts = [found[key] for key in wanted]
            for part in parts:
                if isinstance(part, TensorInfo) and part.dtype != "BF16":
                    raise UserError(f"{part.name} is {part.dtype} beside experts in NVFP4; make quantize")
            rows, columns = parts[0].shape
            restored[f"{prefix}.{name}"] = Restored(shape=(count, rows * len(leaves), columns), parts=parts)
    return restored


def quantized(name: str, found: Mapping[str, TensorInfo]) -> Quantized:
    """The matrix whose weight is `name` from its parts; UserError where one is missing or does not fit."""
    for part in ("packed", "scale", "global_scale"):
        if part not in found:
            raise UserError(f"{name}_{part} is missing; make quantize")
    whole = Quantized(**found)
    if whole.scale.shape != (whole.shape[0], whole.shape[1] // GROUP):
        raise UserError(
            f"{name}_scale is {list(whole.scale.shape)}, not one a {GROUP} columns; make quantize"
        )
    return whole


def _pieces(tensors: Mapping[str, Restored], group: Sequence[str]) -> Iterator[Piece]:
    """A shard with the tensors of `group`: its header, what is copied, what is computed."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in group:
        tensor, kept = tensors[name], tensors[name].untouched
        end, dtype = offset + _bytes(tensor), kept.dtype if kept else "BF16"
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [part for name in group for part in tensors[name].parts]
    first = parts[0] if isinstance(parts[0], TensorInfo) else parts[0].packed
    yield Piece(first.file, first.start, first.start, lambda: iter([len(text).to_bytes(8, "little") + text]))
    for part in parts:
        if isinstance(part, TensorInfo):
            yield Piece(part.file, part.start, part.stop)
        else:
            yield Piece(part.packed.file, part.packed.start, part.packed.stop, partial(_values, part))


def _values(matrix: Quantized) -> Iterator[bytes]:
    """The bytes of a matrix in BF16, some rows at a time: its values, rounded at the end."""
    import numpy as np
    import torch

    packed, scale = (
        np.frombuffer(bytearray(shards.read_bytes(info)), np.uint8).reshape(info.shape)
        for info in (matrix.packed, matrix.scale)
    )
    global_scale = float(np.frombuffer(shards.read_bytes(matrix.global_scale), "<f4")[0])
    for start in range(0, len(packed), ROWS):
        rows = slice(start, start + ROWS)
        yield (
            pack.dense(packed[rows], scale[rows], global_scale).bfloat16().view(torch.uint8).numpy().tobytes()
        )


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
