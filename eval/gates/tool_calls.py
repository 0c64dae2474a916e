"""Does the model make the right call: right tool, arguments valid by schema, values equal; or rightly none?

Every held-out row is one prompt: its history up to the turn to judge. That is the first of the assistant's,
but where the row says which turns carry loss it is the last of those: what follows a tool's error.
"""

from dataclasses import dataclass

from core import toolcalls
from core.chat import Message, Row, assistant_turns


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
    if len(reply.calls) != 1:
        return Score(False, f"{len(reply.calls)} calls where one is due")
    call, gold = reply.calls[0], expected[0]["function"]
    if call.name != gold["name"]:
        return Score(False, f"wrong tool: {call.name}")
    faults = toolcalls.faults(call, row.tools)
    if faults:
        return Score(False, f"invalid: {faults[0]}")
    if call.arguments != gold["arguments"]:
        return Score(False, f"wrong values: {call.arguments}")
    return Score(True, "")
