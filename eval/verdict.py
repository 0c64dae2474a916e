"""One rule for every gate: is the last checkpoint better, no different, or worse than the first?

improves    more rows are gained than lost, beyond chance (p < 0.05 on the same rows)
worse       more is lost than the gate's delta, beyond chance; or a row is worse that guards the gate
no_change   neither
incomplete  no rows, the loss of a single one, or not the same rows in both

Beside the verdict, and deciding nothing: whether the goal is reached, and whether it is shown that no more
is lost than delta (the interval's lower end; few rows cannot show it). Gates that must improve must all do
so, which needs no correction for their number (Berger 1982, Technometrics 24:295); the many rules need one.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core.profile import Gate
from core.verdicts import IMPROVES, INCOMPLETE, NO_CHANGE, WORSE, Verdict
from eval import stats
from eval.outcomes import FORMAL, GENERAL, LIVE, NEAR_MISS, REPLAY, SKILLS, TRAINED, Outcomes, Results
from eval.stats import Gain, Rate, Statistic

Table = Mapping[str, Results]
"""One checkpoint's results by row."""
NOISE = 1e-9  # 0.80 - 0.78 is not exactly 0.02


@dataclass(frozen=True)
class Source:
    """Where a gate finds its results: their kind, the row that decides, and which rows it shows."""

    kind: str
    decides: str
    shows: Callable[[str], bool] = lambda row: True
    guards: tuple[str, ...] = ()
    """Rows that may not be worse either: else a model that always calls would pass."""
    may_be_missing: bool = False
    """Whether a gate without any results is left out instead of incomplete."""


SOURCES = {
    "tool_calls": Source("tool_calls", "mcp_calls", shows=lambda row: row != REPLAY, guards=("no_tool",)),
    "skills": Source("skills", SKILLS, guards=(NEAR_MISS,)),
    "replay": Source("tool_calls", REPLAY, shows=lambda row: row == REPLAY),
    "live": Source("live", LIVE, may_be_missing=True),
    "formality": Source("formality", FORMAL),
    "general": Source("loss", GENERAL, shows=lambda row: row == GENERAL),
    "loss": Source("loss", TRAINED, shows=lambda row: row != GENERAL),
}
"""The gates in the order of the report; `replay` and `general` watch over what the base knew."""


@dataclass(frozen=True)
class Compared:
    """What a row gains, on the `n` samples that both have; `unpaired` are those that only one has."""

    verdict: str
    gain: float
    low: float
    high: float
    p: float
    no_worse: bool
    """Whether the interval lies above a loss of delta."""
    n: int
    unpaired: int


def compare(before: Results, after: Results, delta: float) -> Compared | None:
    """The rule above on a row's results; None where too few samples are in both."""
    gain = _gain(before, after)
    if gain is None:
        return None
    unpaired = len(before.keys() ^ after.keys())
    return Compared(
        verdict=INCOMPLETE if unpaired else _word(gain.value, gain.p, delta),
        gain=gain.value,
        low=gain.low,
        high=gain.high,
        p=gain.p,
        no_worse=not unpaired and gain.low >= -delta - NOISE,
        n=gain.n,
        unpaired=unpaired,
    )


def reaches(found: Statistic | None, threshold: float) -> bool:
    """Whether a rate is at least, or a loss at most, the gate's threshold."""
    if found is None:
        return False
    return found.value >= threshold if isinstance(found, Rate) else found.value <= threshold


def judge(gates: Mapping[str, Gate], checkpoints: Mapping[str, Outcomes]) -> dict[str, Any]:
    """The last of `checkpoints` against the first, as JSON.

    verdict   what the gates come to
    gates     by name: `verdict`, whether it `reaches` its `threshold`, its `delta`, the row that `decides`,
              those that are its `guards`, under each checkpoint's name its rows, and `compared` by row;
              without gates that the profile does not name
    rules     by `<skill>/<rule>`: the rates, and what `moved` in the rollouts that it applies to in both
    by_skill  the same for whole skills
    kept      by gate and row: the share of the second checkpoint's gain that the last one of three keeps
    """
    judged, kept = {}, {}
    for name, source in SOURCES.items():
        missing = not any(one.get(source.kind) for one in checkpoints.values())
        if name in gates and not (missing and source.may_be_missing):
            tables = {
                checkpoint: {row: own for row, own in found.get(source.kind, {}).items() if source.shows(row)}
                for checkpoint, found in checkpoints.items()
            }
            judged[name] = _gate(source, gates[name], tables)
            kept[name] = _kept(*tables.values()) if len(tables) > 2 else {}
    first, *_, last = checkpoints.values()
    return {
        "verdict": Verdict({name: found["verdict"] for name, found in judged.items()}).overall,
        "gates": judged,
        "rules": _moved(first.get("rules", {}), last.get("rules", {})),
        "by_skill": _moved(first.get("by_skill", {}), last.get("by_skill", {})),
        "kept": {name: shares for name, shares in kept.items() if shares},
    }


def _gate(source: Source, gate: Gate, tables: Mapping[str, Table]) -> dict[str, Any]:
    """One gate of `judge`."""
    first, *_, last = tables.values()
    compared = {row: compare(first[row], last[row], gate.delta) for row in first.keys() & last.keys()}
    guards = [row for row in source.guards if row in first or row in last]
    found = [one.verdict if one else INCOMPLETE for one in map(compared.get, (source.decides, *guards))]
    verdict = next((word for word in (WORSE, INCOMPLETE) if word in found), found[0])
    statistics = {
        checkpoint: {row: stats.describe(list(results.values())) for row, results in table.items()}
        for checkpoint, table in tables.items()
    }
    *_, measured = statistics.values()
    return {
        "verdict": verdict,
        "reaches": reaches(measured.get(source.decides), gate.threshold),
        **asdict(gate),
        "decides": source.decides,
        "guards": guards,
        **{name: {row: asdict(one) for row, one in table.items()} for name, table in statistics.items()},
        "compared": {row: asdict(one) for row, one in sorted(compared.items()) if one},
    }


def _kept(base: Table, merged: Table, last: Table) -> dict[str, float]:
    """By row the share of merged's gain that the last keeps, where there is a gain beyond chance."""
    shares = {}
    for row in sorted(base.keys() & merged.keys() & last.keys()):
        whole, rest = compare(base[row], merged[row], 0), compare(base[row], last[row], 0)
        if whole and rest and whole.verdict == IMPROVES and rest.verdict != INCOMPLETE:
            shares[row] = rest.gain / whole.gain
    return shares


def _moved(before: Table, after: Table) -> dict[str, dict[str, Any]]:
    """Rates of the first and last, and what moved beyond chance where all rows are judged together.

    A row without samples that both have is incomplete and is none of the tests.
    """
    names = sorted(before.keys() | after.keys())
    gains = {name: _gain(before.get(name, {}), after.get(name, {})) for name in names}
    adjusted = stats.holm({name: gain.p for name, gain in gains.items() if gain})
    return {
        name: {
            "base": _json(before.get(name)),
            "last": _json(after.get(name)),
            "n": gain.n if gain else 0,
            "gain": gain.value if gain else None,
            "p": gain.p if gain else None,
            "adjusted_p": adjusted.get(name),
            "moved": _word(gain.value, adjusted[name], 0) if gain else INCOMPLETE,
        }
        for name, gain in gains.items()
    }


def _gain(before: Results, after: Results) -> Gain | None:
    """The gain on the samples that both have; None without any, or with the loss of a single one."""
    common = sorted(before.keys() & after.keys())
    if not common or (len(common) == 1 and not isinstance(after[common[0]], bool)):
        return None
    return stats.gain([before[one] for one in common], [after[one] for one in common])


def _word(gain: float, p: float, delta: float) -> str:
    if p < stats.ALPHA and gain > NOISE:
        return IMPROVES
    return WORSE if p < stats.ALPHA and gain < -delta - NOISE else NO_CHANGE


def _json(results: Results | None) -> dict[str, Any] | None:
    return asdict(stats.describe(list(results.values()))) if results else None
