"""One line of `make verify`, and the table of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]
COLOURS: dict[Verdict, str] = {"ok": "\x1b[32m", "warn": "\x1b[33m", "fail": "\x1b[31m"}
PLAIN = "\x1b[0m"
FOUND_WIDTH = 40  # longer ones push their advice to the right


@dataclass(frozen=True)
class Check:
    name: str
    verdict: Verdict
    found: str
    advice: str = ""
    """Why, or what to do about it."""


def table(checks: Sequence[Check], *, colour: bool) -> str:
    """One aligned line a check, and a last line that counts the verdicts."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        verdict = f"{check.verdict:<4}"
        if colour:
            verdict = COLOURS[check.verdict] + verdict + PLAIN
        line = f"{verdict}  {check.name:<{width}}  {check.found:<{FOUND_WIDTH}}  {check.advice}"
        lines.append(line.rstrip())
    count = Counter(check.verdict for check in checks)
    lines.append("verify: " + ", ".join(f"{count[verdict]} {verdict}" for verdict in COLOURS))
    return "\n".join(lines)


def size(count: float) -> str:
    """Bytes as text: `4.2 MB`, `71.9 GB`."""
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"
