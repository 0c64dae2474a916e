"""A trial in a process of its own: what is tried may crash, hang, or spoil the process that tries it."""

import subprocess
import sys
from pathlib import Path

from core.progress import clock


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
