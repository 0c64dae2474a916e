"""The agent loop: the model speaks, its calls are done, their results go back, until a turn calls nothing."""

from collections.abc import Awaitable, Callable, Sequence

from core import chat
from core.chat import Message, Tool
from core.toolcalls import ToolCall

Ask = Callable[[list[Message], list[Tool]], Awaitable[Message]]
"""A conversation and the tools shown -> the assistant's next message."""
Execute = Callable[[ToolCall], Awaitable[str]]
"""A call -> the text that the harness puts back for it."""


async def converse(
    opening: Sequence[Message], tools: list[Tool], ask: Ask, execute: Execute, turns: int
) -> list[Message]:
    """The assistant's and the tools' messages that follow `opening`.

    Ends with a turn that calls nothing, or after `turns` of them; then the last message is a tool's. Calls
    of one turn are done in their order.
    """
    trace: list[Message] = []
    for _ in range(turns):
        message = await ask([*opening, *trace], tools)
        trace.append(message)
        calls = [ToolCall(**one["function"]) for one in message.get("tool_calls") or []]
        if not calls:
            break
        trace += [chat.result(await execute(call)) for call in calls]
    return trace
