"""Our messages as Inspect's, for its log and its viewer."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from core.chat import Message

if TYPE_CHECKING:
    import inspect_ai.model


def as_inspect(messages: Iterable[Message]) -> "list[inspect_ai.model.ChatMessage]":
    """One of Inspect's messages for each of ours; a call and its result share an id."""
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageTool,
        ChatMessageUser,
        ContentReasoning,
        ContentText,
    )
    from inspect_ai.tool import ToolCall

    made: list[Any] = []
    waiting: list[ToolCall] = []
    for number, message in enumerate(messages):
        content = message.get("content") or ""
        if message["role"] == "assistant":
            waiting = [
                ToolCall(
                    id=f"call_{number}_{i}",
                    function=call["function"]["name"],
                    arguments=call["function"]["arguments"],
                )
                for i, call in enumerate(message.get("tool_calls") or [])
            ]
            parts: list[Any] = [ContentText(text=content)]
            if message.get("reasoning_content"):
                parts.insert(0, ContentReasoning(reasoning=message["reasoning_content"]))
            made.append(ChatMessageAssistant(content=parts, tool_calls=list(waiting) or None))
        elif message["role"] == "tool":
            call = waiting.pop(0) if waiting else None
            made.append(
                ChatMessageTool(
                    content=content,
                    tool_call_id=call.id if call else None,
                    function=call.function if call else None,
                )
            )
        else:
            kind = ChatMessageSystem if message["role"] == "system" else ChatMessageUser
            made.append(kind(content=content))
    return made
