"""Adapted modules without their model: each alone under its own name, so that PEFT can wrap it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.shards import TensorInfo
from quant import lora
from quant.merging import weights

if TYPE_CHECKING:
    import torch

SAMPLES = 16
BITS = {"BF16": 8, "F16": 11, "F32": 24}
"""Significant bits of a stored value, the leading one included."""

Values = Callable[["torch.Tensor", str], "torch.Tensor"]
"""(stored tensor in float32, its dtype in the checkpoint) -> the values to build a module with."""


def as_stored(values: "torch.Tensor", dtype: str) -> "torch.Tensor":
    """The values themselves."""
    return values


def rounding_variance(values: "torch.Tensor", dtype: str) -> "torch.Tensor":
    """ulp^2 / 12 of each value: the variance of having rounded it to `dtype`."""
    import torch

    ulp = torch.ldexp(torch.ones_like(values), torch.frexp(values).exponent - BITS[dtype])
    return torch.where(values == 0, 0, ulp.square() / 12)


@dataclass(frozen=True)
class Adapted:
    """One module that the adapter changes."""

    name: str
    """As the module is called in memory."""
    parts: dict[str, dict[str, TensorInfo]]
    """Its LoRA parts (`lora.Adapter.modules`) by wrapped parameter, in the order in which PEFT wraps them;
    by `` where the module is adapted as a whole."""

    @property
    def wrapped(self) -> bool:
        """Whether PEFT wraps parameters of the module instead of the module."""
        return "" not in self.parts

    @property
    def scaled(self) -> bool:
        """Whether the adapter scales whole rows (DoRA)."""
        return "magnitude" in self.parts.get("", {})


def build(adapted: Adapted, checkpoint: Mapping[str, TensorInfo], values: Values = as_stored) -> Any:
    """The module in float32 with a checkpoint's weights; with its bias only where that is adapted too."""
    from torch import nn

    if adapted.wrapped:
        return _holder({leaf: _read(checkpoint, adapted.name, leaf, values) for leaf in adapted.parts})
    parts = adapted.parts[""]
    weight = _read(checkpoint, adapted.name, "weight", values)
    if "embedding_A" in parts:
        return nn.Embedding.from_pretrained(weight)
    bias = "bias" in parts
    if weight.dim() == 2:
        module: Any = nn.Linear(*weight.shape[::-1], bias=bias, device="meta")
    else:
        kind: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[weight.dim() - 3]
        outputs, inputs, *kernel = weight.shape
        module = kind(inputs, outputs, tuple(kernel), bias=bias, device="meta")
    module.weight = nn.Parameter(weight, requires_grad=False)
    if bias:
        module.bias = nn.Parameter(_read(checkpoint, adapted.name, "bias", values), requires_grad=False)
    return module


def _read(checkpoint: Mapping[str, TensorInfo], module: str, leaf: str, values: Values) -> "torch.Tensor":
    """A parameter in float32, stacked as in memory."""
    import torch

    weight = weights.find(checkpoint, module, leaf)
    assert weight, f"no {module}.{leaf}"
    parts = [values(lora.load(r.at).float(), r.at.dtype) for r in weight.regions]
    return torch.cat(parts).view(weight.shape) if len(parts) > 1 else parts[0].view(weight.shape)


def half_ulp(adapted: Adapted, checkpoint: Mapping[str, TensorInfo]) -> float:
    """The largest relative error of rounding to the weight's dtype: a row that is scaled by less stays."""
    weight = weights.find(checkpoint, adapted.name, "weight")
    assert weight, f"no {adapted.name}.weight"
    return 2.0 ** -BITS[weight.regions[0].at.dtype]


def place(root: Any, name: str, module: Any) -> None:
    """Hang `module` into `root` under its dotted name."""
    from torch import nn

    *parents, leaf = name.split(".")
    for parent in parents:
        if not hasattr(root, parent):
            root.add_module(parent, nn.Module())
        root = getattr(root, parent)
    root.add_module(leaf, module)


def inputs(adapted: Adapted, generator: "torch.Generator") -> Any:
    """Random inputs in the span of lora_A, of mean square 1; token ids for an embedding.

    By parameter where parameters are wrapped.
    """
    import torch

    if adapted.wrapped:
        return {leaf: _in_span(lora.load(parts["A"]), generator) for leaf, parts in adapted.parts.items()}
    parts = adapted.parts[""]
    if "embedding_A" in parts:
        return torch.randint(parts["embedding_A"].shape[1], (SAMPLES,), generator=generator)
    return _in_span(lora.load(parts["A"]), generator)


def run(module: Any, x: Any) -> dict[str, "torch.Tensor"]:
    """The outputs of a module, by wrapped parameter (`` for a module on its own)."""
    import torch

    with torch.no_grad():
        found = module(x)
    return found if isinstance(found, dict) else {"": found}


def _in_span(a: "torch.Tensor", generator: "torch.Generator") -> "torch.Tensor":
    import torch

    flat = a.float().flatten(1)
    x = torch.randn(SAMPLES, len(flat), generator=generator) @ flat
    return (x / x.square().mean().sqrt().clamp_min(1e-30)).view(SAMPLES, *a.shape[1:])


def _holder(parameters: dict[str, "torch.Tensor"]) -> Any:
    """A module that uses its parameters as the experts' does: `x[leaf]` times every matrix of `leaf`."""
    import torch
    from torch import nn

    class Holder(nn.Module):
        def forward(self, x: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {
                leaf: torch.einsum("ni,...oi->n...o", x[leaf], getattr(self, leaf)) for leaf in parameters
            }

    holder = Holder()
    for leaf, values in parameters.items():
        holder.register_parameter(leaf, nn.Parameter(values, requires_grad=False))
    return holder
