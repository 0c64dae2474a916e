"""Calls that feed each other: one finds a thing by the name that the user knows, the next acts on its id.

The pairs are found among a server's tools: one lists the noun that an argument of the other identifies.
"""

import random
from dataclasses import dataclass
from typing import Any

from dataset_builder.drawing import arguments as args
from dataset_builder.drawing import methods
from dataset_builder.drawing.json_schema import Undrawable
from dataset_builder.drawing.texts import snake
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking import results
from dataset_builder.talking.tool_names import (
    IDENTIFIER,
    NUMBERED,
    PREPOSITIONS,
    Noun,
    head_of,
    identifies,
    noun_of,
    nouns_of,
    verb_and_words,
)

LISTED = 3
"""Entries in the answer that names the thing looked for."""
SEARCHES = {"query": "{}", "q": "{}", "keyword": "{}", "jql": 'summary ~ "{}"', "cql": 'title ~ "{}"'}
"""How a thing that is known by its title is searched for, by the name of the argument."""
READ_BETWEEN = 0.35
"""How often the thing is read before it is acted upon, where a tool can."""


@dataclass(frozen=True)
class Step:
    """One call of a chain and its answer."""

    tool: ToolSchema
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True)
class Chain:
    """Calls in their order; the last one takes `value`, which the first one's answer tells."""

    steps: tuple[Step, ...]
    argument: str
    """Name of the last call's argument that comes from the answer."""
    value: Any
    called: str
    """What the user calls the thing, as the answer does."""
    thing: Noun
    by_title: bool
    """Whether it is called by a title rather than a name."""


def drawn(tools: dict[str, ToolSchema], consumer: ToolSchema, rng: random.Random, split: str) -> Chain | None:
    """A chain that ends in a call of `consumer`, or None where nothing on its server finds what it needs."""
    if not any(map(_may_identify, consumer.properties)):
        return None
    try:
        last = args.draw_call(consumer, rng, split)
    except Undrawable:
        return None
    others = [
        tool for tool in tools.values() if tool.server == consumer.server and tool.name != consumer.name
    ]
    for name, thing in _identified(consumer, last):
        title = results.title_field(thing, results.id_field(name, thing))
        if title is None:
            continue
        own = (name, consumer.properties[name])
        sought, *rest = (
            results.item(consumer, thing, rng, split, {} if number else {name: last[name]}, own)
            for number in range(LISTED)
        )
        called = sought[title]
        # The space that a page is moved to is not the one to look for it in.
        moves = verb_and_words(consumer, last)[0] in ("move", "copy")
        place = {key: one for key, one in last.items() if not moves or key in ("owner", "repo")}
        found = _producer(others, thing, name, place, called, rng, split)
        if found is None:
            continue
        items = [sought, *rest]
        rng.shuffle(items)
        steps = [Step(*found, results.result_of(*found, rng, split, items=items))]
        reader = _reader(others, thing, name, last, rng, split) if rng.random() < READ_BETWEEN else None
        if reader is not None:
            steps.append(Step(*reader, results.result_of(*reader, rng, split, known={title: called})))
        head = head_of(verb_and_words(consumer, last)[1])
        known = {title: called} if head and head.en == thing.en else {}
        steps.append(Step(consumer, last, results.result_of(consumer, last, rng, split, known=known)))
        return Chain(tuple(steps), name, last[name], called, thing, title in ("title", "summary"))
    return None


def _may_identify(name: str) -> bool:
    plain = snake(name)
    return bool(IDENTIFIER.search(plain)) or plain in ("index", "sha")


def _identified(tool: ToolSchema, call: dict[str, Any]) -> list[tuple[str, Noun]]:
    """The arguments of a call that say which thing is meant, with that thing."""
    _, words = verb_and_words(tool, call)
    nouns = nouns_of(tuple(word for word in words if word not in PREPOSITIONS))
    found = []
    for name, value in call.items():
        if isinstance(value, bool) or not isinstance(value, str | int):
            continue
        plain = snake(name)
        base = IDENTIFIER.sub("", plain).removeprefix("source_")
        if plain in ("index", "number"):
            things = [thing for thing in nouns if thing.en in NUMBERED]
        elif plain == "id":
            things = nouns[-1:]
        else:
            things = [*nouns, *([noun_of(base)] if base and base != plain else [])]
        found += [(name, thing) for thing in things if identifies(name, thing)][:1]
    return found


def _producer(
    tools: list[ToolSchema],
    thing: Noun,
    name: str,
    place: dict[str, Any],
    called: str,
    rng: random.Random,
    split: str,
) -> tuple[ToolSchema, dict[str, Any]] | None:
    """A call that lists things like the one looked for, in the same place, without knowing it."""
    for tool in rng.sample(tools, len(tools)):
        chooser = methods.selector(tool.properties)
        for method in tool.properties[chooser]["enum"] if chooser else [None]:
            given = {chooser: method} if chooser else {}
            verb, words = verb_and_words(tool, given)
            head = head_of(words)
            if not results.is_list(verb, words) or head is None or head.en != thing.en:
                continue
            given |= {key: value for key, value in place.items() if key in tool.properties and key != name}
            given |= {key: SEARCHES[key].format(called) for key in tool.required if key in SEARCHES}
            call = _call(tool, given, rng, split)
            if call is not None and name not in call:
                return tool, call
    return None


def _reader(
    tools: list[ToolSchema], thing: Noun, name: str, last: dict[str, Any], rng: random.Random, split: str
) -> tuple[ToolSchema, dict[str, Any]] | None:
    """A call that reads the very thing."""
    for tool in rng.sample(tools, len(tools)):
        given = {key: last[key] for key in tool.properties if key in last}
        chooser = methods.selector(tool.properties)
        if chooser:
            given[chooser] = "get"
        verb, words = verb_and_words(tool, given)
        head = head_of(words)
        if verb != "get" or head is None or head.en != thing.en or name not in given:
            continue
        call = _call(tool, given, rng, split)
        if call is not None:
            return tool, call
    return None


def _call(tool: ToolSchema, given: dict[str, Any], rng: random.Random, split: str) -> dict[str, Any] | None:
    """A call of the given values alone, or None where the tool needs more."""
    if set(tool.required) - set(given):
        return None
    try:
        call = args.draw_call(tool, rng, split, given=given, sparse=True)
    except Undrawable:
        return None
    return None if set(call) - set(given) else call
