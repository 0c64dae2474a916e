"""QLoRA's base by hand (Dettmers et al. 2023, arXiv 2305.14314): linear weights in NF4, adapters beside them.

NF4 has sixteen levels, quantiles of a normal distribution scaled to [-1, 1] (the paper's appendix E). A
block of 64 weights keeps its largest absolute value as a scale, and a level's number for each weight.
"""

import importlib.util
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.minigpt.memory import NF4_BLOCK
from trainer.minigpt.model import MiniGPT

M = TypeVar("M", bound=nn.Module)
LEVELS = torch.tensor(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ]
)  # fmt: skip


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """float32 weight (out, in) -> codes (out*in/2,) uint8, two a byte, and scales (out*in/64,) float32.

    The first of two neighbours has the high four bits, as in bitsandbytes.
    """
    blocks = weight.detach().reshape(-1, NF4_BLOCK)
    scales = blocks.abs().amax(1)
    middles = (LEVELS[1:] + LEVELS[:-1]) / 2
    nearest = torch.bucketize(blocks / scales.clamp_min(1e-12)[:, None], middles)
    codes = nearest.to(torch.uint8).reshape(-1, 2)
    return codes[:, 0] << 4 | codes[:, 1], scales


def dequantize(codes: Tensor, scales: Tensor, shape: tuple[int, int]) -> Tensor:
    """The float32 weight (out, in) that codes and scales stand for."""
    nearest = torch.stack([codes >> 4, codes & 15], dim=1).reshape(-1, NF4_BLOCK)
    return (LEVELS[nearest.int()] * scales[:, None]).reshape(shape)


class NF4Linear(nn.Module):
    """A frozen linear layer whose weight is kept in NF4 and unpacked at each use; its bias stays float32."""

    codes: Tensor
    scales: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        codes, scales = quantize(linear.weight)
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)
        self.bias = nn.Parameter(linear.bias.detach().clone(), requires_grad=False)

    def weight(self) -> Tensor:
        """The unpacked weight, (out, in) float32."""
        return dequantize(self.codes, self.scales, (self.out_features, self.in_features))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return functional.linear(x, self.weight(), self.bias)


def quantize_base(model: MiniGPT) -> MiniGPT:
    """Put an NF4Linear in the place of every linear layer; in place."""
    return _replace(model, nn.Linear, NF4Linear)


def bitsandbytes_base(model: MiniGPT) -> MiniGPT:
    """The same base by bitsandbytes' own layers (`Linear4bit`), to compare with; in place."""
    from bitsandbytes.nn.modules import Linear4bit

    def make(linear: nn.Linear) -> nn.Module:
        made = Linear4bit(
            linear.in_features, linear.out_features, compute_dtype=torch.float32,
            compress_statistics=False, quant_type="nf4",
        )  # fmt: skip
        made.load_state_dict(linear.state_dict())
        return made.to("cpu").requires_grad_(False)

    return _replace(model, nn.Linear, make)


def dequantize_base(model: MiniGPT) -> MiniGPT:
    """Put float32 linear layers with the unpacked weights in the place of NF4 ones; in place."""

    def make(packed: NF4Linear) -> nn.Linear:
        linear = nn.Linear(packed.in_features, packed.out_features)
        linear.load_state_dict({"weight": packed.weight(), "bias": packed.bias})
        return linear

    return _replace(model, NF4Linear, make)


def has_bitsandbytes() -> bool:
    """Whether bitsandbytes is installed; it is not on every machine."""
    return importlib.util.find_spec("bitsandbytes") is not None


def _replace(model: MiniGPT, kind: type[M], make: Callable[[M], nn.Module]) -> MiniGPT:
    for path, module in list(model.named_modules()):
        if isinstance(module, kind):
            parent, name = path.rsplit(".", 1)
            setattr(model.get_submodule(parent), name, make(module))
    return model
