"""Calls to the user's servers: one, several at once, and chains in which one result feeds the next call.

Every row is made backwards: arguments first, drawn from the schema, then a request that carries them. Rules
that the servers state are kept in all of them, and some rows push towards breaking one.
"""

import itertools
import random
from collections.abc import Iterator

from core import chat
from core.chat import Row
from core.rules import Rule
from dataset_builder import sources as src
from dataset_builder.drawing import arguments as args
from dataset_builder.drawing.json_schema import Undrawable
from dataset_builder.servers import server_rules
from dataset_builder.talking import chains, penpot, prompts, replies, results, talks, temptations, wording
from dataset_builder.talking.chains import Step
from dataset_builder.talking.talks import Talk

KINDS = ("single", "answered", "chain", "parallel", "answered", "chain", "single", "rule")
"""What rows exercise, in turn; an `answered` one goes on to the result and what is said of it."""
CHAIN_TRIES = 25
"""Tools asked in vain for a chain before a row does without: few are fed by another one's answer."""
NAMED = 0.2
"""How often a request names the product although nothing else could be meant."""


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows over the tools in turn, of every server but Penpot's, which has a bucket of its own."""
    apart = penpot.servers(sources.tools.values())
    keys = [key for key, tool in sources.tools.items() if tool.server not in apart]
    stated = server_rules.deployed([sources.tools[key] for key in keys], sources.servers)
    order, kinds, made, misses = _endless(keys, rng), itertools.cycle(KINDS), [], 0
    while keys and len(made) < count and misses <= len(keys):
        kind = next(kinds)
        talk = _talk(kind, sources, keys, stated, rng, split) if kind in ("rule", "chain") else None
        talk = talk or _about(kind, sources, next(order), rng, split)
        if talk is None or not talks.holds(talk, stated.get(sources.tools[talk.key].server, [])):
            misses += 1
            continue
        misses = 0
        made.append(talks.row("mcp", len(made), split, sources, talk, rng))
    return made


def _endless(keys: list[str], rng: random.Random) -> Iterator[str]:
    while True:
        yield from rng.sample(keys, len(keys))


def _talk(
    kind: str,
    sources: src.Sources,
    keys: list[str],
    stated: dict[str, list[Rule]],
    rng: random.Random,
    split: str,
) -> Talk | None:
    """A conversation about whichever tools and rules make one of this kind."""
    try:
        if kind == "chain":
            return _chain(sources, keys, rng, split)
        server = rng.choice(sorted(stated)) if stated else ""
        return temptations.drawn(sources, stated.get(server, []), server, rng, split)
    except Undrawable:
        return None


def _about(kind: str, sources: src.Sources, key: str, rng: random.Random, split: str) -> Talk | None:
    """A conversation about this very tool."""
    try:
        several = _parallel(sources, key, rng, split) if kind == "parallel" else None
        return several or _single(kind, sources, key, rng, split)
    except Undrawable:
        return None


def _single(kind: str, sources: src.Sources, key: str, rng: random.Random, split: str) -> Talk:
    tool = sources.tools[key]
    call = args.draw_call(tool, rng, split)
    shown = prompts.shown(sources, [key], rng)
    named = prompts.is_ambiguous(sources, key, call, shown) or rng.random() < NAMED
    text, template = wording.request(tool, call, rng, split, named=named)
    spanish = wording.is_spanish(template)
    if kind == "answered":
        turns = talks.played([Step(tool, call, results.result_of(tool, call, rng, split))], spanish, rng)
    else:
        turns = [talks.calls([(tool, call)], replies.thought(tool, call, spanish, rng))]
    return Talk(kind="answered" if kind == "answered" else "single", key=key, template=template,
        turns=[chat.user(text), *turns], tools=shown,
    )  # fmt: skip


def _parallel(sources: src.Sources, key: str, rng: random.Random, split: str) -> Talk | None:
    """Calls that need nothing of each other: the same tool for several things, or tools of one server."""
    tool = sources.tools[key]
    if wording.action_kind(tool) == "use":
        return None
    count = rng.choice([2, 2, 3])
    first = args.draw_call(tool, rng, split, sparse=True)
    made = [(tool, first)]
    for _ in range(20):
        other = tool if rng.random() < 0.5 else sources.tools[rng.choice(_siblings(sources, key))]
        given = {
            name: first[name] for name in ("owner", "repo") if name in first and name in other.properties
        }
        call = args.draw_call(other, rng, split, given=given if other is not tool else {}, sparse=True)
        if (other, call) not in made and (call or other is not tool):
            made.append((other, call))
        if len(made) == count:
            break
    else:
        return None
    keys = [f"{one.server}.{one.name}" for one, _ in made]
    shown = prompts.shown(sources, keys, rng)
    named = any(
        prompts.is_ambiguous(sources, k, call, shown) for k, (_, call) in zip(keys, made, strict=True)
    )
    text, template = wording.requests(made, rng, split, named=named)
    spanish = wording.is_spanish(template)
    answers = [(one, call, results.result_of(one, call, rng, split)) for one, call in made]
    said = "\n\n".join(
        f"{number}. {replies.answer(*answer, spanish)}" for number, answer in enumerate(answers, 1)
    )
    turns = [
        talks.calls(made, replies.several(len(made), spanish)),
        *(chat.result(result) for *_, result in answers),
        chat.say(said, think=replies.closing(spanish, rng)),
    ]
    return Talk(kind="parallel", key=key, template=template, turns=[chat.user(text), *turns], tools=shown)


def _chain(sources: src.Sources, own_keys: list[str], rng: random.Random, split: str) -> Talk | None:
    own = [sources.tools[one] for one in own_keys]
    found = (
        chains.drawn(sources.tools, tool, rng, split) for tool in rng.sample(own, min(CHAIN_TRIES, len(own)))
    )
    chain = next((one for one in found if one), None)
    if chain is None:
        return None
    first, last = chain.steps[0], chain.steps[-1]
    key = f"{last.tool.server}.{last.tool.name}"
    keys = list(dict.fromkeys(f"{step.tool.server}.{step.tool.name}" for step in chain.steps))
    shown = prompts.shown(sources, keys, rng)
    named = prompts.is_ambiguous(sources, key, last.arguments, shown) or rng.random() < NAMED
    tongue = rng.choice(wording.TONGUES)
    told = last.arguments | {chain.argument: wording.called(chain.called, chain.by_title, tongue)}
    text, template = wording.request(last.tool, told, rng, split, tongue, named=named)
    spanish = wording.is_spanish(template)
    field = results.id_field(chain.argument, chain.thing)
    thoughts = [
        replies.search_first(first.tool, chain.argument, chain.called, spanish),
        replies.found(chain.called, field, chain.value, spanish),
    ]
    turns = talks.played(chain.steps, spanish, rng, thoughts)
    kind = "chain" if len(chain.steps) == 2 else "long chain"
    return Talk(
        kind=kind, key=key, template=f"{template} chain", turns=[chat.user(text), *turns], tools=shown
    )


def _siblings(sources: src.Sources, key: str) -> list[str]:
    """The tools of the same server that only read."""
    server = sources.tools[key].server
    own = [
        k
        for k, t in sources.tools.items()
        if t.server == server and wording.action_kind(t) in ("read", "list")
    ]
    return own or [key]
