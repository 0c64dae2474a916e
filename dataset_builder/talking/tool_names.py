"""What a tool's name says: the verb, the nouns, and which argument says which one of a noun is meant.

The words that are known stand in wording.yaml.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_builder.drawing import methods
from dataset_builder.drawing.texts import snake
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking.requests import read_yaml

FILE = Path(__file__).with_name("wording.yaml")
PRODUCTS = set("jira confluence github gitea docmost penpot mcp ui all batch".split())
FAMILIES = {"actions", "projects"}
"""First words of consolidated tools, which their methods make clear."""
OWN_NAMES = {"commit": ("sha",), "file": ("path", "file_path", "filename"), "branch": ("branch_name",)}
"""Arguments that say which one is meant without naming the noun."""
PREPOSITIONS = {"to": "a", "from": "de", "for": "para", "of": "de", "on": "en", "in": "en", "with": "con"}
"""Of names, in Spanish."""
NUMBERED = ("issue", "pull request", "discussion", "sub issue", "alert", "milestone")
"""Things that people call by a number."""
IDENTIFIER = re.compile(r"_?(ids?_or_keys|ids?|keys?|numbers?|slug|uuid|name)$")


@dataclass(frozen=True)
class Noun:
    """A thing that tools deal with: Spanish singular and plural, its gender, English singular."""

    es: str
    plural: str
    feminine: bool
    en: str


RESULT = Noun("resultado", "resultados", False, "result")
"""What a tool gives whose name names nothing."""


@functools.cache
def lexicon() -> dict[str, Any]:
    """The words of wording.yaml."""
    return read_yaml(FILE)


def verb_and_words(tool: ToolSchema, arguments: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """`pull_request_read` with method `get_comments` -> `get`, (`comments`, `of`, `pull`, `request`)."""
    method = arguments.get(methods.selector(tool.properties) or "")
    return parsed(tool.name, method if isinstance(method, str) else None)


def act_of(tool: ToolSchema, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Verb and head noun of a call: (`get`, `comment`)."""
    verb, words = verb_and_words(tool, arguments)
    thing = head_of(words)
    return verb, thing.en if thing else ""


@functools.cache
def parsed(tool: str, method: str | None) -> tuple[str, tuple[str, ...]]:
    """The verb of a tool's name (or of its method), and the other words that say what it is about."""
    whole = [part for part in snake(tool).split("_") if part]
    name = [part for part in whole if part not in PRODUCTS] or whole
    verb = _verb_of(name)
    nouns = [part for part in name if part != verb]
    nouns = nouns[: nouns.index("by")] if "by" in nouns else nouns
    if "or" in nouns:
        nouns = [part for part in nouns if part != "or" and not _is_verb(part)]
    if method:
        parts = snake(method).split("_")
        own = next((part for part in parts if _is_verb(part)), None)
        rest = [part for part in parts if part not in (own, "by") and part not in PRODUCTS]
        verb = own or verb
        if rest and (FAMILIES & set(nouns) or set(nouns) <= {singular(part) for part in rest}):
            nouns = rest
        elif rest:
            nouns = [*rest, "of", *nouns]
    return lexicon()["same"].get(verb, verb), tuple(nouns)


def _verb_of(name: list[str]) -> str:
    """The word of a name that says what is done; `use` where none does."""
    if _is_verb(name[0]):
        return name[0]
    # `request` is what a pull is, unless it stands first.
    return next((part for part in (name[-1], *name) if _is_verb(part) and part != "request"), "use")


def _is_verb(part: str) -> bool:
    return part in lexicon()["verbs"] or part in lexicon()["same"]


@functools.cache
def head_of(words: tuple[str, ...]) -> Noun | None:
    """The noun that a tool is about: of `comments of pull request`, comment."""
    stop = next((i for i, word in enumerate(words) if word in PREPOSITIONS), None)
    found = nouns_of(words[:stop])
    return found[-1] if found else None


@functools.cache
def identifies(name: str, thing: Noun) -> bool:
    """Whether an argument says which one of a noun is meant: `issue_number`, `pageId`, `index`."""
    plain = snake(name)
    base = IDENTIFIER.sub("", plain).removeprefix("source_")
    own = base and noun_of(base).en
    named = plain != base and own and (thing.en == own or thing.en.endswith(f" {own}"))
    if plain in ("index", "number"):
        return thing.en in NUMBERED
    return bool(named) or plain in ("id", thing.en.replace(" ", "_"), *OWN_NAMES.get(thing.en, ()))


@functools.cache
def nouns_of(words: tuple[str, ...]) -> tuple[Noun, ...]:
    """The nouns of a name, the longest known ones first: `pull_request_comments` -> pull request, comment.

    Unknown words stay English, before the noun that they describe.
    """
    found, unknown, position, length = [], [], 0, 1
    while position < len(words):
        for length in range(len(words) - position, 0, -1):
            last = words[position + length - 1]
            base = "_".join([*words[position : position + length - 1], singular(last)])
            if base in lexicon()["nouns"]:
                head = noun_of(base)
                if unknown:
                    en = " ".join([*unknown, head.en])
                    head, unknown = Noun(en, plural_of(en), head.feminine, en), []
                found.append(head)
                break
            if length == 1:
                unknown.append(last)
        position += length
    if unknown:
        en = " ".join([*unknown[:-1], singular(unknown[-1])])
        found.append(Noun(en, plural_of(en), False, en))
    return tuple(found)


@functools.cache
def noun_of(base: str) -> Noun:
    """The noun of a name's words, `pull_request`; an unknown one stays as it is."""
    entry = lexicon()["nouns"].get(base)
    en = base.replace("_", " ")
    if entry is None:
        return Noun(en, en, False, en)
    return Noun(entry[0], entry[1], entry[2] == "f", *(entry[3:] or [en]))


def singular(word: str) -> str:
    """`branches` -> `branch`."""
    if word == "children":
        return "child"
    if word.endswith("ies"):
        return word[:-3] + "y"
    if re.search(r"(ch|sh|x|ss)es$", word):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def plural_of(word: str) -> str:
    """`branch` -> `branches`."""
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    if word == "child":
        return "children"
    return word + ("es" if re.search(r"(ch|sh|x|ss)$", word) else "" if word.endswith("s") else "s")
