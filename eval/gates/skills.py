"""Does the model follow the skill to the end: do all rules of its `rules.yaml` hold over a whole trace?

Rules that take a reader (`judge`) and rules that do not apply to a trace decide nothing: what a judge says of
the former (eval/judging.py) stands among the findings, and makes no rollout right or wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import rules
from core.chat import Message, Row, assistant_turns
from core.errors import UserError
from core.rules import Finding, Rule


@dataclass(frozen=True)
class Score:
    """Whether every applicable rule holds, the first that does not, and what each rule says."""

    right: bool
    explanation: str
    findings: list[dict[str, Any]] = field(default_factory=list)
    """A rule each: `rule`, `verdict` (the words of core/rules.py), `position`, `turn`, `reason`, and
    `by_judge`, whether a judge was asked."""
    turns: int = 0
    """Of the assistant's."""


def rules_file(row: Row) -> Path:
    """The rules of the row's skill: where the row says, else beside its SKILL.md."""
    return Path(row.meta.get("rules_file") or Path(row.source).with_name("rules.yaml"))


def rules_of(row: Row) -> list[Rule]:
    """The rules of the row's skill; UserError where they are missing, broken or out of date."""
    skill = Path(row.source)
    try:
        text = skill.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{skill}: no such file; row {row.id} comes from it: make dataset") from None
    return rules.load(rules_file(row), text)


def score(
    own: Sequence[Rule],
    trace: Sequence[Message],
    request: str,
    by_judge: Mapping[str, Finding] | None = None,
) -> Score:
    """Judge by the skill's `own` rules the messages that follow the user's `request`.

    `by_judge` has, by their ids, a judge's findings on rules that no program decides. A rule that is broken
    by what is nowhere is broken in the last turn: until then it could be kept.
    """
    found = rules.check(own, trace, request)
    by_judge, turns = by_judge or {}, assistant_turns(list(trace))
    findings = [
        {
            "rule": one.rule,
            "verdict": one.verdict,
            "position": one.position,
            "turn": len(turns) if one.position is None else sum(turn <= one.position for turn in turns),
            "reason": one.reason,
            "by_judge": one.rule in by_judge,
        }
        for one in (by_judge.get(one.rule, one) for one in found)
    ]
    broken = [one for one in found if one.verdict == rules.BROKEN]
    return Score(
        right=not broken,
        explanation=f"{broken[0].rule}: {broken[0].reason}" if broken else "",
        findings=findings,
        turns=len(turns),
    )
