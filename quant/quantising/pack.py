"""BF16 weights -> NVFP4, bit-identical to compressed-tensors (0.19) and many times as fast: by lookups.

The library computes, for each 16 columns of a row, an FP8 scale from their largest magnitude, divides the
values by it and rounds the quotients to E2M1 (`calculate_qparams`, `_quantize`, `cast_to_fp4`,
`pack_fp4_to_uint8`; NVIDIA, "Pretraining LLMs with NVFP4", arXiv 2509.25149). But a BF16 magnitude is one of
32768 bit patterns, which have the order of their values, and a scale is one of 127: for one global scale two
small tables say which scale a magnitude gets, and from which pattern on a quotient rounds to the next value.
"""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    Array = np.ndarray[Any, Any]

GROUP = 16  # columns that share a scale
MOST = 448.0 * 6.0
"""The largest product of an FP8 (E4M3) scale and an E2M1 value."""
MAGNITUDE, INFINITE = np.int16(0x7FFF), 0x7F80
BLOCK = 1 << 16  # weights quantised at once: they and what is computed of them stay in the cache
STEPS = ((0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True), (5.0, False))
"""Where E2M1 rounds up to its next value, and whether the middle itself does: ties go to the even code."""

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
PAIRS = np.stack([np.tile(E2M1, 16), np.repeat(E2M1, 16)], -1).view(np.complex64)[:, 0]
"""The two values of each byte, the low nibble's first."""


def global_scale(magnitude: float) -> float:
    """weight_global_scale of matrices whose largest |weight|, a BF16 value, is `magnitude`.

    compressed-tensors' `generate_gparam`: 2688 / magnitude, rounded to BF16; 1 for a matrix of zeros.
    """
    import torch

    found = MOST / torch.tensor([magnitude], dtype=torch.bfloat16).clamp_min(torch.finfo(torch.bfloat16).tiny)
    return torch.nan_to_num(found, nan=1.0, posinf=1.0).item()


def largest(weight: "torch.Tensor") -> float:
    """The largest magnitude of a bfloat16 tensor."""
    import torch

    bits = int(np.max(_bits(weight) & MAGNITUDE))
    return torch.tensor(bits, dtype=torch.int16).view(torch.bfloat16).item()


def scales(weight: "torch.Tensor", global_scale: float) -> "Array":
    """weight_scale [O, I / 16] of a bfloat16 `weight` [O, I], FP8 (E4M3) as bytes."""
    table, _ = _tables(global_scale)
    rows, columns = weight.shape
    found = [table[np.max(_columns(part) & MAGNITUDE, axis=0)] for part in _parts(weight)]
    return np.concatenate(found).reshape(rows, columns // GROUP)


def quantize(weight: "torch.Tensor", global_scale: float) -> tuple["Array", "Array"]:
    """weight_packed [O, I / 2] and weight_scale [O, I / 16] as bytes, of a bfloat16 `weight` [O, I].

    I is a multiple of 16; the values are finite. The even columns lie in the low nibbles.
    """
    table, steps = _tables(global_scale)
    rows, columns = weight.shape
    packed = np.empty((rows * columns // GROUP, GROUP // 2), np.uint8)
    scale = np.empty(rows * columns // GROUP, np.uint8)
    done = 0
    for part in _parts(weight):
        values = _columns(part)
        magnitudes = values & MAGNITUDE
        own = slice(done, done + values.shape[1])
        scale[own] = chosen = table[np.max(magnitudes, axis=0)]
        # A negative value keeps its sign when it is rounded to 0; -0 has none.
        codes = ((values < 0) & (magnitudes >= steps[0].take(chosen))).view(np.uint8) << 3
        for step in steps[1:]:
            codes += (magnitudes >= step.take(chosen)).view(np.uint8)
        packed[own] = (codes[0::2] | codes[1::2] << 4).T
        done = own.stop
    return packed.reshape(rows, columns // 2), scale.reshape(rows, columns // GROUP)


def dense(packed: "Array", scale: "Array", global_scale: float) -> "torch.Tensor":
    """The values [O, I] of quantised weights in float32: E2M1 * scale / global scale."""
    import torch

    # Both values of a byte are taken at once, as one item of eight bytes.
    values = torch.from_numpy(PAIRS.take(packed).view(np.float32)).unflatten(-1, (-1, GROUP))
    factors = torch.from_numpy(scale).view(torch.float8_e4m3fn).float() / global_scale
    return values.mul_(factors.unsqueeze(-1)).flatten(-2)


def _parts(weight: "torch.Tensor") -> Iterator["Array"]:
    """Bit patterns of the weights, block by block: [n, 16]."""
    bits = _bits(weight).reshape(-1, GROUP)
    for start in range(0, len(bits), BLOCK // GROUP):
        yield bits[start : start + BLOCK // GROUP]


def _columns(part: "Array") -> "Array":
    """[16, n]: with the groups side by side, each step of the arithmetic runs over long rows."""
    return np.ascontiguousarray(part.T)


def _bits(weight: "torch.Tensor") -> "Array":
    import torch

    assert weight.dtype == torch.bfloat16
    return weight.contiguous().view(torch.int16).numpy()


@functools.lru_cache(maxsize=16)
def _tables(global_scale: float) -> tuple["Array", "Array"]:
    """For one global scale: the FP8 scale [32768] of each magnitude, and the first magnitude [8, 256] whose
    quotient by each scale is above 0, then those that reach the next value of E2M1, all as bit patterns."""
    import torch

    divisor = torch.tensor([global_scale])
    magnitudes = torch.arange(1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    scale = (divisor * (magnitudes / 6.0)).clamp(max=448.0).to(torch.float8_e4m3fn)
    scale = torch.where(scale.float() == 0, 0.125, scale.float()).to(torch.float8_e4m3fn).view(torch.uint8)

    factors = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float() / divisor
    middles = torch.tensor([0.0] + [middle for middle, _ in STEPS])[:, None]
    inclusive = torch.tensor([False] + [ties for _, ties in STEPS])[:, None]
    low = torch.zeros(8, 256, dtype=torch.int32)
    high = torch.full_like(low, INFINITE)
    for _ in range(16):  # bisection: quotients grow with the pattern
        pattern = (low + high) // 2
        quotients = pattern.to(torch.int16).view(torch.bfloat16).float() / factors
        reached = torch.where(inclusive, quotients >= middles, quotients > middles)
        high = torch.where(reached, pattern, high)
        low = torch.where(reached, low, torch.minimum(pattern + 1, high))
    return scale.numpy(), high.to(torch.int16).numpy()
