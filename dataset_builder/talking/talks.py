"""Conversations in the making: the user's message, the model's turns, the tools' answers; and their row."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from core import chat, rules
from core.chat import Message, Row, Tool
from core.rules import Rule
from dataset_builder import sources as src
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking import prompts, replies
from dataset_builder.talking.chains import Step

Call = tuple[ToolSchema, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A conversation that starts with the user's message."""

    kind: str
    """What it exercises; the dataset's page shows it."""
    key: str
    """`<server>.<tool>` of the call that it is about."""
    template: str
    """Of the request: rows of one template stay on one side."""
    turns: list[Message]
    tools: list[Tool] = field(default_factory=list)
    """Those of the prompt."""
    trained: list[int] | None = None
    """Which assistant turns carry loss; None is all."""


def calls(made: Sequence[Call], think: str) -> Message:
    """An assistant turn that makes one or more calls at once."""
    functions = [{"name": tool.shown_name, "arguments": arguments} for tool, arguments in made]
    return {
        "role": "assistant",
        "reasoning_content": think,
        "content": "",
        "tool_calls": [{"type": "function", "function": function} for function in functions],
    }


def played(
    steps: Iterable[Step], spanish: bool, rng: random.Random, thoughts: Sequence[str] = ()
) -> list[Message]:
    """The turns of calls made one after the other; the last one is closed with an answer.

    `thoughts` are those of the first steps; the others are written here.
    """
    turns: list[Message] = []
    steps = list(steps)
    for number, step in enumerate(steps):
        think = (
            thoughts[number]
            if number < len(thoughts)
            else replies.thought(step.tool, step.arguments, spanish, rng)
        )
        turns += [calls([(step.tool, step.arguments)], think), chat.result(step.result)]
    last = steps[-1]
    turns.append(
        chat.say(
            replies.answer(last.tool, last.arguments, last.result, spanish),
            think=replies.closing(spanish, rng),
        )
    )
    return turns


def holds(talk: Talk, own: Sequence[Rule]) -> bool:
    """Whether a conversation keeps the rules of its server."""
    request = talk.turns[0]["content"]
    return not any(one.verdict == rules.BROKEN for one in rules.check(own, talk.turns[1:], request))


def row(bucket: str, number: int, split: str, sources: src.Sources, talk: Talk, rng: random.Random) -> Row:
    """The dataset row of a conversation."""
    server, _, tool = talk.key.partition(".")
    return src.row(
        bucket, number, split, group=f"{talk.key}: {talk.template}",
        system=prompts.system(sources.servers, talk.tools, rng), tools=talk.tools, messages=talk.turns,
        train_turns=talk.trained, server=server, source=f"schemas/{server}.json#{tool}",
        meta={"kind": talk.kind},
    )  # fmt: skip
