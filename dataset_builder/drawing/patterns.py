"""Texts that match a regular expression: drawn from the parsed expression, then tried against it."""

import importlib
import random
import re
import string
from typing import Any

PRINTABLE = string.ascii_letters + string.digits + "-_. "
CATEGORIES = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_WORD": string.ascii_letters + string.digits + "_",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": string.ascii_letters,
    "CATEGORY_NOT_WORD": " -.",
    "CATEGORY_NOT_SPACE": string.ascii_letters + string.digits,
}
REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
MORE = 6
"""The most repetitions drawn beyond the least that an unbounded repeat asks for."""
TRIES = 50


def draw(pattern: str, rng: random.Random) -> str | None:
    """A text in which `pattern` is found, or None where none came out.

    Look-arounds and back references are not solved: a draw that they refuse is drawn again. Raises re.error
    where Python cannot compile the pattern.
    """
    regex = re.compile(pattern)
    parsed = importlib.import_module("re._parser").parse(pattern)
    for _ in range(TRIES):
        text = "".join(_written(op, rng) for op in parsed)
        if regex.search(text):
            return text
    return None


def _written(op: tuple[Any, Any], rng: random.Random) -> str:
    kind, value = str(op[0]), op[1]
    if kind == "LITERAL":
        return chr(value)
    if kind == "IN":
        return rng.choice(_members(value) or "?")
    if kind in REPEATS:
        low, high, part = value
        return "".join(
            _written(one, rng) for _ in range(rng.randint(low, min(high, low + MORE))) for one in part
        )
    if kind == "SUBPATTERN":
        return "".join(_written(one, rng) for one in value[-1])
    if kind == "ATOMIC_GROUP":
        return "".join(_written(one, rng) for one in value)
    if kind == "BRANCH":
        return "".join(_written(one, rng) for one in rng.choice(value[1]))
    if kind in ("ANY", "NOT_LITERAL"):
        return rng.choice([c for c in PRINTABLE if ord(c) != value])
    return ""  # anchors and look-arounds write nothing


def _members(parts: list[tuple[Any, Any]]) -> list[str]:
    """The characters of a set; of a wide one, those that people type."""
    found: set[str] = set()
    for kind, value in parts:
        if str(kind) == "LITERAL":
            found.add(chr(value))
        elif str(kind) == "RANGE":
            low, high = value
            found |= {chr(i) for i in range(low, min(high, low + 255) + 1)}
        elif str(kind) == "CATEGORY":
            found |= set(CATEGORIES[str(value)])
    if str(parts[0][0]) == "NEGATE":
        found = set(PRINTABLE) - found
    return sorted(found)
