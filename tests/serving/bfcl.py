"""The ground-truth calls of the Berkeley Function-Calling Leaderboard (PyPI's bfcl-eval)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core import chat
from core.toolcalls import ToolCall

KINDS = {
    "string": str,
    "integer": int,
    "float": int | float,
    "double": int | float,
    "long": int,
    "number": int | float,
    "boolean": bool,
    "array": list,
    "dict": dict,
    "object": dict,
}
"""Type in a schema -> what a value of it is in Python."""


def questions(package: Path) -> Iterator[tuple[list[chat.Tool], list[ToolCall]]]:
    """Every row whose answer is calls: its tools and the first of the answers that it accepts."""
    for file in sorted((package / "data/possible_answer").glob("*.json")):
        rows = {row["id"]: row for row in _lines(package / "data" / file.name)}
        for answer in _lines(file):
            if isinstance(answer["ground_truth"][0], dict):
                tools = [chat.tool(**_function(one)) for one in rows[answer["id"]]["function"]]
                yield tools, [_call(one) for one in answer["ground_truth"]]


def expressible(call: ToolCall, tools: list[chat.Tool]) -> bool:
    """Whether the XML format can carry a call: each value is of its argument's type, which is a known one.

    A text where the schema says boolean, say, comes back as whatever it reads as.
    """
    (schema,) = (one["function"]["parameters"] for one in tools if one["function"]["name"] == call.name)
    return all(_fits(value, schema["properties"].get(name, {})) for name, value in call.arguments.items())


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    kind = KINDS.get(schema.get("type", ""))
    return bool(kind) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def _function(function: dict[str, Any]) -> dict[str, Any]:
    return {key: function[key] for key in ("name", "description", "parameters")}


def _call(answer: dict[str, Any]) -> ToolCall:
    ((name, arguments),) = answer.items()
    chosen = {key: _first(values) for key, values in arguments.items()}
    return ToolCall(name, {key: value for key, value in chosen.items() if value != ""})


def _first(values: list[Any]) -> Any:
    """The first value that is accepted; the keys of an object have lists of their own, and "" says absent."""
    value = values[0] if values else ""
    if isinstance(value, dict):
        inner = {key: _first(some) if isinstance(some, list) else some for key, some in value.items()}
        return {key: one for key, one in inner.items() if one != ""}
    return value
