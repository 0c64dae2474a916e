"""Whether production's checkpoint is the base in NVFP4: what it left alone has the base's bytes, and a sample
of its matrices, quantised anew from the base, has production's."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import Refused
from core.shards import TensorInfo
from quant import lora, merge
from quant.dequantize import GROUP
from quant.merging import rows
from quant.quantising import pack, repack
from quant.quantising.repack import Scales
from quant.quantising.touched import OTHER_WAY, Group, Matrix, Places, Touched

GROUPS = 6
"""Groups of each family that are quantised anew, spread over the layers."""
ROWS = 64
"""Rows compared at the beginning, in the middle and at the end of a matrix."""


@dataclass
class Findings:
    """What was compared, and what differs."""

    matrices: int = 0
    tensors: int = 0
    differing_matrices: list[str] = field(default_factory=list)
    differing_tensors: list[str] = field(default_factory=list)
    """Those that production did not quantise."""
    differing_vectors: list[str] = field(default_factory=list)
    """Those of one dimension, which is no reason to refuse: llm-compressor rounds the weights of norms, as it
    calibrates with 1 + weight (`nvfp4.quantize` undoes that). What is not tuned stays production's."""

    @property
    def same(self) -> bool:
        """Whether production is the base's in every byte that was compared."""
        return not self.differing_matrices and not self.differing_tensors

    def lines(self) -> Iterator[str]:
        """What to say of it: a line for each family of layers that differs, or that all is the same."""
        if self.same:
            yield f"provenance: {self.matrices} matrices and {self.tensors} tensors are the base's"
        for kind, total, names in (
            ("in BF16", self.tensors, self.differing_tensors),
            ("quantised", self.matrices, self.differing_matrices),
            ("vectors, as llm-compressor rounds norms; they stay", self.tensors, self.differing_vectors),
        ):
            for family, own in families(names).items():
                count = f"{len(own)} differ ({kind}, {total} compared)"
                yield f"provenance: {family}: {count}, the first {own[0]}"
        if self.differing_tensors:
            yield "provenance: production was made of another base"
        elif self.differing_matrices:
            yield "provenance: production was quantised by another recipe than ours"

    def recorded(self, *, forced: bool) -> dict[str, Any]:
        """For the manifest."""
        return {**asdict(self), "forced": forced and not self.same}


def check(places: Places, touched: Touched, scales: Mapping[str, Scales]) -> Findings:
    """Compare production with the base.

    `scales` are those of the groups that will be quantised anew: their global scales are compared all, their
    bytes as every other family's by a sample.
    """
    found = Findings()
    tuned = {at.name for at in touched.plain}
    for name, info in places.plain.items():
        at = places.located(name)
        if at is None:
            continue
        found.tensors += 1
        alike = (at.dtype, at.shape) == (info.dtype, info.shape)
        if not alike or merge.sampled(at) != merge.sampled(info):
            vector = len(info.shape) == 1 and name not in tuned
            (found.differing_vectors if vector else found.differing_tensors).append(name)
    chosen = sample(places)
    own = repack.survey([group for group in chosen if group[0].module not in scales])
    compared = {matrix.module: matrix for group in (*touched.groups, *chosen) for matrix in group}
    in_sample = {matrix.module for group in chosen for matrix in group}
    for module, matrix in compared.items():
        found.matrices += 1
        scale = (scales.get(module) or own[module]).base
        if _global_scale(matrix) != scale or (module in in_sample and not _same_rows(matrix, scale)):
            found.differing_matrices.append(module)
    return found


def require(findings: Findings, production: Path, *, force: bool) -> None:
    """Print the findings; Refused where something differs and `force` is not set."""
    lines = list(findings.lines())
    if findings.same or force:
        print(*lines, *([] if findings.same else ["provenance: FORCE=1, going on"]), sep="\n")
        return
    raise Refused(
        "\n".join(lines) + f"\nquantize: refused, {production} is not the base in NVFP4; {OTHER_WAY};"
        " to go on all the same: FORCE=1"
    )


def sample(places: Places) -> list[Group]:
    """Some groups of every family of matrices, spread over the layers and experts."""
    leaders = [module for module in places.matrices if places.partners(module)[0] == module]
    found = []
    for names in families(leaders).values():
        step = max(1, len(names) // GROUPS)
        found += [places.group(name) for name in names[::step][:GROUPS]]
    return found


def families(names: Sequence[str]) -> dict[str, list[str]]:
    """Names that differ in their numbers alone, by the last part of what they share."""
    found: dict[str, list[str]] = {}
    for name in names:
        family = re.sub(r"\.\d+(?=\.)", ".*", name).rpartition("layers.*.")[2]
        found.setdefault(family, []).append(name)
    return found


def _global_scale(matrix: Matrix) -> float:
    return float(np.frombuffer(rows.read(matrix.quantized.global_scale), np.float32)[0])


def _same_rows(matrix: Matrix, scale: float) -> bool:
    """Whether some rows of the matrix, quantised from the base, are production's bytes."""
    whole, (count, columns) = matrix.quantized, matrix.quantized.shape
    for first, taken in spread(count):
        for part in rows.cut(matrix.base, first, taken):
            weight = lora.as_tensor(part, bytearray(rows.read(part)))
            start = (part.start - matrix.base.start) // (2 * columns)
            packed, scales = pack.quantize(weight, scale)
            if packed.tobytes() != _rows_of(whole.packed, start, len(weight), columns // 2):
                return False
            if scales.tobytes() != _rows_of(whole.scale, start, len(weight), columns // GROUP):
                return False
    return True


def spread(count: int) -> list[tuple[int, int]]:
    """Which rows of `count`, and how many: ROWS at the beginning, in the middle and at the end, or all."""
    if count <= 3 * ROWS:
        return [(0, count)]
    return [(first, ROWS) for first in (0, (count - ROWS) // 2, count - ROWS)]


def _rows_of(info: TensorInfo, first: int, count: int, width: int) -> bytes:
    (part,) = rows.cut(info, first, count, whole=True)
    assert part.stop - part.start == count * width
    return rows.read(part)
