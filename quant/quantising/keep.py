"""KEEP_TUNED=bf16: touched groups leave NVFP4 whole and stay as merged, in BF16, on the ignore list.

Whole, because vLLM refuses a fused group (q/k/v; gate/up) of which one part is quantised and another is not.
Routed experts stay in NVFP4: a layer's experts are one kernel's, and in BF16 they would be most of the model.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import shards
from core.shards import ITEM_BYTES, TensorInfo
from quant import dequantize
from quant.merging.stream import Piece
from quant.quantising.touched import EXPERT, Group, Matrix

PARTS = ("weight_packed", "weight_scale", "weight_global_scale", "input_global_scale")


def kept(groups: Sequence[Group]) -> list[Group]:
    """Those of the touched groups that KEEP_TUNED keeps in BF16."""
    return [group for group in groups if not EXPERT.search(group[0].module)]


@dataclass(frozen=True)
class _Entry:
    """One tensor of the new shard."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


def relaid(
    tensors: Sequence[TensorInfo],
    kept: dict[str, Matrix],
    weight: Callable[[Matrix], Piece],
    patches: dict[TensorInfo, Piece],
) -> list[Piece]:
    """A shard of `tensors` with those of the `kept` modules replaced by their weights, and `patches` in it.

    Larger items come first, as safetensors writes them: so each lies at a multiple of its size.
    """
    entries = []
    for info in tensors:
        module, _, leaf = info.name.rpartition(".")
        if module not in kept or leaf not in PARTS:
            entries.append(_Entry(info.name, info.dtype, info.shape, tuple(_patched(info, patches))))
        elif leaf == PARTS[0]:
            matrix = kept[module]
            shape = matrix.quantized.shape
            entries.append(_Entry(f"{module}.weight", "BF16", shape, (weight(matrix),)))
    entries.sort(key=lambda entry: (-ITEM_BYTES[entry.dtype], entry.name))
    header = _header(entries)
    first = Piece(tensors[0].file, 0, 0, lambda: iter([header]))
    return [first, *(piece for entry in entries for piece in entry.pieces)]


def _patched(info: TensorInfo, patches: dict[TensorInfo, Piece]) -> Iterator[Piece]:
    position = info.start
    inside = (at for at in patches if at.file == info.file and info.start <= at.start < info.stop)
    for at in sorted(inside, key=lambda at: at.start):
        yield Piece(info.file, position, at.start)
        yield patches[at]
        position = at.stop
    yield Piece(info.file, position, info.stop)


def _header(entries: Sequence[_Entry]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for entry in entries:
        size = ITEM_BYTES[entry.dtype] * math.prod(entry.shape)
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": entry.shape,
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def ignore(checkpoint: Path, modules: Sequence[str]) -> None:
    """Put `modules` on the ignore list in the checkpoint's config.json, and its tensors into the index."""
    settings = dequantize.read_config(checkpoint)
    quantization = settings["quantization_config"]
    quantization["ignore"] = [*quantization["ignore"], *modules]
    dequantize.write_config(checkpoint, settings)
    if not (checkpoint / shards.INDEX).exists():
        return
    files = shards.shard_files(checkpoint)
    tensors = [info for file in files for info in shards.read_header(file).values()]
    total = sum(info.stop - info.start for info in tensors)
    shards.write_index(checkpoint, {info.name: info.file.name for info in tensors}, total)
