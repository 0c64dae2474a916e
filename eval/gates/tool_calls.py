"""Does the model make the right calls: right tools, arguments valid by schema, values equal; or rightly none?

Every held-out row is one prompt: its history up to the turn to judge. That is the first of the assistant's,
but where the row says which turns carry loss it is the last of those: what follows a tool's error.
"""

import json
import re
from dataclasses import dataclass

from core import toolcalls
from core.chat import Message, Row, assistant_turns
from core.toolcalls import ToolCall

DEAD, LOST, NO_CALL = "dead turn", "lost call", "no call"
NEEDLESS, NUMBER, TOOL, INVALID, VALUES = (
    "needless call",
    "wrong number",
    "wrong tool",
    "invalid",
    "wrong values",
)
MARKUP = re.compile(r"</?tool_call>|<function=|<parameter=")


@dataclass(frozen=True)
class Score:
    """Whether one turn is right, and what is not."""

    right: bool
    explanation: str = ""
    fault: str = ""
    """The first thing that is wrong, in one of the words above; blank where nothing is."""
    due: bool = True
    """Whether a call is due."""


def target(row: Row) -> int:
    """Position of the message that the model is to produce."""
    turns = assistant_turns(row.messages)
    return turns[row.train_turns[-1] if row.train_turns else 0]


def history(row: Row) -> list[Message]:
    """The messages that the model sees."""
    return row.messages[: target(row)]


def score(row: Row, message: Message) -> Score:
    """Judge the model's turn against the row's own; the calls of one turn have no order."""
    expected = row.messages[target(row)].get("tool_calls") or []
    calls = [ToolCall(**one["function"]) for one in message.get("tool_calls") or []]
    due = bool(expected)

    def wrong(fault: str, explanation: str) -> Score:
        return Score(False, explanation, fault, due)

    if not calls and is_lost(row, message):
        return wrong(LOST, "a call's markup where the parser sees none")
    if not calls and not message.get("content"):
        return wrong(DEAD, "dead turn: neither text nor call")
    if not due and calls:
        return wrong(NEEDLESS, f"called {calls[0].name} where no call is due")
    if not due:
        return Score(True, due=due)
    if not calls:
        return wrong(NO_CALL, "text where a call is due")
    if len(calls) != len(expected):
        many = "one is" if len(expected) == 1 else f"{len(expected)} are"
        return wrong(NUMBER, f"{len(calls)} calls where {many} due")
    left = [ToolCall(**one["function"]) for one in expected]
    for call in calls:
        if call.name not in {gold.name for gold in left}:
            return wrong(TOOL, f"wrong tool: {call.name}")
        faults = toolcalls.faults(call, row.tools)
        if faults:
            return wrong(INVALID, f"invalid: {faults[0]}")
        if call not in left:
            return wrong(VALUES, f"wrong values: {call.arguments}")
        left.remove(call)
    return Score(True)


def is_lost(row: Row, message: Message) -> bool:
    """Whether thinking or text hold a call that the parser did not see: markup, or JSON as Hermes has it."""
    written = f"{message.get('reasoning_content') or ''}\n{message.get('content') or ''}"
    if MARKUP.search(written):
        return True
    names = (json.dumps(tool["function"]["name"]) for tool in row.tools)
    return any(re.search(rf'"name"\s*:\s*{re.escape(name)}', written) for name in names)
