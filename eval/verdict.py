"""One rule for every gate: is the second checkpoint better, no different, or worse?

improves    the two 95 % intervals lie apart, on the better side
worse       more is lost than the gate's delta, and the 95 % interval of the gain lies below 0
no_change   neither
incomplete  no rows, or the loss of a single one

A gain is claimed late and a loss seen early, for only a gain lets a checkpoint go on. Whether the gate's
threshold is reached stands beside the verdict and does not decide it.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core.profile import Gate
from core.verdicts import IMPROVES, INCOMPLETE, NO_CHANGE, WORSE, Verdict
from eval import stats
from eval.measure import FORMAL, GENERAL, REPLAY, SKILLS, TRAINED, Measured
from eval.stats import Rate, Statistic

NOISE = 1e-9  # 0.80 - 0.78 is not exactly 0.02


@dataclass(frozen=True)
class Source:
    """Where a gate finds its statistics: their kind, the row that decides, and which rows it shows."""

    kind: str
    decides: str
    shows: Callable[[str], bool] = lambda row: True


SOURCES = {
    "tool_calls": Source("tool_calls", "mcp_calls", shows=lambda row: row != REPLAY),
    "skills": Source("skills", SKILLS),
    "replay": Source("tool_calls", REPLAY, shows=lambda row: row == REPLAY),
    "formality": Source("formality", FORMAL),
    "general": Source("loss", GENERAL, shows=lambda row: row == GENERAL),
    "loss": Source("loss", TRAINED, shows=lambda row: row != GENERAL),
}
"""The gates in the order of the report; `replay` and `general` watch over what the base knew."""


def compare(before: Statistic | None, after: Statistic | None, delta: float) -> str:
    """The rule above on two statistics of the same rows; None is one without rows."""
    if before is None or after is None or (not isinstance(after, Rate) and after.n < 2):
        return INCOMPLETE
    better, other = (after, before) if isinstance(after, Rate) else (before, after)
    if better.low > other.high:
        return IMPROVES
    gain = stats.gain(before, after)
    return WORSE if gain.value < -delta - NOISE and gain.high < 0 else NO_CHANGE


def reaches(found: Statistic | None, threshold: float) -> bool:
    """Whether a rate is at least, or a loss at most, the gate's threshold."""
    if found is None:
        return False
    return found.value >= threshold if isinstance(found, Rate) else found.value <= threshold


def judge(gates: Mapping[str, Gate], checkpoints: Mapping[str, Measured]) -> dict[str, Any]:
    """The last of `checkpoints` against the first: `{"verdict", "gates": {gate: {...}}}`, as JSON.

    A gate has its `verdict`, whether it `reaches` its `threshold`, its `delta`, the row that `decides`, and
    under each checkpoint's name that checkpoint's rows. Gates that the profile does not name are not judged.
    """
    first, *_, last = checkpoints
    judged = {}
    for name, source in SOURCES.items():
        if name in gates:
            tables = {
                checkpoint: {row: one for row, one in measured[source.kind].items() if source.shows(row)}
                for checkpoint, measured in checkpoints.items()
            }
            before, after = tables[first].get(source.decides), tables[last].get(source.decides)
            judged[name] = {
                "verdict": compare(before, after, gates[name].delta),
                "reaches": reaches(after, gates[name].threshold),
                **asdict(gates[name]),
                "decides": source.decides,
                **{c: {row: asdict(one) for row, one in table.items()} for c, table in tables.items()},
            }
    overall = Verdict({name: found["verdict"] for name, found in judged.items()}).overall
    return {"verdict": overall, "gates": judged}
