"""A request, and the one tool call that answers it; now and then the tool's answer and a closing word."""

import itertools
import random

from core import chat
from core.chat import Row
from dataset_builder import sources as src
from dataset_builder.drawing import values

CLOSED = 0.2
"""Share of rows that go on after the tool's answer."""


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows over every tool and wording in turn."""
    return _rows(sources, rng, split, split, count, "mcp_calls")


def synonyms(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows whose wordings use verbs and nouns that training never showed."""
    return _rows(sources, rng, split, "synonyms", count, "synonyms")


def _rows(
    sources: src.Sources, rng: random.Random, split: str, wordings: str, count: int, bucket: str
) -> list[Row]:
    made = []
    for number, ask in enumerate(itertools.islice(src.asks(sources, rng, split, wordings), count)):
        messages = [chat.user(ask.text), src.call(ask)]
        if rng.random() < CLOSED:
            first = values.shown(next(iter(ask.arguments.values())), rng)
            messages += [chat.result("ok"), chat.say(f"Listo: {first}.", think="Tool done.")]
        made.append(src.row(
            bucket, number, split, group=f"{ask.key}: {ask.wording}", system=rng.choice(src.SYSTEMS),
            tools=src.show(sources, [ask.key], rng), messages=messages,
            server=ask.request.server, source=f"schemas/{ask.request.server}.json#{ask.request.tool}",
        ))  # fmt: skip
    return made
