"""The words and number formats of the report, the same on the page and in Markdown."""

from collections.abc import Mapping
from typing import Any

from core.verdicts import IMPROVES, INCOMPLETE, NO_CHANGE, WORSE
from eval.stats import Rate, Statistic

CHECKPOINTS = {"base": "base", "merged": "merged", "nvfp4": "NVFP4"}
VERDICTS = {IMPROVES: "▲ improves", NO_CHANGE: "● no change", WORSE: "▼ worse", INCOMPLETE: "○ incomplete"}
NOTHING = "–"
LEAST_P = 0.001


def p_value(p: float | None) -> str:
    """`p = 0.042`; below LEAST_P only that it is; blank where there is none."""
    if p is None:
        return ""
    return f"p < {LEAST_P:g}" if p < LEAST_P else f"p = {p:.3f}"


def gain(compared: Mapping[str, Any], of: Statistic) -> str:
    """A paired gain with its interval: in points of a rate, in nats of a loss; more is better in both."""
    scale, digits, unit = (100, 1, "points") if isinstance(of, Rate) else (1, 3, "nats")
    value, low, high = (f"{scale * compared[key]:+.{digits}f}" for key in ("gain", "low", "high"))
    return f"{value} {unit} [{low}, {high}]"


def allowed(delta: float, of: Statistic | None) -> str:
    """A gate's delta in the unit of what it judges; of nothing, bare."""
    if of is None:
        return f"{delta:g}"
    return f"{100 * delta:g} points" if isinstance(of, Rate) else f"{delta:g} nats"


def goal(threshold: float, of: Statistic | None, *, reached: bool) -> str:
    """A gate's threshold, and whether it is reached."""
    at = f"{threshold:.0%}" if isinstance(of, Rate) else f"{threshold:g}"
    return f"{at}, {'reached' if reached else 'not reached'}"


def share(found: Statistic) -> str:
    """A rate with its counts and interval."""
    of = f" ({found.k} of {found.n})" if isinstance(found, Rate) else ""
    return f"{str(found).strip()}{of}"


def clip(text: str, longest: int) -> str:
    """Its beginning, and how long it is, where it is longer than that."""
    return text if len(text) <= longest else text[:longest] + f" … ({len(text):,} characters)"
