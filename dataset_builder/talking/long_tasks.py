"""What is said around a long task: the users' and the model's phrases (long_tasks.yaml), the report.

A report follows its template word for word; its placeholders (`<so>`, `[so]`, `{so}`, an ellipsis) are filled
from what the calls were given and what they answered.
"""

import functools
import json
import random
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dataset_builder.documents.skills import Skill
from dataset_builder.drawing.texts import snake
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking import replies, results, wording
from dataset_builder.talking.requests import read_yaml
from dataset_builder.talking.tool_names import lexicon, verb_and_words

FILE = Path(__file__).with_suffix(".yaml")
Fact = tuple[ToolSchema, dict[str, Any], str]
"""A call and its answer."""
PLACEHOLDER = re.compile(r"<(?!!--)[^<>\n]+>|\[[^\]\n]{2,}\](?!\()|\{[^{}\n]+\}|…|\.\.\.")
HEADING = re.compile(r"^(#{1,6} .*\S)[ \t]*$", re.MULTILINE)
FAILS = re.compile(r"\bfall|\berror|\bfail", re.IGNORECASE)
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
OPTIONS = re.compile(r"\s*(?:,|\||/|\bo\b|\bor\b)\s*")
OTHERWISE = re.compile(r"(?:,|\bo\b|\bor\b)\s+([A-ZÁÉÍÓÚ]\w*\.?)$")
"""`<one finding a sentence, or None.>`"""
LONGEST = 110
"""Characters of what one call brought."""
STOP = set(
    "a an the of to in for and with from el la los las un una de del en por para con sin lo que y o".split()
)


def phrase(what: str, spanish: bool, split: str, rng: random.Random) -> tuple[str, int]:
    """One of the user's phrases of a split, with its slots, and its number among them."""
    phrases = _book()["user"][what]["es" if spanish else "en"][split]
    number = rng.randrange(len(phrases))
    return phrases[number], number


def said(what: str, spanish: bool, **slots: object) -> str:
    """The model's own phrase, filled in; it is the same on every side."""
    return _book()["model"][what]["es" if spanish else "en"].format(**slots)


def verbs(verb: str) -> list[str]:
    """How people say what a tool's verb does, in one word each: `search` -> busca, encuentra, find, ..."""
    entry = lexicon()["verbs"].get(verb, {})
    return [
        one.split()[0].lower() for tongue in ("es", "en") for one in entry.get(tongue, {}).get("train", ())
    ]


def request(
    skill: Skill, asked: Sequence[tuple[str, Any]], rng: random.Random, split: str, tongue: str
) -> tuple[str, str]:
    """A user's text that asks for a skill, with every value word for word, and its template's id.

    `asked` are (argument or what it is called, value).
    """
    spanish, given = tongue == "es", dict(asked)
    inline, blocks = [], []
    in_place = given.keys() >= {"owner", "repo"}
    if in_place:
        inline.append(f"{'el repositorio' if spanish else 'the repository'} {given['owner']}/{given['repo']}")
    for name, value in asked:
        if name in ("owner", "repo") and in_place:
            continue
        label = name if " " in name else wording.name_of(name, spanish)
        if _is_long(value):
            blocks.append(f"{label[0].upper()}{label[1:]}:\n{wording.fenced(value)}")
        elif isinstance(value, bool):
            inline.append(f"{label}: {(('sí' if spanish else 'yes') if value else 'no')}")
        else:
            inline.append(f"{label} {wording.shown(value)}")
    details = f": {', '.join(inline)}" if inline else ""
    title = re.search(r"^#\s+(.+)$", skill.body, re.MULTILINE)
    task = title[1].strip() if title else skill.name.replace("-", " ")
    frame, number = phrase("requests", spanish, split, rng)
    text = frame.format(name=skill.name, title=task, task=task[0].lower() + task[1:], details=details)
    return "\n\n".join([text, *blocks]), f"{tongue}:{split}:{number}"


def _is_long(value: Any) -> bool:
    """Whether a value stands in a block of its own."""
    if isinstance(value, list):
        return any(_is_long(one) for one in value)
    if isinstance(value, wording.Described) or not isinstance(value, str | dict):
        return False
    return isinstance(value, dict) or "\n" in value or len(value) > wording.LONG or value[:1] in "{["


def filled(template: str, told: Mapping[str, Any], facts: Sequence[Fact], spanish: bool) -> str:
    """The template with its placeholders filled.

    Those named like an argument take its value; those that fill a line take what came back, one call each;
    what neither says is said to be unknown, never invented.
    """
    waiting = [brief(fact, spanish) for fact in facts]
    heading = ""
    lines = []
    for line in COMMENT.sub("", template).split("\n"):
        heading = line if line.startswith("#") else heading
        bare = line.strip().lstrip("-*0123456789. ").strip()
        whole = PLACEHOLDER.fullmatch(bare)
        if whole is None:
            lines.append(PLACEHOLDER.sub(lambda match: _value(match[0], told, spanish), line))
            continue
        value = _value(whole[0], told, spanish, unknown="")
        if not value:
            value = _fact(heading + bare, facts, waiting, spanish)
        lines.append(line.replace(bare, value))
    return "\n".join(lines).rstrip()


def stepwise(facts: Sequence[Fact], spanish: bool) -> str:
    """The closing text of a skill without a template: what each call brought."""
    return (
        said("stepwise", spanish)
        + "\n"
        + "\n".join(f"{n}. {brief(fact, spanish)}" for n, fact in enumerate(facts, 1))
    )


def failed(template: str, report: str, skill: str, number: int, error: str, spanish: bool) -> str | None:
    """The report where a step failed: the verdict that the skill's text names for it, and what is missing.

    None where the template has no such verdict among its options (`<Apta, No apta o Incompleta>`).
    """
    parts = HEADING.split(report)
    bodies = HEADING.split(COMMENT.sub("", template))
    if len(parts) != len(bodies):
        return None
    found = False
    for place, body in enumerate(bodies):
        whole = PLACEHOLDER.fullmatch(body.strip())
        if place % 2 or not whole:
            continue
        verdict = next((one for one in _options(whole[0]) if _is_for_failure(one, skill)), None)
        found = found or verdict is not None
        parts[place] = f"\n{verdict or said('lacking', spanish, n=number, error=error)}\n"
    return "".join(parts).strip() if found else None


def _is_for_failure(verdict: str, skill: str) -> bool:
    lines = (line for line in skill.split("\n") if FAILS.search(line))
    return any(re.search(rf"[«\"`*]{re.escape(verdict)}[»\"`*]", line) for line in lines)


def brief(fact: Fact, spanish: bool) -> str:
    """One line on what a call brought, in the answer's own words."""
    tool, _, result = fact
    try:
        data = json.loads(result)
    except ValueError:
        data = None
    entries = replies.entries_of(result) or []
    if isinstance(data, dict) and not any(isinstance(one, list) and one and isinstance(one[0], dict)
                                          for one in data.values()):  # fmt: skip
        plain = [f"{key}: {value}" for key, value in data.items() if isinstance(value, str | int | float)]
        text = ", ".join(plain[:3])
    elif len(entries) > 1:
        text = said("entries", spanish, count=len(entries), first=entries[0])
    else:
        text = (
            entries[0]
            if entries
            else next((line for line in result.split("\n") if re.search(r"\w", line)), "")
        )
    text = text.lstrip("# ")
    return f"`{tool.name}`: {text if len(text) <= LONGEST else text[:LONGEST].rsplit(' ', 1)[0] + '…'}"


def _value(placeholder: str, told: Mapping[str, Any], spanish: bool, unknown: str | None = None) -> str:
    inner = placeholder.strip("<>[]{}").strip()
    if options := _options(placeholder):
        return options[0]
    words = re.findall(r"[a-z]+", _plain(inner))
    content = [word.rstrip("s") for word in words if word not in STOP]
    # `título de la página` is about the title, `page title` as well.
    heads = set(content[:1] if {"de", "del", "of"} & set(words) else content[:1] + content[-1:])
    scored = [(len(set(content) & _names(name)), name) for name in told if heads & _names(name)]
    best = max(scored, key=lambda one: one[0], default=(0, ""))
    if best[0] and not isinstance(told[best[1]], dict) and "\n" not in str(told[best[1]]):
        return results.plain(told[best[1]])
    if otherwise := OTHERWISE.search(inner):
        return otherwise[1]
    return unknown if unknown is not None else said("unknown", spanish)


def _options(placeholder: str) -> list[str]:
    """The choices that a placeholder gives, `<Apta, No apta o Incompleta>`; none where it is no choice."""
    options = OPTIONS.split(placeholder.strip("<>[]{}").strip())
    are_names = all(re.match(r"[A-ZÁÉÍÓÚ✅❌]\S*(?: \S+){0,2}$", one) for one in options)
    return options if len(options) > 1 and are_names else []


def _fact(about: str, facts: Sequence[Fact], waiting: list[str], spanish: bool) -> str:
    """The answer that a line asks for: of the tool that its words name, else the next untold one."""
    words = _words(about)
    named = next((brief(fact, spanish) for fact in facts if _speaks_of(words, fact)), None)
    chosen = named if named in waiting else next(iter(waiting), None)
    if chosen is None:
        return said("nothing", spanish)
    waiting.remove(chosen)
    return chosen


def _speaks_of(words: set[str], fact: Fact) -> bool:
    """Whether words name what a call does: `resultado de la búsqueda` is of a tool that searches."""
    tool, call, _ = fact
    stems = {word[:3] for word in verbs(verb_and_words(tool, call)[0])}
    return bool({word[:3] for word in words} & stems) or bool(words & _words(tool.name))


@functools.cache
def _names(argument: str) -> frozenset[str]:
    """The words by which a template may call an argument."""
    named = f"{snake(argument)} {wording.name_of(argument, True)} {wording.name_of(argument, False)}"
    words = _words(named) - {"name", "nombre"}
    return frozenset(words | ({"ruta"} if "path" in words else set()))


def _words(text: str) -> set[str]:
    """The words of a text without accents, signs, the plural's s, small words."""
    return {word.rstrip("s") for word in re.findall(r"[a-z]+", _plain(text)) if word not in STOP}


def _plain(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text.lower().replace("_", " "))
    return "".join(char for char in decomposed if not unicodedata.combining(char))


@functools.cache
def _book() -> dict[str, Any]:
    return read_yaml(FILE)
