"""Stand-ins for a model in a conversation: what they write goes through our parser, as real text does."""

from collections.abc import Callable
from typing import Any

import anyio

from core import toolcalls
from core.chat import Message, Row, Tool
from core.render import prompt_text
from eval import rollout
from eval.agent import Ask

Write = Callable[[str], str]
"""A prompt -> what the model writes after it."""


def message_of(text: str, tools: list[Tool]) -> Message:
    """Generated text as the server would send it."""
    return toolcalls.parse(text, tools).message()


def writer(write: Write, tokenizer: Any) -> Ask:
    """A model that is shown the rendered prompt."""

    async def ask(messages: list[Message], tools: list[Tool]) -> Message:
        return message_of(write(prompt_text(messages, tools, tokenizer)), tools)

    return ask


def play(row: Row, write: Write, tokenizer: Any) -> list[Message]:
    """The trace of a row with a model that writes so."""
    return anyio.run(rollout.run, row, writer(write, tokenizer))
