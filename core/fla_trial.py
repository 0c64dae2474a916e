"""Is flash-linear-attention's gated delta rule to be trusted on this machine? Tried in a process of its own.

On some GPUs its backward pass crashes, hangs or gives no numbers, and only at real lengths: so one forward
and backward pass of the length that training uses, with a time limit, against core/gated_delta.py.
"""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from core import errors, trial

TOKENS = 8192
"""Tried where no training says its own length."""
HEADS, DIM = 4, 128
SECONDS = 300
"""Triton compiles the kernels within these; a hang is told from it by nothing else."""
TOLERANCE = 0.05
"""Relative difference from our rule; fla computes in bfloat16, whose products err by about 0.01."""


@functools.cache
def fault(tokens: int = TOKENS, seconds: float = SECONDS) -> str | None:
    """Why fla's kernel cannot be used for rows of `tokens`, or None where it can. Never loads it here."""
    if find_spec("fla") is None:
        return "not installed"
    reason = trial.fault("core.fla_trial", [str(tokens)], seconds)
    return None if reason is None else f"{reason} at {tokens} tokens"


def rule(tokens: int = TOKENS) -> str:
    """Which rule Gated DeltaNet layers run here, and why: fla's where it passes the trial."""
    reason = fault(tokens)
    return "fla" if reason is None else f"core/gated_delta.py (fla: {reason})"


def install(tokens: int = TOKENS) -> None:
    """Let transformers' Gated DeltaNet layers run that rule."""
    from core import gated_delta

    gated_delta.install(over_fla=fault(tokens) is not None)


def main(words: list[str]) -> int:
    """The trial itself: exit code 0 where fla's kernel agrees with ours, else 1 with the reason last."""
    import torch
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule as kernel  # type: ignore[import-not-found]

    from core.gated_delta import chunk_gated_delta_rule as ours

    (tokens,) = map(int, words)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    random = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, tokens, HEADS, DIM, generator=random) for _ in range(3))
    g = -torch.rand(1, tokens, HEADS, generator=random)
    beta = torch.rand(1, tokens, HEADS, generator=random)

    def passes(rule: Callable[..., Any]) -> list[Any]:
        inputs = [x.to(device, torch.bfloat16) for x in (query, key, value)] + [g.to(device), beta.to(device)]
        inputs = [x.detach().requires_grad_() for x in inputs]
        out, _ = rule(*inputs[:3], g=inputs[3], beta=inputs[4], use_qk_l2norm_in_kernel=True)
        out.float().square().sum().backward()
        return [out, *(x.grad for x in inputs)]

    names = ("output", "gradient of q", "gradient of k", "gradient of v", "gradient of g", "gradient of beta")
    return trial.compare(names, passes(kernel), passes(ours), TOLERANCE)


if __name__ == "__main__":
    errors.run(main)
