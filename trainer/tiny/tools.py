"""A tool of the corpus: its schema, a request for it, and values as users type them."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import chat, phrases
from core.chat import Tool

ENGLISH, SPANISH = (
    tuple(part.split()[1:])
    for part in re.split(r"(?=spanish:)", (Path(__file__).parent / "words.txt").read_text(encoding="utf-8"))
)
WORDS = ENGLISH + SPANISH
"""Common words of both languages and of the trade: what any base has seen."""

ONSETS = ("b c d f g k l m n p r s t v z br tr pl gr ch").split()
VOWELS = ["a", "e", "i", "o", "u"]
CODAS = ["", "", "", "n", "r", "s", "l"]
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


def word(rng: random.Random, syllables: int | None = None) -> str:
    """A pronounceable invented word."""
    count = syllables or rng.choice([1, 2, 2, 2, 3])
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(count))


def words(rng: random.Random, low: int, high: int) -> str:
    """Some common words in a row."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def _place(rng: random.Random) -> str:
    parts = [word(rng).capitalize() for _ in range(rng.choice([2, 2, 2, 3]))]
    if rng.random() < 0.25:
        parts[-1] += f"_{word(rng).capitalize()}"
    return "/".join(parts)


VALUES: dict[str, Callable[[random.Random], Any]] = {
    "word": word,
    "name": lambda rng: word(rng).capitalize(),
    "text": lambda rng: words(rng, 2, 4) if rng.random() < 0.7 else f"{word(rng)} {word(rng)}",
    "path": lambda rng: f"{word(rng)}/{word(rng)}",
    "slug": lambda rng: f"{word(rng)}/{word(rng)}-{word(rng)}",
    "file": lambda rng: f"{_stem(rng)}.{rng.choice(['png', 'pdf', 'txt', 'md', 'py', 'css', 'json', 'sql'])}",
    "place": _place,
    "code": lambda rng: "".join(rng.choice(LETTERS) for _ in range(2)) + f"-{rng.randint(100, 999)}",
    "hex": lambda rng: "".join(rng.choice("0123456789abcdef") for _ in range(rng.choice([6, 7, 7, 8]))),
    "date": lambda rng: f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
    "time": lambda rng: f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}",
    "int": lambda rng: rng.choice([rng.randint(1, 9), rng.randint(10, 99), rng.randint(100, 999)]),
    "list": lambda rng: [VALUES["file"](rng) for _ in range(rng.choice([1, 1, 2]))],
}
QUOTES = ('"{}"', "'{}'", "«{}»")
PARAMETERS = (
    "name id label kind size level zone group key value tag host count mode target source unit user team "
    "note path file files message branch_name base_name repo_name max_size start_date end_date user_id "
    "file_path"
).split()


def _stem(rng: random.Random) -> str:
    return word(rng) if rng.random() < 0.6 else f"{word(rng)}_{word(rng)}"


def quote(rng: random.Random, value: Any, spanish: bool) -> str:
    """A value as a user types it: numbers bare, texts in quotes, lists joined."""
    if isinstance(value, int):
        return str(value)
    mark = rng.choice(QUOTES)
    if isinstance(value, list):
        joint = ", " if rng.random() < 0.5 else (" y " if spanish else " and ")
        return joint.join(mark.format(item) for item in value)
    return mark.format(value)


@dataclass(frozen=True)
class Known:
    """A tool: parameters as (name, kind of value), wordings as (Spanish?, text)."""

    name: str
    description: str
    parameters: tuple[tuple[str, str], ...]
    wordings: tuple[tuple[bool, str], ...]

    def schema(self, rng: random.Random) -> Tool:
        """The tool with its JSON schema; decorated at random with what real servers add."""
        properties: dict[str, Any] = {}
        for name, kind in self.parameters:
            properties[name] = _property(kind)
            if rng.random() < 0.2 and kind not in ("int", "list"):
                described = words(rng, 2, 12).capitalize()
                properties[name] = {"description": described, "type": "string"}
        if rng.random() < 0.2:
            extra = rng.choice(PARAMETERS)
            optional = {"default": rng.randint(1, 20), "type": "integer"}
            nullable = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
            if rng.random() < 0.4:
                nullable["description"] = words(rng, 4, 20).capitalize()
            properties.setdefault(extra, optional if rng.random() < 0.5 else nullable)
        required = [name for name, _ in self.parameters]
        parameters = {"properties": properties, "required": required, "type": "object"}
        return chat.tool("mcp__" + self.name, self.description, parameters)

    def ask(self, rng: random.Random) -> tuple[str, dict[str, Any], bool]:
        """A request, the arguments that it asks for, and whether it is in Spanish."""
        spanish, wording = rng.choice(self.wordings)
        arguments = {name: VALUES[kind](rng) for name, kind in self.parameters}
        shown = {name: quote(rng, value, spanish) for name, value in arguments.items()}
        return phrases.wrapped(wording.format(**shown), spanish, rng), arguments, spanish


def _property(kind: str) -> dict[str, Any]:
    if kind == "int":
        return {"type": "integer"}
    if kind == "list":
        return {"items": {"type": "string"}, "minItems": 1, "type": "array"}
    return {"type": "string"}
