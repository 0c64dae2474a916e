"""Stand-in models for the harness: they answer as they are told."""

import functools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from core import chat
from core.chat import Message, Row
from core.endpoint import Answer, Question
from eval.cases import Case
from eval.inspecting.run import Result, run

TOOL = chat.tool("clock", "Tells the time", {"type": "object", "properties": {"zone": {"type": "string"}}})
CALL = chat.call("clock", {"zone": "UTC"}, think="Look.")


def turns(count: int) -> list[Row]:
    """Rows of one turn: a call is due in every second."""
    return [
        Row(
            id=f"row-{i:02}",
            bucket="mcp_calls" if i % 2 else "no_tool",
            group=str(i),
            split="eval",
            messages=[chat.user(f"question {i}"), CALL if i % 2 else chat.say("De nada.", think="Thanks.")],
            tools=[TOOL],
        )
        for i in range(count)
    ]


class Planted:
    """A stand-in model: answers as it is told, and counts what it was asked."""

    name, parser = "planted", "none"

    def __init__(self, answer: Callable[[Question], Message]) -> None:
        self.answer, self.asked = answer, Counter[str]()

    async def ask(self, question: Question) -> Answer:
        self.asked[json.dumps([question.messages, question.thinking])] += 1
        return Answer(self.answer(question), "stop")


def hold(place: Path, cases: list[Case], model: Any, checkpoint: str = "0") -> list[Result]:
    """Run cases in the harness, its logs and kept answers under `place`."""
    work = functools.partial(
        run, cases, model, checkpoint=checkpoint, max_tokens=32, log_dir=place / "logs",
        cache_dir=place / "answers", what="test",
    )  # fmt: skip
    return anyio.run(work)


def right(question: Question) -> Message:
    number = int(question.messages[0]["content"].split()[-1])
    return CALL if number % 2 else chat.say("No hay de qué.", think="Thanks.")
