"""Is flash-attention to be used here? Tried by a real forward and backward pass, in a process of its own.

Its package can be installed and yet have no kernel for the GPU (none for sm_121: flash-attention#1969).
"""

import functools
from importlib.util import find_spec

from core import errors, trial

FLASH, SDPA = "flash_attention_2", "sdpa"
TOKENS, HEADS, DIM = 1024, 4, 128
SECONDS = 120
TOLERANCE = 0.02


@functools.cache
def fault() -> str | None:
    """Why flash-attention cannot be used, or None where it can. Never loads it here."""
    if find_spec("flash_attn") is None:
        return "not installed"
    return trial.fault("core.attention_trial", [], SECONDS)


def implementation() -> str:
    """The name by which transformers knows what attention layers are to run."""
    return FLASH if fault() is None else SDPA


def described() -> str:
    """The same with the reason, for a manifest."""
    reason = fault()
    return FLASH if reason is None else f"{SDPA} (flash-attention: {reason})"


def main(words: list[str]) -> int:
    """The trial itself: exit code 0 where it agrees with torch's attention, else 1 with the reason last."""
    import torch
    from flash_attn import flash_attn_func  # type: ignore[import-not-found]
    from torch.nn.functional import scaled_dot_product_attention

    device = "cuda" if torch.cuda.is_available() else "cpu"

    def passes(own: bool) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(0)
        shape = (1, TOKENS, HEADS, DIM)
        inputs = [
            torch.randn(shape, generator=random).to(device, torch.bfloat16).requires_grad_() for _ in range(3)
        ]
        if own:
            q, k, v = (x.transpose(1, 2) for x in inputs)
            out = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        else:
            out = flash_attn_func(*inputs, causal=True)
        out.float().square().sum().backward()
        return [out, *(x.grad for x in inputs if x.grad is not None)]

    names = ("output", "gradient of q", "gradient of k", "gradient of v")
    return trial.compare(names, passes(own=False), passes(own=True), TOLERANCE)


if __name__ == "__main__":
    errors.run(main)
