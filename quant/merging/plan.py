"""From an adapter's and a base's headers to the operations of a merge, checked before a byte is written."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from core.errors import UserError
from core.shards import TensorInfo
from quant.lora import CONFIG, DTYPES, EMBEDDINGS, MEND, WRAPPERS, Adapter
from quant.merging import complete, layout
from quant.merging.ops import Op
from quant.merging.weights import Region, Weight, find

OTHER_BASE = "an adapter merges into the base it was trained on"


def make(adapter: Adapter, base: Mapping[str, TensorInfo]) -> list[Op]:
    """What merging `adapter` does to the tensors of `base`.

    Every tensor of the adapter belongs to exactly one operation, its shapes fit, and no two operations
    change the same bytes. Raises UserError naming the first that does not, an adapter that lacks modules
    of those that its configuration promises, and stacked experts whose layout cannot be told.
    """
    ops = []
    for key, parts in adapter.modules.items():
        module = WRAPPERS.sub("", key)
        op = _lora_op(adapter, module, parts, base)
        ops.append(op)
        if "bias" in parts:
            ops.append(_bias_op(adapter, module, parts, base))
    for parameter, value in adapter.whole.items():
        ops.append(_whole_op(parameter, value, base))
    for parameter, copy in adapter.copies.items():
        _copy_of(parameter, copy, adapter, base)
    _check_disjoint(ops)
    _check_untied(ops, base)
    complete.check(adapter, [op.name for op in ops if op.kind not in ("bias", "whole")], base)
    return layout.settle(adapter, ops)


def _lora_op(
    adapter: Adapter, module: str, parts: dict[str, TensorInfo], base: Mapping[str, TensorInfo]
) -> Op:
    wrapped = adapter.wrapped_parameters(module)
    found = [(leaf, find(base, module, leaf)) for leaf in wrapped or ["weight"]]
    weights = [(leaf, weight) for leaf, weight in found if weight]
    first = next(iter(parts.values()))
    if not weights:
        raise UserError(f"{first.file}: {first.name} has no weight in the base; {OTHER_BASE}")
    parts = {part: info for part, info in parts.items() if part != "bias"}
    ops = []
    for leaf, weight in weights:
        name = f"{module}.{leaf}" if wrapped else module
        kind = _kind(parts, weight, bool(wrapped))
        if _fits(kind, weight.shape, parts, adapter.rank(name)):
            scaling = adapter.scaling(name)
            regions = weight.regions
            if kind == "conv":
                regions = _whole_regions(weight)
            ops.append(
                Op(
                    kind=kind,
                    name=weight.name,
                    shape=weight.shape,
                    regions=regions,
                    parts=parts,
                    scaling=scaling,
                )
            )
    if len(ops) != 1:
        seen = ", ".join(f"{weight.name} {list(weight.shape)}" for _, weight in weights)
        shapes = " and ".join(f"{info.name} {list(info.shape)}" for info in parts.values())
        raise UserError(
            f"{first.file}: {shapes} fit {len(ops)} of {seen} at the rank that {CONFIG} says, expected one;"
            f" {OTHER_BASE}"
        )
    _check_dtypes(ops[0])
    return ops[0]


def _whole_regions(weight: Weight) -> tuple[Region, ...]:
    first, last = weight.regions[0].at, weight.regions[-1].at
    return (Region(replace(first, shape=weight.shape, stop=last.stop)),)


def _kind(parts: Mapping[str, TensorInfo], weight: Weight, wrapped: bool) -> str:
    if wrapped:
        return "parameter"
    if "embedding_A" in parts:
        return "embedding"
    return "linear" if len(weight.shape) == 2 else "conv"


def _fits(kind: str, shape: tuple[int, ...], parts: Mapping[str, TensorInfo], rank: int) -> bool:
    """Whether A, B and a magnitude have the shapes that PEFT gives them for a W of `shape`."""
    shapes = {part: info.shape for part, info in parts.items()}
    wanted: dict[str, tuple[int, ...]] = {}
    magnitude: tuple[int, ...] = shape[:1]
    if kind == "embedding":
        wanted |= {"embedding_A": (rank, shape[0]), "embedding_B": (shape[-1], rank)}
        magnitude = shape[1:]
    elif kind == "conv":
        ones = (1,) * (len(shape) - 2)
        wanted |= {"A": (rank, *shape[1:]), "B": (shape[0], rank, *ones)}
        magnitude = (1, shape[0], *ones)
        if shapes["A"][1:2] != shape[1:2] and shapes["A"][2:] == shape[2:]:
            raise UserError(
                f"{parts['A'].file}: {parts['A'].name} adapts a convolution in groups: it mixes channels"
                " that the weight keeps apart, so no weight holds the sum; PEFT cannot merge it either"
            )
    else:
        experts = shape[0] if len(shape) == 3 else 1
        wanted |= {"A": (rank * experts, shape[-1]), "B": (*shape[-2:-1], rank * experts)}
    if "magnitude" in parts:
        if kind == "parameter":
            return False
        wanted["magnitude"] = magnitude
    return shapes == wanted and math.prod(shape) > 0


def _bias_op(
    adapter: Adapter, module: str, parts: dict[str, TensorInfo], base: Mapping[str, TensorInfo]
) -> Op:
    value, weight = parts["bias"], find(base, module, "bias")
    if weight is None:
        raise UserError(
            f"{value.file}: {value.name} adds a bias that the module of the base does not have, and no"
            f" checkpoint of this class could keep; PEFT cannot merge it either; {MEND}"
        )
    _check_shape(value, weight)
    op = Op(
        kind="bias",
        name=weight.name,
        shape=weight.shape,
        regions=weight.regions,
        parts={"bias": value},
        scaling=adapter.scaling(module),
    )
    _check_dtypes(op)
    return op


def _whole_op(parameter: str, value: TensorInfo, base: Mapping[str, TensorInfo]) -> Op:
    module, _, leaf = parameter.rpartition(".")
    weight = find(base, module, leaf)
    if weight is None:
        raise UserError(f"{value.file}: {value.name} has no tensor of its name in the base; {OTHER_BASE}")
    _check_shape(value, weight)
    op = Op(
        kind="whole", name=weight.name, shape=weight.shape, regions=weight.regions, parts={"value": value}
    )
    _check_dtypes(op)
    return op


def _copy_of(parameter: str, copy: TensorInfo, adapter: Adapter, base: Mapping[str, TensorInfo]) -> None:
    """A copy of a base weight is no part of the merge, but it must be one of an adapted module."""
    module, _, leaf = parameter.rpartition(".")
    weight = find(base, module, leaf)
    if module not in adapter.modules or weight is None:
        raise UserError(f"{copy.file}: {copy.name} is a copy of no weight that is adapted; {MEND}")
    _check_shape(copy, weight)


def _check_shape(value: TensorInfo, weight: Weight) -> None:
    if value.shape != weight.shape:
        raise UserError(
            f"{value.file}: {value.name} is {list(value.shape)}, in the base it is {list(weight.shape)}"
            f" ({weight.name}); {OTHER_BASE}"
        )


def _check_dtypes(op: Op) -> None:
    for info in (*op.parts.values(), *(region.at for region in op.regions)):
        if info.dtype not in DTYPES:
            seen = f"{info.file}: {info.name} is {info.dtype}"
            raise UserError(f"{seen}, expected one of {', '.join(DTYPES)}; {OTHER_BASE}")
    halves = [info for part, info in sorted(op.parts.items()) if part.endswith(("A", "B"))]
    if len({info.dtype for info in halves}) > 1:
        a, b = halves
        raise UserError(f"{a.file}: {a.name} is {a.dtype} and its lora_B {b.dtype}; {MEND}")


def _check_disjoint(ops: list[Op]) -> None:
    """No byte of the base is changed by two operations."""
    claims = sorted(
        ((region.at.file, region.at.start, region.at.stop, op) for op in ops for region in op.regions),
        key=lambda claim: claim[:3],
    )
    for (file, _, stop, one), (other_file, start, _, other) in pairwise(claims):
        if file == other_file and start < stop:
            names = " and ".join(next(iter(op.parts.values())).name for op in (one, other))
            raise UserError(
                f"{_adapter_file(one)}: {names} both change {one.name}; expected one a tensor; {MEND}"
            )


def _adapter_file(op: Op) -> Path:
    return next(iter(op.parts.values())).file


def _check_untied(ops: list[Op], base: Mapping[str, TensorInfo]) -> None:
    """Where the head is the embedding itself, changing one would change the other unasked."""
    if "lm_head.weight" in base:
        return
    for op in ops:
        if op.name.rpartition(".")[0].endswith(EMBEDDINGS[0]):
            raise UserError(
                f"{_adapter_file(op)}: {op.name} is adapted, and the base ties lm_head to it: the merge would"
                f" change both; {MEND}"
            )
