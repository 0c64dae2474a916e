"""A trial in a process of its own: what is tried may crash, hang, or spoil the process that tries it."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core import errors
from core.progress import clock

if TYPE_CHECKING:
    import torch


def fault(module: str, words: list[str], seconds: float) -> str | None:
    """Why `python -m <module> <words>` did not end well within `seconds`, or None where it did.

    A trial that fails says why in the last line of its standard error.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {clock(seconds)}"
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    lines = done.stderr.strip().splitlines()
    return (lines[-1][:200] if lines else "failed") if done.returncode else None


def compare(
    names: Sequence[str], theirs: Sequence["torch.Tensor"], ours: Sequence["torch.Tensor"], tolerance: float
) -> int:
    """Exit code 0 where each tensor is off by less than `tolerance` of our norm; else 1, naming the first."""
    for name, one, own in zip(names, theirs, ours, strict=True):
        off = float((one.float() - own.float()).norm() / own.float().norm())
        if not off < tolerance:  # NaN is not less either
            print(f"its {name} is off by {off:.2g}", file=sys.stderr)
            return errors.NEGATIVE
    return errors.DONE
