"""The wall between training and held-out rows, and the proof that it stands."""

import functools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from core.chat import Row
from dataset_builder.documents.skills import Skill
from dataset_builder.drawing.schema_values import named_values

SMALL = 100
"""Numbers below it, such as page sizes, may stand on both sides: they tell nothing of what was asked."""
LEAST_WORDS = 5
"""Shorter sentences and requests are common coin."""

_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n")
_MARKDOWN = re.compile(r"^[\s>#*\-\d.\[\]]+|[*`_]+")


def shuffled(rows: list[Row], seed: int) -> list[Row]:
    """The rows in an order that depends on the seed alone."""
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order


def leaks(train: Sequence[Row], held_out: Sequence[Row]) -> list[str]:
    """What stands on both sides: rows, groups, requests, templates, argument values. Empty when nothing.

    A template is a request without the values of its calls. Values that a tool's schema spells out,
    booleans, and numbers below 100 are free. Replay rows are exempt from all but the first two: they measure
    what the base knew, by the base's own tools.
    """
    kinds: dict[str, Callable[[Row], Iterable[Any]]] = {
        "row": lambda row: [json.dumps([row.messages, row.tools], ensure_ascii=False)],
        "group": lambda row: [row.group],
        "request": lambda row: _requests(row) if row.bucket != "replay" else (),
        "template": lambda row: _templates(row) if row.bucket != "replay" else (),
        "argument value": lambda row: free_values(row) if row.bucket != "replay" else (),
    }
    found = []
    for what, parts in kinds.items():
        both = _all(parts, train) & _all(parts, held_out)
        found += [f"{what} on both sides: {value[:200]!r}" for value in sorted(both)]
    return found


def held_out_skills_in(train: Sequence[Row], skills: Sequence[Skill], held_out: Sequence[str]) -> list[str]:
    """Where training rows name a held-out skill or repeat its description or a sentence of it.

    Sentences that another skill has as well are not the held-out skill's own.
    """
    places: dict[str, str] = {}
    for row in train:
        for text in _texts([row.skill, row.group, row.source, row.messages, row.tools]):
            places.setdefault(text, row.id)
    read = [(row, _plain(text)) for text, row in places.items()]
    owners = Counter(one for skill in skills for one in set(_sentences(skill)))
    found = []
    for skill in skills:
        if skill.name in held_out:
            own = [one for one in _sentences(skill) if owners[one] == 1]
            name = re.compile(rf"(?<![\w-]){re.escape(skill.name)}(?![\w-])")
            for row, text in read:
                if "-" in skill.name and name.search(text):
                    found.append(f"held-out skill {skill.name} is named in row {row}")
                found += [f"a sentence of {skill.name} in row {row}: {one!r}" for one in own if one in text]
    return list(dict.fromkeys(found))


def argument_values(row: Row) -> Iterator[Any]:
    """Every value in the row's tool calls, lists and objects by item."""
    for message in row.messages:
        for call in message.get("tool_calls") or []:
            for value in call["function"]["arguments"].values():
                yield from _leaves(value)


def free_values(row: Row) -> Iterator[str]:
    """The argument values that the row's author chose, as JSON: what no schema spells out."""
    fixed: set[str] = set()
    for tool in row.tools:
        fixed |= _spelled_out(json.dumps(tool["function"].get("parameters") or {}))
    for value in argument_values(row):
        written = json.dumps(value, ensure_ascii=False)
        small = isinstance(value, int | float) and abs(value) < SMALL  # booleans as well
        if value is not None and not small and written not in fixed:
            yield written


@functools.lru_cache(maxsize=4096)
def _spelled_out(schema: str) -> frozenset[str]:
    """The values that a schema gives by enum, const, default or in a description, as JSON."""
    found: list[Any] = []
    for part in _mappings(json.loads(schema)):
        choices = part.get("enum")
        found += [*(choices if isinstance(choices, list) else ()), *named_values(part)]
        found += [part[key] for key in ("const", "default") if key in part]
    return frozenset(json.dumps(leaf, ensure_ascii=False) for value in found for leaf in _leaves(value))


def _all(parts: Callable[[Row], Iterable[str]], rows: Sequence[Row]) -> set[str]:
    return {part for row in rows for part in parts(row)}


def _requests(row: Row) -> list[str]:
    """What the user asks: the first text, and later ones that say more than `Sí, adelante`."""
    first, *later = [message["content"] for message in row.messages if message["role"] == "user"]
    return [first, *(text for text in later if _words(text) >= LEAST_WORDS)]


def _templates(row: Row) -> Iterator[str]:
    values = sorted({str(value) for value in argument_values(row)}, key=len, reverse=True)
    given = re.compile("|".join(rf"(?<!\w){re.escape(value)}(?!\w)" for value in values if value) or r"(?!)")
    for request in _requests(row):
        template, count = given.subn("{}", request)
        if count and _words(template) >= LEAST_WORDS:
            yield template


def _sentences(skill: Skill) -> list[str]:
    parts = [skill.description, *_SENTENCE_END.split(f"{skill.description}\n{skill.body}")]
    plain = dict.fromkeys(_plain(_MARKDOWN.sub("", part)) for part in parts)
    return [one for one in plain if _words(one) >= LEAST_WORDS]


def _words(text: str) -> int:
    return len(re.findall(r"\w+", text))


def _plain(text: str) -> str:
    return " ".join(_MARKDOWN.sub("", text).casefold().split())


def _texts(value: Any) -> Iterator[str]:
    return (leaf for leaf in _leaves(value) if isinstance(leaf, str))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _mappings(item)
