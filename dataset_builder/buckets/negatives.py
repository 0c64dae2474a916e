"""When not to call, or to call another tool: the four outcomes of When2Call (arXiv 2504.18851), a skill
that is not due, a namesake on another server.

The four: answer directly, call, ask for what is missing, say that it cannot be done.
"""

import itertools
import random
import re
from dataclasses import replace

from core import chat
from core.chat import Row
from dataset_builder import sources as src
from dataset_builder.drawing import arguments as args
from dataset_builder.drawing.json_schema import Undrawable
from dataset_builder.drawing.texts import snake
from dataset_builder.schemas import ToolSchema
from dataset_builder.servers import server_rules
from dataset_builder.talking import prompts, replies, talks, wording
from dataset_builder.talking.talks import Talk
from dataset_builder.talking.tool_names import act_of, lexicon
from dataset_builder.verifying.rulebook import NOT_DUE

TRIES = 40
ASKED = re.compile(
    r"^(owner|repo|title|summary|query|jql|path|branch|name|body|content|url)$|_(id|key|number|name)$|^index$"
)
"""Required arguments that nobody can guess from the rest."""
SENTENCE = re.compile(r"(?<=[.!?])\s")
CASE = re.compile(r"\b(?:para|si|cuando|en caso de|for|if|when)\b\s+(.{8,160}?)[.;]?$", re.IGNORECASE)
"""What a sentence such as `do not use this skill for ...` excludes."""


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows over the outcomes in turn; those that the sources give nothing for are passed over."""
    kinds, made, barren = itertools.cycle(KINDS), [], set()
    stated = server_rules.deployed(sources.tools.values(), sources.servers)
    while len(made) < count and len(barren) < len(KINDS):
        kind = next(kinds)
        for _ in range(TRIES if kind not in barren else 0):
            try:
                talk = KINDS[kind](sources, rng, split)
            except Undrawable:
                continue
            own = stated.get(talk.key.partition(".")[0], []) if talk else []
            if talk is not None and talks.holds(talk, own):
                barren.discard(kind)
                made.append(_row(sources, talk, len(made), split, rng))
                break
        else:
            barren.add(kind)
    return made


def _row(sources: src.Sources, talk: Talk, number: int, split: str, rng: random.Random) -> Row:
    row = talks.row("negatives", number, split, sources, talk, rng)
    if "." in talk.key:
        return row
    # No tool is called: nothing of a server's, and perhaps a skill's text in the prompt.
    skill = next((one for one in sources.skills if one.name == talk.key), None)
    if skill is None:
        return replace(row, server=None, source="wording.yaml")
    shown = f"# Skill: {skill.name}\n{skill.body if sources.skill_prompt == 'body' else skill.description}"
    spoken = [message for message in row.messages if message["role"] != "system"]
    meta = row.meta | src.rules_elsewhere(sources, skill)
    messages = [*chat.system(shown), *spoken]
    return replace(row, server=None, skill=skill.name, source=str(skill.path), messages=messages, meta=meta)


def _phrase(what: str, spanish: bool, split: str, rng: random.Random) -> str:
    return rng.choice(lexicon()[what]["es" if spanish else "en"][split])


def _direct(sources: src.Sources, rng: random.Random, split: str) -> Talk:
    """What anybody knows, with tools at hand."""
    tongue = rng.choice(wording.TONGUES)
    spanish = tongue == "es"
    shown = prompts.shown(sources, [], rng)
    draw = rng.random()
    if draw < 0.4 and shown:
        about = rng.choice(shown)["function"]
        wordings = lexicon()["direct"]["tools"][tongue][split]
        number = rng.randrange(len(wordings))
        text, template = wordings[number].format(tool=about["name"]), f"{tongue}:{split}:tool {number}"
        said = f"`{about['name']}`: {SENTENCE.split(about['description'].strip())[0]}"
    elif draw < 0.8:
        wordings = lexicon()["direct"]["sums"][tongue][split]
        number, a, b = rng.randrange(len(wordings)), rng.randint(3, 99), rng.randint(3, 99)
        text, template = wordings[number].format(a=a, b=b), f"{tongue}:{split}:sum {number}"
        said = f"{a} × {b} = {a * b}."
    else:
        facts = lexicon()["direct"]["facts"][tongue][split]
        number = rng.randrange(len(facts))
        (text, said), template = facts[number], f"{tongue}:{split}:fact {number}"
    think = "Esto lo sé sin llamar a nada." if spanish else "I know this without calling anything."
    return Talk(kind="direct", key="talk", template=template, tools=shown,
                turns=[chat.user(text), chat.say(said, think=think)])  # fmt: skip


def _call(sources: src.Sources, rng: random.Random, split: str) -> Talk:
    """All that is needed is there: call, ask nothing."""
    key = rng.choice(list(sources.tools))
    tool = sources.tools[key]
    call = args.draw_call(tool, rng, split, sparse=True)
    shown = prompts.shown(sources, [key], rng)
    named = prompts.is_ambiguous(sources, key, call, shown)
    text, template = wording.request(tool, call, rng, split, named=named)
    think = replies.thought(tool, call, wording.is_spanish(template), rng)
    return Talk(kind="call", key=key, template=template, tools=shown,
                turns=[chat.user(text), talks.calls([(tool, call)], think)])  # fmt: skip


def _asking(sources: src.Sources, rng: random.Random, split: str) -> Talk | None:
    """A required argument is not in the request: ask for it, invent nothing."""
    key = rng.choice(list(sources.tools))
    tool = sources.tools[key]
    unsaid = [name for name in tool.required if ASKED.search(snake(name))]
    if not unsaid:
        return None
    call = args.draw_call(tool, rng, split, sparse=True)
    name = rng.choice(unsaid)
    missing = {name, "owner", "repo"} if name in ("owner", "repo") else {name}
    told = {other: value for other, value in call.items() if other not in missing}
    shown = prompts.shown(sources, [key], rng)
    text, template = wording.request(
        tool, told, rng, split, named=prompts.is_ambiguous(sources, key, call, shown)
    )
    spanish = wording.is_spanish(template)
    if name in ("owner", "repo"):
        what = "el repositorio (propietario/nombre)" if spanish else "the repository (owner/name)"
    else:
        what = wording.name_of(name, spanish)
    think = f"`{tool.name}` exige `{name}` y no lo han dicho. Pregunto." if spanish else (
        f"`{tool.name}` requires `{name}` and it was not said. I ask."
    )  # fmt: skip
    said = _phrase("ask", spanish, split, rng).format(what=what)
    return Talk(kind="request_for_info", key=key, template=f"{template} without {name}", tools=shown,
                turns=[chat.user(text), chat.say(said, think=think)])  # fmt: skip


def _cannot(sources: src.Sources, rng: random.Random, split: str) -> Talk | None:
    """The tool for it is not among those shown, nor one that does the like."""
    key = rng.choice(list(sources.tools))
    tool = sources.tools[key]
    call = args.draw_call(tool, rng, split, sparse=True)
    noun = act_of(tool, call)[1]
    others = {k: t for k, t in sources.tools.items() if t.server != tool.server and not _deals_with(t, noun)}
    if not others:
        return None
    shown = src.show(replace(sources, tools=others), [], rng)
    text, template = wording.request(tool, call, rng, split, named=True)
    spanish = wording.is_spanish(template)
    said = _phrase("cannot", spanish, split, rng).format(p=wording.product_of(tool))
    think = "Ninguna de las herramientas hace esto." if spanish else "None of the tools does this."
    return Talk(kind="cannot_answer", key=key, template=f"{template} cannot", tools=shown,
                turns=[chat.user(text), chat.say(said, think=think)])  # fmt: skip


def _wrong_server(sources: src.Sources, rng: random.Random, split: str) -> Talk | None:
    """Two servers have a tool of this name; the user says which is meant."""
    names: dict[str, list[str]] = {}
    for key, tool in sources.tools.items():
        names.setdefault(tool.name, []).append(key)
    twins = [keys for keys in names.values() if len(keys) > 1]
    if not twins:
        return None
    keys = rng.choice(twins)
    key = rng.choice(keys)
    tool = sources.tools[key]
    call = args.draw_call(tool, rng, split)
    text, template = wording.request(tool, call, rng, split, named=True)
    spanish = wording.is_spanish(template)
    product, other = wording.product_of(tool), next(sources.tools[k] for k in keys if k != key)
    think = (
        f"`{tool.name}` está en {product} y en {wording.product_of(other)}; piden {product}."
        if spanish
        else f"`{tool.name}` is there for {product} and {wording.product_of(other)}; {product} is meant."
    )
    return Talk(kind="wrong_server", key=key, template=f"{template} twin", tools=src.show(sources, keys, rng),
                turns=[chat.user(text), talks.calls([(tool, call)], think)])  # fmt: skip


def _near_miss(sources: src.Sources, rng: random.Random, split: str) -> Talk | None:
    """A case that a skill itself excludes: its procedure is not started."""
    cases = [
        (skill, quote, match[1])
        for skill in sources.skills
        if skill.name in sources.procedures
        and (split != "train" or skill.name not in sources.held_out_skills)
        for quote in sources.procedures[skill.name].not_when
        if (match := CASE.search(quote))
    ]
    if not cases:
        return None
    skill, quote, case = rng.choice(cases)
    spanish = re.search(r"\b(para|si|cuando|de|el|la|no)\b", quote, re.IGNORECASE) is not None
    wordings = lexicon()["near_miss"]["es" if spanish else "en"]
    number = rng.randrange(len(wordings[split]))
    said = rng.choice(wordings["said"]).format(name=skill.name, quote=quote)
    think = (
        f"La skill {skill.name} lo excluye: «{quote}»"
        if spanish
        else f'The skill {skill.name} excludes it: "{quote}"'
    )
    text = wordings[split][number].format(case=case)
    return Talk(kind=NOT_DUE, key=skill.name, template=f"{split}:near miss {number}: {case}",
                tools=prompts.shown(sources, [], rng),
                turns=[chat.user(text), chat.say(said, think=think)])  # fmt: skip


def _deals_with(tool: ToolSchema, noun: str) -> bool:
    return noun in {thing for _, thing in prompts.acts_of(tool)}


KINDS = {
    "direct": _direct,
    "call": _call,
    "request_for_info": _asking,
    "cannot_answer": _cannot,
    "wrong_server": _wrong_server,
    NOT_DUE: _near_miss,
}
"""Outcomes, by the function that plays one."""
