"""Does the model leave a skill alone where a request is only near it?

The skill stands in the prompt, and its own text says that it is not for this. Its procedure is started by a
heading of its report, or by a call of one of its steps that the row's own turns do without.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core import rules, selectors
from core.chat import Message, Row
from core.rules import Rule
from core.selectors import Selector
from eval.gates.skills import rules_file

NOT_DUE = "skill_not_due"
"""The `kind` of such rows in their `meta`: all of the bucket `near_miss`, some of `negatives`."""


@dataclass(frozen=True)
class Score:
    """Whether the skill was left alone and the user got an answer; else the first thing that was wrong."""

    right: bool
    explanation: str


def is_near_miss(row: Row) -> bool:
    """Whether the row's request must not start the skill of its prompt."""
    return row.meta.get("kind") == NOT_DUE


def score(row: Row, trace: Sequence[Message]) -> Score:
    """Judge the messages that follow the row's request; UserError where the skill's rules are missing."""
    own = rules.read(rules_file(row))
    headings = {heading for rule in own for heading in rule.keys.get("sections", ())}
    due = {event.tool for event in selectors.events(row.messages, "") if event.kind == "call"}
    steps = _steps(own)
    done = selectors.events(trace, "")
    for event in done:
        begun = [one for one in rules.HEADING.findall(event.text) if one in headings]
        if event.kind == "say" and begun:
            return Score(False, f"started the report: {begun[0]}")
        if event.kind == "call" and event.tool not in due and any(step.concerned([event]) for step in steps):
            return Score(False, f"started the procedure: {event.tool}")
    answered = {event.turn for event in done if event.kind in ("say", "call")}
    turns = sum(message["role"] == "assistant" for message in trace)
    if not turns or answered != set(range(1, turns + 1)):
        return Score(False, "dead turn: neither text nor call")
    return Score(True, "")


def _steps(own: Sequence[Rule]) -> list[Selector]:
    """What picks the calls of a skill's steps: all that its rules ask for by name."""
    asked = [value for rule in own if rule.kind != "never" for value in rule.keys.values()]
    flat = [part for value in asked for part in (value if isinstance(value, list) else [value])]
    named = [part for part in flat if isinstance(part, Selector) and set(part.calls) - {"*"}]
    return [replace(selector, kind="call") for selector in named]
