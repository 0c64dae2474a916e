"""Does the model make the right calls: right tools, arguments valid by schema, values equal; or rightly none?

Every held-out row is one prompt: its history up to the turn to judge. That is the first of the assistant's,
but where the row says which turns carry loss it is the last of those: what follows a tool's error.
"""

from dataclasses import dataclass

from core import toolcalls
from core.chat import Message, Row, assistant_turns
from core.toolcalls import ToolCall


@dataclass(frozen=True)
class Score:
    """Whether one answer is right, and the first thing that is not."""

    right: bool
    explanation: str


def target(row: Row) -> int:
    """Position of the message that the model is to produce."""
    turns = assistant_turns(row.messages)
    return turns[row.train_turns[-1] if row.train_turns else 0]


def history(row: Row) -> list[Message]:
    """The messages that the model sees."""
    return row.messages[: target(row)]


def score(row: Row, answer: str) -> Score:
    """Judge generated text (what follows `<think>` and a newline) against the row's own turn."""
    reply = toolcalls.parse(answer, row.tools)
    expected = row.messages[target(row)].get("tool_calls") or []
    if not expected:
        if reply.calls:
            return Score(False, f"called {reply.calls[0].name} where no call is due")
        return Score(bool(reply.content), "" if reply.content else "dead turn: neither text nor call")
    if len(reply.calls) != len(expected):
        due = "one is" if len(expected) == 1 else f"{len(expected)} are"
        return Score(False, f"{len(reply.calls)} calls where {due} due")
    left = [ToolCall(**one["function"]) for one in expected]
    for call in reply.calls:
        if call.name not in {gold.name for gold in left}:
            return Score(False, f"wrong tool: {call.name}")
        faults = toolcalls.faults(call, row.tools)
        if faults:
            return Score(False, f"invalid: {faults[0]}")
        if call not in left:
            return Score(False, f"wrong values: {call.arguments}")
        left.remove(call)  # calls of one turn have no order
    return Score(True, "")
