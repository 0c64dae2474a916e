"""Text parameters that carry JSON: their value is a JSON text, in the shape that the description shows."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

MENTION = re.compile(
    r"\bJSON[ -]?(?:encoded|formatted)?\s*(?:string|text|array|object|list)|as \W{0,2}JSON", re.I
)
ALTERNATIVE = re.compile(r"or a JSON", re.I)
ARRAY = re.compile(r"JSON (?:string )?(?:array|list)", re.I)
FIELD = re.compile(r"^\s*[-*] [`'\"]?(\w+)[`'\"]?(?: \(\w+\))?:", re.MULTILINE)
CATEGORIES = re.compile(r"(^|_)(type|priority|status|visibility|format)$")

Draw = Callable[[str, dict[str, Any]], Any]
"""(name, schema) -> a value."""


def is_due(description: str) -> bool:
    """Whether a text parameter's description says that its value is JSON."""
    return bool(MENTION.search(description)) and not ALTERNATIVE.search(description)


def draw(description: str, name: str, part: Draw) -> str:
    """A JSON text like one of the examples in the description, else of the fields that it lists."""
    shapes = list(_examples(description.replace("' '", "")))
    if not shapes:
        fields = FIELD.findall(description)[:3] or ["name", "description"]
        shapes = [dict.fromkeys(fields, "")]
    number = part("number", {"type": "integer"})
    shape = shapes[number % len(shapes)]
    if ARRAY.search(description) and not isinstance(shape, list):
        shape = [shape] * (1 + number % 2)
    return json.dumps(_like(shape, name, part), ensure_ascii=False)


def _examples(description: str) -> Iterator[Any]:
    decoder, position = json.JSONDecoder(), 0
    while match := re.compile(r"[{\[]").search(description, position):
        try:
            value, position = decoder.raw_decode(description, match.start())
        except ValueError:
            position = match.end()
            continue
        if value:
            yield value


def _like(shape: Any, name: str, part: Draw) -> Any:
    """A value of the same shape: texts and numbers drawn anew, keys and short categories as they are."""
    if isinstance(shape, dict):
        return {key: _like(value, key, part) for key, value in shape.items()}
    if isinstance(shape, list):
        return [_like(value, name.removesuffix("s"), part) for value in shape]
    if isinstance(shape, str) and not (shape and CATEGORIES.search(name)):
        return part(name, {"type": "string"})
    return part(name, {"type": "integer"}) if type(shape) is int else shape
