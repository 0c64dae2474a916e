"""PEFT's arithmetic of a merge, rounding included: bit-identical to `merge_and_unload` on a CPU.

From `get_delta_weight` and `merge` of Linear, Embedding, _ConvNd and ParamWrapper in PEFT's
tuners/lora/layer.py and the DoRA variants in tuners/lora/variants.py (0.21), for an adapter in the dtype in
which it is stored (`autocast_adapter_dtype=False`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quant.merging.ops import Op
from quant.merging.weights import Region

if TYPE_CHECKING:
    import torch

Parts = Mapping[str, "torch.Tensor"]
"""The tensors of `Op.parts`."""


def row_by_row(op: Op) -> bool:
    """Whether some rows of W can be merged without the others."""
    return not (op.kind == "conv" or (op.kind == "embedding" and "magnitude" in op.parts))


def merge_rows(op: Op, parts: Parts, weight: "torch.Tensor", region: Region, start: int) -> "torch.Tensor":
    """Change `weight` in place, rows of W from the region's row `start` on; return what was added to it.

    `weight` has W's dtype, [rows, columns] or [rows]; all of W where not `row_by_row`. The result is that
    change before it was rounded to W's dtype. A change of zero leaves W's very bits (adding +0 to a weight
    of -0 would not).
    """
    first = region.row + start
    rows = slice(first, first + len(weight))
    if op.kind == "whole":
        value = parts["value"] if len(op.shape) < 3 else parts["value"][region.expert]
        return _replace(weight, value[rows])
    if op.kind == "bias":
        change = parts["bias"][rows] * op.scaling
    elif op.kind == "conv":
        change = _conv(op, parts["A"], parts["B"])
    elif op.kind == "embedding":
        change = _product(parts["embedding_B"], parts["embedding_A"][:, rows], op.scaling).T
    elif op.experts > 1:
        change = (
            _own_b(op, parts["B"], region.expert)[rows] @ _own_a(op, parts["A"], region.expert) * op.scaling
        )
    else:
        change = _product(parts["B"][rows], parts["A"], op.scaling)
    if "magnitude" in parts:
        return _dora(op, weight, change, parts["magnitude"], rows)
    if op.kind in ("parameter", "embedding"):
        change = change.to(weight.dtype)
    if change.count_nonzero():
        weight += change  # in place: the sum with a change in fp32 is rounded once
    return change


def _product(b: "torch.Tensor", a: "torch.Tensor", scaling: float) -> "torch.Tensor":
    """scaling * B @ A in B's dtype; computed in fp32, as 16-bit products are on a CPU."""
    return (b.float() @ a.float() * scaling).to(b.dtype)


def _own_a(op: Op, a: "torch.Tensor", expert: int) -> "torch.Tensor":
    """lora_A [E * R, I] keeps the experts one after the other."""
    return a.view(op.experts, -1, a.shape[-1])[expert]


def _own_b(op: Op, b: "torch.Tensor", expert: int) -> "torch.Tensor":
    """lora_B [O, R * E] interleaves the experts within each rank, unless it is `grouped`."""
    if op.grouped:
        return b.view(len(b), op.experts, -1)[:, expert]
    return b.view(len(b), -1, op.experts)[:, :, expert]


def _conv(op: Op, a: "torch.Tensor", b: "torch.Tensor") -> "torch.Tensor":
    """The change [O, I, *kernel] of a convolution: A's kernel, mixed by B's 1x1 one."""
    import torch.nn.functional as F

    dtype, a, b = a.dtype, a.float(), b.float()
    if op.shape[2:] == (1, 1):
        change = (b[:, :, 0, 0] @ a[:, :, 0, 0])[:, :, None, None] * op.scaling
    else:
        conv: Any = (F.conv1d, F.conv2d, F.conv3d)[len(op.shape) - 3]
        change = conv(a.transpose(0, 1), b).transpose(0, 1) * op.scaling
    return change.to(dtype)


def _dora(
    op: Op, weight: "torch.Tensor", change: "torch.Tensor", magnitude: "torch.Tensor", rows: slice
) -> "torch.Tensor":
    """W' = m / ||W + D|| * (W + D), the norm taken over what feeds one output (arXiv 2402.09353, eq. 5)."""
    import torch

    moved = weight + change
    if op.kind == "conv":
        norm = moved.norm(p=2, dim=tuple(range(1, moved.dim())), keepdim=True).transpose(1, 0)
        factor = (magnitude / norm).view(-1, *[1] * (moved.dim() - 1))
    elif op.kind == "embedding":
        norm = torch.linalg.norm(weight.T + change.T, dim=1).to(moved.dtype)
        factor = (magnitude / norm).view(1, -1)
    else:
        factor = (magnitude[rows] / torch.linalg.norm(moved, dim=1).to(moved.dtype)).view(-1, 1)
    scaled = factor * moved
    if not change.count_nonzero() and bool((factor == 1).all()):
        return change
    added = scaled - weight
    weight.copy_(scaled)
    return added


def _replace(weight: "torch.Tensor", value: "torch.Tensor") -> "torch.Tensor":
    added = value.float() - weight.float()
    weight.copy_(value)
    return added
