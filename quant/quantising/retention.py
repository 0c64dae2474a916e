"""How much of a tune a checkpoint keeps: the change that its values show against the one that was trained.

For a touched matrix W with the trained change D (before any rounding) and the change C of the values that the
checkpoint holds, for NVFP4 C = Q(W + D) - Q(W): signal = <C, D> / ||D||^2, noise = ||C - D|| / ||D||, and
output = ||(C - D) x|| / ||D x|| for inputs x in the span of lora_A, where the tune speaks. NVFP4's noise is
another draw of the rounding error that production has as well, not an error on top of it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quant import merge
from quant.merging import rows
from quant.quantising import pack
from quant.quantising.provenance import families, spread
from quant.quantising.repack import Scales
from quant.quantising.touched import Group, Touched, Tuned

if TYPE_CHECKING:
    import torch

MATRICES = 12
"""Matrices of each family that are measured, spread over the layers."""
SAMPLES = 16  # inputs
NVFP4, BF16 = "nvfp4", "bf16"


@dataclass
class Sums:
    """Of some rows of some matrices; squares, so that they add."""

    projection: float = 0.0
    trained: float = 0.0
    error: float = 0.0
    output: float = 0.0
    output_error: float = 0.0
    weight: float = 0.0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def figures(self) -> dict[str, float]:
        """change ||D|| / ||W||, signal, noise and output; a change of nothing is kept whole."""
        if not self.trained:
            return {"change": 0.0, "signal": 1.0, "noise": 0.0, "output": 0.0}
        return {
            "change": math.sqrt(self.trained / (self.weight or 1.0)),
            "signal": self.projection / self.trained,
            "noise": math.sqrt(self.error / self.trained),
            "output": math.sqrt(self.output_error / (self.output or 1.0)),
        }


Table = dict[str, dict[str, Sums]]
"""By family, then by how its weights are stored: nvfp4, bf16."""


def measure(touched: Touched, scales: Mapping[str, Scales]) -> Table:
    """Measure some matrices of every touched family, as NVFP4 keeps them and as BF16 does.

    `scales` are those of `repack.survey`. What production does not quantise has a BF16 column alone.
    """
    table: Table = {}
    chosen = list(_chosen(touched, scales))
    with merge.workers() as pool:
        for (family, *_), columns in zip(
            chosen, pool.map(lambda one: _matrix(*one[1:]), chosen), strict=True
        ):
            for kind, sums in columns.items():
                column = table.setdefault(family, {})
                column[kind] = column.get(kind, Sums()) + sums
    return table


def _matrix(tuned: Tuned, scales: Scales | None) -> dict[str, Sums]:
    """Some rows of one matrix."""
    found: dict[str, Sums] = {}
    loaded = rows.Loaded()
    parts, x = loaded.of(tuned.op), _inputs(tuned, loaded)
    for first, count in spread(tuned.count):
        for block in rows.merge(tuned.op, parts, tuned.region, tuned.first + first, count):
            for kind, sums in _measure(block, scales, x).items():
                found[kind] = found.get(kind, Sums()) + sums
    return found


def recorded(table: Table) -> dict[str, dict[str, dict[str, float]]]:
    """For the manifest: figures of each family in each column."""
    return {
        family: {
            kind: {name: round(value, 5) for name, value in sums.figures().items()}
            for kind, sums in columns.items()
        }
        for family, columns in table.items()
    }


def total(columns: Iterable[Sums]) -> Sums:
    """Of several families."""
    whole = Sums()
    for sums in columns:
        whole = whole + sums
    return whole


def lines(table: Table) -> Iterator[str]:
    """A line a family."""
    for family, columns in table.items():
        shown = []
        for kind, sums in columns.items():
            found = sums.figures()
            kept = f"{kind} keeps {found['signal']:.1%}"
            shown.append(f"{kept}, noise {found['noise']:.2f}, in outputs {found['output']:.2f}")
        change = next(iter(columns.values())).figures()["change"]
        yield f"retention: {family}: change {change:.2%}; {'; '.join(shown)}"


def _chosen(touched: Touched, scales: Mapping[str, Scales]) -> Iterator[tuple[str, Tuned, Scales | None]]:
    """Family, adapted rows and global scales (None: not quantised) of what is measured."""
    found: dict[str, tuple[Tuned, Scales | None]] = {}
    for module, tuned in _tuned_matrices(touched.groups):
        found[module] = tuned, scales[module]
    for at, tuned in touched.plain.items():
        # A convolution is one whole, and a bias has no inputs.
        if tuned.op.kind in ("linear", "parameter"):
            found.setdefault(at.name.removesuffix(".weight"), (tuned, None))
    for family, names in families(list(found)).items():
        step = max(1, len(names) // MATRICES)
        for name in names[::step][:MATRICES]:
            yield family, *found[name]


def _tuned_matrices(groups: Iterable[Group]) -> Iterator[tuple[str, Tuned]]:
    for group in groups:
        for matrix in group:
            if matrix.tuned and matrix.tuned.op.kind != "bias":
                yield matrix.module, matrix.tuned


def _inputs(tuned: Tuned, loaded: rows.Loaded) -> "torch.Tensor":
    """Random inputs [SAMPLES, I] in the span of the operation's lora_A; anywhere where it has none."""
    import torch

    generator = torch.Generator().manual_seed(0)
    parts, op = loaded.of(tuned.op), tuned.op
    if "A" not in parts:
        return torch.randn(SAMPLES, op.shape[-1], generator=generator)
    a = parts["A"].float().flatten(1)
    if op.experts > 1:
        a = a.view(op.experts, -1, a.shape[-1])[tuned.region.expert]
    return torch.randn(SAMPLES, len(a), generator=generator) @ a


def _measure(block: rows.Block, scales: Scales | None, x: "torch.Tensor") -> dict[str, Sums]:
    base, merged, trained = block.before(), block.weight, block.added.float()
    changes = {BF16: merged.float() - base.float()}
    if scales:
        after = pack.dense(*pack.quantize(merged, scales.merged), scales.merged)
        changes = {NVFP4: after - pack.dense(*pack.quantize(base, scales.base), scales.base)} | changes
    weight = rows.square(base)
    return {kind: _sums(change, trained, x, weight) for kind, change in changes.items()}


def _sums(change: Any, trained: Any, x: Any, weight: float) -> Sums:
    error = change - trained
    return Sums(
        projection=(change * trained).sum().item(),
        trained=rows.square(trained),
        error=rows.square(error),
        output=rows.square(trained @ x.T),
        output_error=rows.square(error @ x.T),
        weight=weight,
    )
