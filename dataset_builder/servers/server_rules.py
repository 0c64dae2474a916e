"""The rules that a deployed server states itself, in its instructions, its overview and its descriptions.

Servers change their minds: a rule is taught only where the dump says it, in words that are kept as its quote.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core import rules
from core.rules import Rule
from core.selectors import Selector
from dataset_builder.documents.normative import force_of
from dataset_builder.schemas import ServerInfo, ToolSchema

FILE = Path(__file__).with_suffix(".yaml")
SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?=\S)[^.!?\n]*)*(?:[.!?]|$)", re.MULTILINE)
"""A sentence on one line; the stop in `board.appendChild` ends none."""


@dataclass(frozen=True)
class Passage:
    """A sentence of a server's texts that commands or forbids."""

    server: str
    place: str
    """`instructions`, `overview`, a tool, or `<tool>.<argument>`."""
    quote: str
    """Word for word."""
    force: str
    """never | always | must | before | after | only_if"""


def deployed(tools: Iterable[ToolSchema], servers: Mapping[str, ServerInfo]) -> dict[str, list[Rule]]:
    """The known rules that each server states, by server; `quote` is the sentence that says it."""
    by_server = _by_server(tools)
    found = {}
    for server, own in by_server.items():
        texts = [text for _, text in _texts(own, servers.get(server))]
        names = {tool.name for tool in own}
        stated = [replace(rule, quote=quote) for rule in candidates()
                  if _names(rule) <= names and (quote := _quote(rule.quote, texts))]  # fmt: skip
        if stated:
            found[server] = stated
    return found


@functools.cache
def candidates() -> tuple[Rule, ...]:
    """The known rules; the quote of each is still a regular expression."""
    return tuple(rules.read(FILE))


def passages(tools: Iterable[ToolSchema], servers: Mapping[str, ServerInfo]) -> list[Passage]:
    """Every sentence that binds in what the servers say, known rule or not: what examples should cover."""
    return [
        Passage(server, place, sentence, force)
        for server, own in _by_server(tools).items()
        for place, text in _texts(own, servers.get(server))
        for sentence in _sentences(text)
        if (force := force_of(sentence, "paragraph"))
    ]


def described(rule: Rule) -> dict[str, str]:
    """A rule in words: its quote, when it applies, what it checks."""
    checks = {name: key.text for name, key in rule.keys.items() if isinstance(key, Selector)}
    when = {"when": rule.when.text} if rule.when else {}
    return {"id": rule.id, "quote": rule.quote, **when, "kind": rule.kind, **checks}


def is_covered(passage: Passage, stated: Iterable[Rule]) -> bool:
    """Whether a known rule of the passage's server was taken from it."""
    return any(rule.quote in passage.quote or passage.quote in rule.quote for rule in stated)


def _by_server(tools: Iterable[ToolSchema]) -> dict[str, list[ToolSchema]]:
    found: dict[str, list[ToolSchema]] = {}
    for tool in tools:
        found.setdefault(tool.server, []).append(tool)
    return found


def _texts(tools: Iterable[ToolSchema], info: ServerInfo | None) -> Iterator[tuple[str, str]]:
    """Place and text of all that a server says."""
    if info is not None:
        yield "instructions", info.instructions
        yield "overview", info.overview
    for tool in tools:
        yield tool.name, tool.description
        for name, schema in tool.properties.items():
            if isinstance(schema, dict) and isinstance(schema.get("description"), str):
                yield f"{tool.name}.{name}", schema["description"]


def _sentences(text: str) -> list[str]:
    return [match[0].strip(" -*") for match in SENTENCE.finditer(text) if match[0].strip(" -*")]


def _quote(pattern: str, texts: Iterable[str]) -> str | None:
    """The first sentence in which a pattern is found, whatever its case."""
    regex = re.compile(pattern, re.IGNORECASE)
    return next((s for text in texts for s in _sentences(text) if regex.search(s)), None)


def _names(rule: Rule) -> set[str]:
    """The tools that a rule speaks of."""
    selectors = [key for key in rule.keys.values() if isinstance(key, Selector)]
    return {name for selector in selectors for name in selector.calls if not re.search(r"[*?\[]", name)}


def calls_of(rule: Rule, key: str) -> tuple[str, ...]:
    """The tools that one selector of a rule names: of `before`, `first` and `then`."""
    selector: Any = rule.keys.get(key)
    return selector.calls if isinstance(selector, Selector) else ()
