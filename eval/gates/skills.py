"""Does the model follow the skill to the end: do all rules of its `rules.yaml` hold over a whole rollout?

Rules that take a reader (`judge`) and rules that do not apply to a rollout decide nothing.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core import rules
from core.chat import Message, Row
from core.errors import UserError
from core.rules import Rule
from eval import stats
from eval.stats import Rate


@dataclass(frozen=True)
class Score:
    """Whether every applicable rule holds, the first that does not, and the verdict of each."""

    right: bool
    explanation: str
    verdicts: dict[str, str]
    """By the rule's id; the words of core/rules.py."""


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


def score(row: Row, trace: list[Message]) -> Score:
    """Judge the messages that follow the row's request; UserError as `rules_of`."""
    request = next(message["content"] for message in row.messages if message["role"] == "user")
    findings = rules.check(rules_of(row), trace, request)
    broken = [finding for finding in findings if finding.verdict == rules.BROKEN]
    return Score(
        right=not broken,
        explanation=f"{broken[0].rule}: {broken[0].reason}" if broken else "",
        verdicts={finding.rule: finding.verdict for finding in findings},
    )


def by_rule(scored: Iterable[tuple[Row, Score]]) -> dict[str, Rate]:
    """How often each rule holds where it applies, by `<skill>/<rule>`; without rules that never applied."""
    held: dict[str, list[bool]] = defaultdict(list)
    for row, one in scored:
        for rule, verdict in one.verdicts.items():
            if verdict in (rules.HOLDS, rules.BROKEN):
                held[f"{row.skill}/{rule}"].append(verdict == rules.HOLDS)
    return {name: stats.rate(sum(found), len(found)) for name, found in sorted(held.items())}
