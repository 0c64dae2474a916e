"""Does the model follow the skill to the end: do all rules of its `rules.yaml` hold over a whole trace?

Rules that take a reader (`judge`) and rules that do not apply to a trace decide nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import rules
from core.chat import Message, Row, assistant_turns
from core.errors import UserError
from core.rules import Rule


@dataclass(frozen=True)
class Score:
    """Whether every applicable rule holds, the first that does not, and what each rule says."""

    right: bool
    explanation: str
    findings: list[dict[str, Any]] = field(default_factory=list)
    """A rule each: `rule`, `verdict` (the words of core/rules.py), `position`, `turn`, `reason`."""
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


def score(own: Sequence[Rule], trace: Sequence[Message], request: str) -> Score:
    """Judge by the skill's `own` rules the messages that follow the user's `request`.

    A rule that is broken by what is nowhere is broken in the last turn: until then it could be kept.
    """
    found = rules.check(own, trace, request)
    turns = assistant_turns(list(trace))
    findings = [
        {
            "rule": one.rule,
            "verdict": one.verdict,
            "position": one.position,
            "turn": len(turns) if one.position is None else sum(turn <= one.position for turn in turns),
            "reason": one.reason,
        }
        for one in found
    ]
    broken = [one for one in found if one.verdict == rules.BROKEN]
    return Score(
        right=not broken,
        explanation=f"{broken[0].rule}: {broken[0].reason}" if broken else "",
        findings=findings,
        turns=len(turns),
    )
