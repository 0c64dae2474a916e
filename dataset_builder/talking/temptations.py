"""Conversations about a rule that a server states: kept as a matter of course, or against a user who pushes.

Here are the rules of call order and of asking; Penpot's, which are about code, are in buckets/penpot.py.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core import chat
from core.rules import Rule
from dataset_builder import sources as src
from dataset_builder.drawing import arguments as args
from dataset_builder.drawing import texts
from dataset_builder.schemas import ToolSchema
from dataset_builder.servers import server_rules
from dataset_builder.talking import prompts, results, talks, wording
from dataset_builder.talking.chains import Step
from dataset_builder.talking.talks import Talk
from dataset_builder.talking.tool_names import RESULT, head_of, lexicon, verb_and_words
from dataset_builder.talking.wording import Described

TEMPTED = 0.6
"""Share in which the user pushes towards breaking the rule."""


@dataclass(frozen=True)
class Feed:
    """How the first call of a `before` rule feeds the second."""

    argument: str | None
    """Of the second call: its value comes from the first one's answer."""
    first: dict[str, Any] = field(default_factory=dict)
    then: dict[str, Any] = field(default_factory=dict)


FEEDS = {
    "transitions-first": Feed("transition_id"),
    "sha-of-the-file": Feed("sha"),
    "label-ids": Feed("labels", {"method": "list_repo_labels"}, {"method": "add_labels"}),
    "read-before-replacing": Feed(None),
}


def drawn(
    sources: src.Sources, own: Sequence[Rule], server: str, rng: random.Random, split: str
) -> Talk | None:
    """A conversation on one of a server's rules, or None where it has none that this module plays."""
    played = {"project-from-the-user": _asks, "author-by-search": _searches} | dict.fromkeys(FEEDS, _in_order)
    known = [rule for rule in own if rule.id in played]
    if not known:
        return None
    rule = rng.choice(known)
    return played[rule.id](sources, rule, server, rng, split)


def pushed(text: str, rule: str, template: str, rng: random.Random, split: str) -> tuple[str, str]:
    """A request and its template with what a user adds who wants a rule broken."""
    phrases = lexicon()["temptations"][rule]["es" if wording.is_spanish(template) else "en"][split]
    number = rng.randrange(len(phrases))
    return (
        f"{text}\n{phrases[number]}" if "\n" in text else f"{text.rstrip('.')}. {phrases[number]}",
        f"{template} {rule} {number}",
    )


def because(rule: Rule, spanish: bool) -> str:
    """The rule as the server says it."""
    quote = rule.quote.rstrip(".:; ")
    return f"El servidor lo deja claro: «{quote}»." if spanish else f'The server is clear: "{quote}".'


def _in_order(sources: src.Sources, rule: Rule, server: str, rng: random.Random, split: str) -> Talk | None:
    first, then = (
        sources.tools[f"{server}.{server_rules.calls_of(rule, key)[0]}"] for key in ("first", "then")
    )
    feed = FEEDS[rule.id]
    given = dict(feed.then)
    if feed.argument:
        given[feed.argument] = args.draw(
            then.properties[feed.argument], rng, split, name=feed.argument, root=then.parameters
        )
    last = args.draw_call(then, rng, split, given=given, sparse=True)
    shared = {
        name: value for name, value in last.items() if name in first.properties and name not in feed.then
    }
    before = args.draw_call(first, rng, split, given=shared | feed.first, sparse=True)
    told, result = dict(last), results.result_of(first, before, rng, split)
    tongue = rng.choice(wording.TONGUES)
    if feed.argument:
        result, words = _told_by(first, before, feed.argument, last[feed.argument], rng, split, tongue)
        told = {name: words if name == feed.argument else value for name, value in last.items()}
        told = {name: value for name, value in told.items() if value is not None}
    shown = prompts.shown(sources, [f"{server}.{first.name}", f"{server}.{then.name}"], rng)
    text, template = wording.request(then, told, rng, split, tongue, named=True)
    spanish, tempted = wording.is_spanish(template), rng.random() < TEMPTED
    if tempted:
        text, template = pushed(text, "before", template, rng, split)
    why = because(rule, spanish)
    order = (
        f"Antes de `{then.name}` va `{first.name}`."
        if spanish
        else f"`{first.name}` comes before `{then.name}`."
    )
    steps = [Step(first, before, result), Step(then, last, results.result_of(then, last, rng, split))]
    turns = talks.played(steps, spanish, rng, [f"{why} {order}"])
    if tempted:
        turns[-1]["content"] += f"\n\n{order} {why}"
    return Talk(
        kind="temptation" if tempted else "rule", key=f"{server}.{then.name}",
        template=f"{template} {rule.id}", turns=[chat.user(text), *turns], tools=shown,
    )  # fmt: skip


def _told_by(
    tool: ToolSchema,
    call: dict[str, Any],
    argument: str,
    value: Any,
    rng: random.Random,
    split: str,
    tongue: str,
) -> tuple[str, Described | None]:
    """An answer that tells a value, and the words by which the user means it (None: needs none)."""
    verb, words = verb_and_words(tool, call)
    thing = head_of(words) or RESULT
    if not results.is_list(verb, words):
        content = results.of_side(texts.code, rng, split)
        return results.dumped({"path": call.get("path", ""), argument: value, "content": content}), None
    sought = value if isinstance(value, list) else [value]
    own = ("id", {"type": "integer" if isinstance(sought[0], int) else "string"})
    items = [results.item(tool, thing, rng, split, {"id": one}, own) for one in sought]
    names = [item["name"] for item in items]
    items += [results.item(tool, thing, rng, split, None, own) for _ in range(2)]
    rng.shuffle(items)
    said = ", ".join(f"«{name}»" for name in names)
    return results.result_of(tool, call, rng, split, items=items), Described(said)


def _asks(sources: src.Sources, rule: Rule, server: str, rng: random.Random, split: str) -> Talk:
    """The project is not named: the model asks for it, whatever the user says of guessing."""
    tool = sources.tools[f"{server}.jira_create_issue"]
    call = args.draw_call(tool, rng, split, sparse=True)
    told = {name: value for name, value in call.items() if name != "project_key"}
    text, template = wording.request(tool, told, rng, split)
    spanish, tempted = wording.is_spanish(template), rng.random() < TEMPTED
    if tempted:
        text, template = pushed(text, rule.id, template, rng, split)
    question = (
        f"¿En qué proyecto la creo? Dime su clave. {because(rule, True)}"
        if spanish
        else f"In which project shall I create it? Tell me its key. {because(rule, False)}"
    )
    think = (
        "Falta el proyecto y no me toca inventarlo. Pregunto."
        if spanish
        else "The project is missing and it is not mine to make up. I ask."
    )
    return Talk(
        kind="temptation" if tempted else "request_for_info", key=f"{server}.{tool.name}",
        template=f"{template} {rule.id}", turns=[chat.user(text), chat.say(question, think=think)],
        tools=prompts.shown(sources, [f"{server}.{tool.name}"], rng),
    )  # fmt: skip


def _searches(sources: src.Sources, rule: Rule, server: str, rng: random.Random, split: str) -> Talk:
    """Pull requests of an author are searched for, not listed."""
    tool, listing = (
        sources.tools[f"{server}.{name}"] for name in ("search_pull_requests", "list_pull_requests")
    )
    author = args.draw({"type": "string"}, rng, split, name="author")
    call = args.draw_call(tool, rng, split, given={"query": f"author:{author}"}, sparse=True)
    tongue = rng.choice(wording.TONGUES)
    by = Described(f"del autor {author}" if tongue == "es" else f"by the author {author}")
    text, template = wording.request(tool, call | {"query": by}, rng, split, tongue)
    spanish, tempted = wording.is_spanish(template), rng.random() < TEMPTED
    if tempted:
        text, template = pushed(text, rule.id, template, rng, split)
    step = Step(tool, call, results.result_of(tool, call, rng, split))
    turns = talks.played([step], spanish, rng, [because(rule, spanish)])
    if tempted:
        turns[-1]["content"] += f"\n\n{because(rule, spanish)}"
    keys = [f"{server}.{one.name}" for one in (tool, listing)]
    return Talk(
        kind="temptation" if tempted else "rule", key=keys[0], template=f"{template} {rule.id}",
        turns=[chat.user(text), *turns], tools=prompts.shown(sources, keys, rng),
    )  # fmt: skip
