"""What of an NVFP4 checkpoint an adapter touches: whole fused groups of its matrices, and tensors in BF16.

Names are production's, bytes the base's: it keeps experts one by one where the base stacks them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.errors import UserError
from core.profile import Quant
from core.shards import TensorInfo
from quant.dequantize import GROUP, MATRIX, Quantized, quantized
from quant.merging import formulas, weights
from quant.merging.ops import Op
from quant.merging.weights import Region

OTHER_WAY = "to quantise without production's checkpoint: make quantize QUANT=full"
EXPERT = re.compile(r"\.experts\.\d+\.")


@dataclass(frozen=True)
class Tuned:
    """Rows of the base that an operation changes."""

    op: Op
    region: Region
    first: int
    """The first of them, counted from the region's own."""
    count: int


@dataclass(frozen=True)
class Matrix:
    """A quantised matrix [O, I] of production."""

    module: str
    quantized: Quantized
    base: TensorInfo
    """Where the base keeps it, in BF16."""
    tuned: Tuned | None
    """None where only a partner of its fused group is adapted."""


Group = tuple[Matrix, ...]
"""Matrices that share a global scale: those of a fused group, or a single one."""


@dataclass
class Touched:
    """What an adapter touches of a checkpoint."""

    groups: list[Group] = field(default_factory=list)
    plain: dict[TensorInfo, Tuned] = field(default_factory=dict)
    """Rows of tensors that are not quantised, by their place in the checkpoint."""


class Places:
    """Where the base keeps what an NVFP4 checkpoint holds, and what an adapter changes of it."""

    def __init__(
        self,
        production: Mapping[str, TensorInfo],
        base: Mapping[str, TensorInfo],
        ops: Sequence[Op],
        quant: Quant,
    ) -> None:
        """UserError where production does not fit the base or quantises only a part of a fused group."""
        self.base, self.quant = base, quant
        self.matrices, self.plain = _split(production)
        self._claims: dict[str, list[tuple[Op, Region]]] = {}
        for op in ops:
            for region in op.regions:
                self._claims.setdefault(region.at.name, []).append((op, region))
        for module in self.matrices:
            self._check_whole(module)

    def touched(self) -> Touched:
        """What the adapter touches; UserError where production has no place for a part of it."""
        found = Touched()
        seen: set[str] = set()
        covered = 0
        for module in self.matrices:
            at = self.located(f"{module}.weight")
            for tuned, _ in self._tuned(at) if at else ():
                covered += _bytes(tuned)
                if module not in seen:
                    seen.update(self.partners(module))
                    found.groups.append(self.group(module))
        for name, info in self.plain.items():
            at = self.located(name)
            if at is None:
                continue
            for tuned, start in self._tuned(at):
                covered += _bytes(tuned)
                _check_alike(info, at)
                place = replace(info, start=info.start + start, stop=info.start + start + _bytes(tuned))
                found.plain[place] = tuned
        for op in {op.name: op for claims in self._claims.values() for op, _ in claims}.values():
            covered -= sum(region.at.stop - region.at.start for region in op.regions)
        if covered:
            raise UserError(
                f"production: {-covered} bytes of adapted weights have no place in it; {OTHER_WAY}"
            )
        return found

    def group(self, module: str) -> Group:
        """The matrices that share a global scale with `module`, it included."""
        return tuple(self._matrix(partner) for partner in self.partners(module))

    def partners(self, module: str) -> list[str]:
        """Names of a matrix's fused group in production, in the profile's order."""
        names = fused_with(module, self.quant)
        return [name for name in names if name in self.matrices or f"{name}.weight" in self.plain]

    def located(self, name: str) -> TensorInfo | None:
        """The bytes of the base that production calls `name`; None where they do not lie together."""
        module, _, leaf = name.rpartition(".")
        weight = weights.find(self.base, module, leaf)
        if weight is None or weight.name in self.base:
            return weight and self.base[weight.name]
        return weight.regions[0].at if len(weight.regions) == 1 else None

    def _matrix(self, module: str) -> Matrix:
        whole, at = self.matrices[module], self.located(f"{module}.weight")
        if at is None or at.shape != whole.shape or at.dtype != "BF16":
            seen = f"{list(at.shape)} in {at.dtype}" if at else "not there"
            raise UserError(
                f"{whole.packed.file}: {module} is {list(whole.shape)} in NVFP4, in the base {seen}, expected"
                f" the same in BF16: is it another base's? {OTHER_WAY}"
            )
        if whole.shape[1] % GROUP:
            raise UserError(
                f"{whole.packed.file}: {module} has {whole.shape[1]} columns, expected a multiple of {GROUP}:"
                f" no kernel reads it; {OTHER_WAY}"
            )
        tuned = [tuned for tuned, _ in self._tuned(at)]
        assert len(tuned) < 2, f"{module} is changed by {len(tuned)} operations"
        return Matrix(module, whole, at, tuned[0] if tuned else None)

    def _tuned(self, at: TensorInfo) -> Iterator[tuple[Tuned, int]]:
        """What changes bytes of the base's `at`, with the place of the first of them within it."""
        for op, region in self._claims.get(at.name, ()):
            start, stop = max(at.start, region.at.start), min(at.stop, region.at.stop)
            if start >= stop:
                continue
            row = (region.at.stop - region.at.start) // region.at.shape[0]
            first, count = (start - region.at.start) // row, (stop - start) // row
            assert formulas.row_by_row(op) or count == region.at.shape[0], f"{op.name} is split"
            yield Tuned(op, region, first, count), start - at.start

    def _check_whole(self, module: str) -> None:
        for partner in self.partners(module):
            if partner not in self.matrices:
                raise UserError(
                    f"{self.matrices[module].packed.file}: {module} is quantised and {partner} of the same"
                    f" fused group is not: vLLM refuses such a checkpoint; {OTHER_WAY}"
                )


def fused_with(module: str, quant: Quant) -> list[str]:
    """The modules that share a global scale with `module`, it included, in the profile's order."""
    path = EXPERT.sub(".experts.", module)
    for group in quant.fused:
        for own in group:
            if path.endswith(f".{own}"):
                stem = module.removesuffix(own.rpartition(".")[2])
                return [stem + other.rpartition(".")[2] for other in group]
    return [module]


def _split(
    production: Mapping[str, TensorInfo],
) -> tuple[dict[str, Quantized], dict[str, TensorInfo]]:
    """Quantised matrices by module, and the other tensors by name."""
    parts: dict[str, dict[str, TensorInfo]] = {}
    plain = {}
    for name, info in production.items():
        if match := MATRIX.fullmatch(name):
            parts.setdefault(match["weight"], {})[match["part"].removeprefix("_")] = info
        elif not name.endswith(".input_global_scale"):
            plain[name] = info
    whole = {name.removesuffix(".weight"): quantized(name, found) for name, found in parts.items()}
    return whole, plain


def _check_alike(info: TensorInfo, at: TensorInfo) -> None:
    if (info.dtype, info.shape) != (at.dtype, at.shape):
        raise UserError(
            f"{info.file}: {info.name} is {info.dtype} {list(info.shape)}, in the base {at.dtype}"
            f" {list(at.shape)}: only NVFP4 and the base's own dtype are handled; {OTHER_WAY}"
        )


def _bytes(tuned: Tuned) -> int:
    at = tuned.region.at
    return (at.stop - at.start) // at.shape[0] * tuned.count
