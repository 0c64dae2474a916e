"""The numbers of the report's tables, as the page and the Markdown both show them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eval import stats, table
from eval.outcomes import STEPS
from eval.reporting import words
from eval.reporting.facts import Facts
from eval.reporting.words import CHECKPOINTS
from eval.stats import Statistic

Found = dict[str, Statistic | None]
"""A statistic by checkpoint; None where it was not measured."""


@dataclass(frozen=True, kw_only=True)
class GateLine:
    """A gate, as text but for the word of its verdict."""

    title: str
    verdict: str
    decided_by: str
    guarded_by: str
    """Blank where no other row guards it."""
    may_lose: str
    goal: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of held-out samples in every checkpoint, and the last against the base."""

    gate: str
    title: str
    found: Found
    last: Statistic
    compared: dict[str, Any] | None
    """What `verdict.Compared` has; None where too few samples are in both."""
    delta: float
    kept: float | None
    """The share of merged's gain that NVFP4 keeps; None where merged gained nothing beyond chance."""


@dataclass(frozen=True, kw_only=True)
class MovedLine:
    """How often a rule or a whole skill is kept, in every checkpoint, and the last against the base."""

    name: str
    found: Found
    p: float | None
    adjusted_p: float | None
    """For so many of them judged together."""
    moved: str


def gates(facts: Facts) -> list[GateLine]:
    """A line for each gate of the profile."""
    lines = []
    for gate, found in facts.judged["gates"].items():
        titles, decides = table.TITLES[gate], found["decides"]
        last = table.cell(facts.judged, gate, facts.checkpoint, decides)
        lines.append(
            GateLine(
                title=table.GATES[gate],
                verdict=found["verdict"],
                decided_by=titles[decides],
                guarded_by=", ".join(titles[row] for row in found["guards"]),
                may_lose=words.allowed(found["delta"], last),
                goal=words.goal(found["threshold"], last, reached=found["reaches"]),
            )
        )
    return lines


def held_out(facts: Facts) -> list[Line]:
    """A line for each row that the judged checkpoint has, in the gates' order."""
    lines = []
    for gate, judged in facts.judged["gates"].items():
        for row, title in table.TITLES[gate].items():
            found = {name: table.cell(facts.judged, gate, name, row) for name in CHECKPOINTS}
            last = found[facts.checkpoint]
            if last is not None:
                lines.append(
                    Line(
                        gate=gate,
                        title=title,
                        found=found,
                        last=last,
                        compared=judged["compared"].get(row),
                        delta=judged["delta"],
                        kept=facts.judged["kept"].get(gate, {}).get(row),
                    )
                )
    return lines


def rules(facts: Facts) -> list[MovedLine]:
    """Every rule, the one first that the judged checkpoint breaks most often."""
    return _moved(facts, "rules")


def skills(facts: Facts) -> list[MovedLine]:
    """Every skill by the rollouts that keep all its rules, the worst first."""
    return _moved(facts, "by_skill")


def near_miss(facts: Facts) -> dict[str, Found]:
    """How many requests near each skill rightly leave it alone, by checkpoint."""
    own = {
        name: [one for one in samples if one["kind"] == "near_miss"]
        for name, samples in facts.samples.items()
    }
    skills = sorted({one["skill"] for one in own[facts.checkpoint]})
    return {
        skill: {
            name: _share([one["right"] for one in samples if one["skill"] == skill])
            for name, samples in own.items()
        }
        for skill in skills
    }


def steps(facts: Facts) -> dict[str, Found]:
    """How many turns with a call due come how far, by checkpoint."""
    return _counted(facts, "steps", list(STEPS))


def faults(facts: Facts) -> dict[str, Found]:
    """How often a turn goes wrong in each way, by checkpoint; without ways that never happened."""
    found = _counted(facts, "faults", sorted(facts.counts(f"eval-{facts.checkpoint}").get("faults", {})))
    return {name: one for name, one in found.items() if any(rate and rate.value for rate in one.values())}


def _moved(facts: Facts, kind: str) -> list[MovedLine]:
    lines = []
    for name, judged in facts.judged[kind].items():
        found = _counted(facts, kind, [name])[name]
        found |= {"base": _rate(judged["base"]), facts.checkpoint: _rate(judged["last"])}
        own = {key: judged[key] for key in ("p", "adjusted_p", "moved")}
        lines.append(MovedLine(name=name, found=found, **own))
    return sorted(lines, key=lambda line: (*_worth(line.found[facts.checkpoint]), line.name))


def _counted(facts: Facts, kind: str, names: Iterable[str]) -> dict[str, Found]:
    """What the evaluations' manifests count."""
    counts = {name: facts.counts(f"eval-{name}").get(kind, {}) for name in facts.samples}
    return {row: {name: _rate(own.get(row)) for name, own in counts.items()} for row in names}


def _rate(fields: dict[str, Any] | None) -> Statistic | None:
    return None if fields is None else stats.from_json(fields)


def _share(right: Sequence[bool]) -> Statistic | None:
    return stats.rate(sum(right), len(right)) if right else None


def _worth(found: Statistic | None) -> tuple[float, int]:
    """What sorts the worst first, of equals the one that was seen more often."""
    return (1.0, 0) if found is None else (found.value, -found.n)
