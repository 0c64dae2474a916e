"""The wall between training and held-out rows, and the proof that it stands."""

import random
from collections.abc import Iterator
from typing import Any

from core.chat import Row


def shuffled(rows: list[Row], seed: int) -> list[Row]:
    """The rows in an order that depends on the seed alone."""
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order


def leaks(train: list[Row], held_out: list[Row]) -> list[str]:
    """What stands on both sides: groups (wordings), requests, argument values. Empty when the wall stands.

    Replay rows are exempt from the last: they measure what the base knew, by the base's own tools.
    """
    found = []
    for what, parts in (("group", _groups), ("request", _requests), ("argument value", _values)):
        both = set(parts(train)) & set(parts(held_out))
        found += [f"{what} on both sides: {value!r}" for value in sorted(both, key=str)]
    return found


def argument_values(row: Row) -> Iterator[Any]:
    """Every value in the row's tool calls, lists by item."""
    for message in row.messages:
        for call in message.get("tool_calls") or []:
            for value in call["function"]["arguments"].values():
                yield from value if isinstance(value, list) else [value]


def _groups(rows: list[Row]) -> Iterator[str]:
    return (row.group for row in rows)


def _requests(rows: list[Row]) -> Iterator[str]:
    return (
        m["content"] for row in rows if row.bucket != "replay" for m in row.messages if m["role"] == "user"
    )


def _values(rows: list[Row]) -> Iterator[Any]:
    return (value for row in rows if row.bucket != "replay" for value in argument_values(row))
