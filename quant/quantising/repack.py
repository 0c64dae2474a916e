"""A touched group with the adapter applied, block by block: its global scale, then the bytes it becomes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core.progress import Progress
from core.shards import TensorInfo
from quant import lora, merge
from quant.merging import rows
from quant.merging.stream import Made, Piece
from quant.quantising import pack
from quant.quantising.touched import Group, Matrix, Tuned

if TYPE_CHECKING:
    import torch

GROUPS_A_JOB = 64


@dataclass(frozen=True)
class Scales:
    """The global scale of a group as the base's weights give it, and as the merged ones do."""

    base: float
    merged: float


def survey(groups: Sequence[Group]) -> dict[str, Scales]:
    """The global scales of every group, by the module of each of its matrices."""
    progress = Progress("quantize: groups surveyed", len(groups))
    jobs = [groups[start : start + GROUPS_A_JOB] for start in range(0, len(groups), GROUPS_A_JOB)]
    if len(groups) <= GROUPS_A_JOB:
        jobs = [[group] for group in groups]
    found: dict[str, Scales] = {}
    with merge.workers() as pool:
        for job, scales in zip(jobs, pool.map(_survey, jobs), strict=True):
            for group, own in zip(job, scales, strict=True):
                found |= {matrix.module: own for matrix in group}
                progress.step()
    return found


def _survey(groups: Sequence[Group]) -> list[Scales]:
    loaded, found = rows.Loaded(2), []
    for group in groups:
        before = after = 0.0
        for matrix in group:
            for base, merged in before_and_after(matrix, loaded):
                own = pack.largest(base)
                before = max(before, own)
                after = max(after, own if merged is base else pack.largest(merged))
        found.append(Scales(pack.global_scale(before), pack.global_scale(after)))
    return found


def before_and_after(matrix: Matrix, loaded: rows.Loaded) -> Iterator[tuple["torch.Tensor", "torch.Tensor"]]:
    """The matrix in blocks of rows, in BF16: the base's and the merged one, the same where not adapted."""
    tuned = matrix.tuned
    if tuned:
        parts = loaded.of(tuned.op)
        for block in rows.merge(tuned.op, parts, tuned.region, tuned.first, tuned.count):
            yield block.before(), block.weight
        return
    for part in rows.cut(matrix.base):
        weight = lora.as_tensor(part, bytearray(rows.read(part)))
        yield weight, weight


def pieces(matrix: Matrix, scales: Scales, loaded: rows.Loaded) -> dict[TensorInfo, Piece]:
    """What takes the place of the matrix's tensors; production's input_global_scale stays."""

    def packed() -> Iterator[bytes]:
        for _, merged in before_and_after(matrix, loaded):
            yield pack.quantize(merged, scales.merged)[0].tobytes()

    def scale() -> Iterator[bytes]:
        for _, merged in before_and_after(matrix, loaded):
            yield pack.scales(merged, scales.merged).tobytes()

    def global_scale() -> Iterator[bytes]:
        yield np.float32(scales.merged).tobytes()

    whole = matrix.quantized
    return {
        whole.packed: _piece(matrix, packed),
        whole.scale: _piece(matrix, scale),
        whole.global_scale: _piece(matrix, global_scale),
    }


def merged(tuned: Tuned, loaded: rows.Loaded) -> Piece:
    """Adapted rows of a tensor that is not quantised."""

    def made() -> Iterator[bytearray]:
        for block in rows.merge(tuned.op, loaded.of(tuned.op), tuned.region, tuned.first, tuned.count):
            yield block.merged

    at = tuned.region.at
    return Piece(at.file, at.start, at.stop, made)


def weight(matrix: Matrix, loaded: rows.Loaded) -> Piece:
    """The merged matrix in BF16."""

    def merged() -> Iterator[bytes]:
        for _, after in before_and_after(matrix, loaded):
            yield _raw(after)

    return _piece(matrix, merged)


def _piece(matrix: Matrix, made: Made) -> Piece:
    return Piece(matrix.base.file, matrix.base.start, matrix.base.stop, made)


def _raw(tensor: "torch.Tensor") -> bytes:
    import torch

    return tensor.contiguous().view(torch.int16).numpy().tobytes()
