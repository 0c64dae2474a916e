"""Adapted rows of the base, computed a block at a time: what a merge writes in the place of its bytes."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from core.shards import TensorInfo
from quant import lora
from quant.merging import formulas
from quant.merging.ops import Op
from quant.merging.stream import ended
from quant.merging.weights import Region

if TYPE_CHECKING:
    import torch

TRAIN_AGAIN = "train the adapter again, at a lower learning rate"
BLOCK = 1 << 17  # elements of W merged at once; the C library keeps a few blocks more for each worker


class Loaded:
    """The parts of the operation in use; those of a shard's operations hardly ever alternate."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._parts: dict[str, formulas.Parts] = {}

    def of(self, op: Op) -> formulas.Parts:
        """The tensors of `op.parts`, from memory or the disk."""
        if op.name not in self._parts:
            while len(self._parts) >= self._most:
                del self._parts[next(iter(self._parts))]
            self._parts[op.name] = {part: lora.load(info) for part, info in op.parts.items()}
        return self._parts[op.name]


@dataclass(frozen=True)
class Block:
    """Some rows of W before and after."""

    original: bytes
    merged: bytearray
    weight: "torch.Tensor"
    """A view of `merged`, [rows, columns] in W's dtype."""
    added: "torch.Tensor"
    """The change before it was rounded to W's dtype."""

    def before(self) -> "torch.Tensor":
        """W itself, as `weight`."""
        import torch

        return torch.frombuffer(bytearray(self.original), dtype=self.weight.dtype).view(self.weight.shape)


def merge(op: Op, parts: formulas.Parts, region: Region, first: int = 0, count: int = -1) -> Iterator[Block]:
    """Rows of `region` with `op` applied, block by block: `count` from row `first` on, or all that follow.

    UserError on a change that is not finite, and where the base ends early.
    """
    for at in cut(region.at, first, count, whole=not formulas.row_by_row(op)):
        original = read(at)
        merged = bytearray(original)
        weight = lora.as_tensor(at, merged)
        start = (at.start - region.at.start) // ((at.stop - at.start) // at.shape[0])
        added = formulas.merge_rows(op, parts, weight, region, start)
        if not (_finite(added) and _finite(weight)):
            file = next(iter(op.parts.values())).file
            raise UserError(f"{file}: the change of {op.name} is not finite: {TRAIN_AGAIN}")
        yield Block(original, merged, weight, added)


def cut(at: TensorInfo, first: int = 0, count: int = -1, *, whole: bool = False) -> Iterator[TensorInfo]:
    """A tensor's rows in blocks of at most BLOCK elements: `count` from `first` on (-1: all that follow)."""
    rows = at.shape[0] - first if count < 0 else count
    step = rows if whole else max(1, BLOCK // math.prod(at.shape[1:]))
    size = (at.stop - at.start) // max(1, at.shape[0])
    for start in range(first, first + rows, max(1, step)):
        taken = min(step, first + rows - start)
        begin = at.start + start * size
        yield replace(at, shape=(taken, *at.shape[1:]), start=begin, stop=begin + taken * size)


def read(info: TensorInfo) -> bytes:
    """The bytes of a tensor or of some of its rows; UserError where the file ends before."""
    with info.file.open("rb") as file:
        found = os.pread(file.fileno(), info.stop - info.start, info.start)
        while len(found) < info.stop - info.start:
            more = os.pread(file.fileno(), info.stop - info.start - len(found), info.start + len(found))
            if not more:
                raise ended(Path(info.file), info.start + len(found))
            found += more
    return found


def square(tensor: "torch.Tensor") -> float:
    """The sum of the squares, in float32."""
    import torch

    return torch.linalg.vector_norm(tensor, dtype=torch.float32).item() ** 2


def _finite(tensor: "torch.Tensor") -> bool:
    """Whether the sum of squares is finite, at a fifth of the time of asking every value.

    Values beyond 1e19 fail as well: no layer computes with them.
    """
    return math.isfinite(square(tensor))
