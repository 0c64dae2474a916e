"""A case: a held-out row or a live task, and how it is tried. Every kind of them runs in the same harness."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.chat import Message
from eval.agent import Ask

Found = Mapping[str, Any]
"""What a gate found: `right`, `explanation`, and what else it knows, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One sample of an evaluation."""

    kind: str
    """`tool_calls`, `thinking_off`, `skills`, `near_miss`, `live`, `formality`."""
    id: str
    """The row's or the task's, once a kind."""
    bucket: str
    skill: str | None = None
    opening: list[Message]
    """What the conversation begins with."""
    thinking: bool = True
    repeatable: bool = True
    """Whether the same questions find the same world: then an interrupted run need not ask them again."""
    act: Callable[[Ask], Awaitable[list[Message]]]
    """Lets the model act; returns the trace, the messages that follow `opening`."""
    judge: Callable[[list[Message]], Awaitable[Found]]
    """Judges a trace."""
