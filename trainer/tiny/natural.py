"""Servers of tools that exist only in one conversation, named in English and asked for in both languages.

From them the base learns what a general model knows already: which words of a request, in either language,
point to which tool of several alike.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from trainer.tiny.tools import WORDS, Known, word


@dataclass(frozen=True)
class Concept:
    """A verb, noun or quality of the lexicon."""

    name: str
    english: tuple[str, ...]
    spanish: tuple[str, ...]
    infinitives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Extra:
    """A parameter of the lexicon, and how a request says it."""

    name: str
    kind: str
    english: tuple[str, ...]
    spanish: tuple[str, ...]


def _entries(kind: str) -> list[list[str]]:
    lines = (Path(__file__).parent / "lexicon.txt").read_text(encoding="utf-8").splitlines()
    found = [line.removeprefix(f"{kind}: ") for line in lines if line.startswith(f"{kind}: ")]
    return [[part.strip() for part in line.split("|")] for line in found]


def _concepts(kind: str) -> tuple[Concept, ...]:
    return tuple(Concept(name, *map(_forms, forms)) for name, *forms in _entries(kind))


def _forms(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


VERBS, NOUNS, QUALITIES = (_concepts(kind) for kind in ("verb", "noun", "quality"))
PLACES = tuple((name, kind) for name, kind in _entries("place"))
EXTRAS = tuple(
    Extra(name, kind, _forms(english), _forms(spanish)) for name, kind, english, spanish in _entries("extra")
)
NAMES = tuple(dict.fromkeys(c.name for c in VERBS + NOUNS + QUALITIES))
"""English words that tools are named with."""
FORMS = tuple(
    dict.fromkeys(
        w
        for c in VERBS + NOUNS + QUALITIES
        for form in (*c.english, *c.spanish, *c.infinitives)
        for w in form.split()
    )
)
"""Every word that asks for a tool."""


def _meanings() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for concepts, kind in ((VERBS, "verb"), (NOUNS, "noun"), (QUALITIES, "quality")):
        for c in concepts:
            spanish = [form.split()[-1] for form in c.spanish] if kind == "noun" else list(c.spanish)
            if kind == "quality":
                spanish = [
                    _agree(form, article) for form in spanish for article in ("el", "la", "los", "las")
                ]
            for form in dict.fromkeys((c.name, *c.english, *spanish, *c.infinitives)):
                if " " not in form:
                    found.setdefault(form, []).append(f"{kind} {c.name}")
    return {word: tuple(names) for word, names in found.items()}


ASKABLE = ("show", "list", "read", "check", "search")
"""Verbs that a request may leave out: to want the list is to want it shown."""

FROM_TO = ("source", "target")


def server(rng: random.Random, count: int) -> list[Known]:
    """`count` tools of one invented server; each differs from the others in verb, noun or quality."""
    names = [word(rng, 1), word(rng, 2), rng.choice(WORDS).lower(), rng.choice(NOUNS).name]
    name = rng.choice(names)
    style = rng.choice(["verb noun", "verb noun", "noun", "quality noun verb"])
    prefix = [name] if rng.random() < 0.5 else []
    place = rng.choice(PLACES) if rng.random() < 0.7 else None
    triples = [_triple(rng)]
    tools = {}
    while len(tools) < count:
        label = "_".join(prefix + _label(triples[-1], style))
        if label not in tools:
            tools[label] = _tool(f"{name}__{label}", triples[-1], place or rng.choice(PLACES), rng)
        triples.append(_sibling(rng.choice(triples), rng))
    return list(tools.values())


Triple = tuple[Concept, Concept, Concept | None]


def _triple(rng: random.Random) -> Triple:
    quality = rng.choice(QUALITIES) if rng.random() < 0.35 else None
    return rng.choice(VERBS), rng.choice(NOUNS), quality


def _sibling(triple: Triple, rng: random.Random) -> Triple:
    verb, noun, quality = triple
    new_verb, new_noun, new_quality = _triple(rng)
    changed = rng.choice(["verb", "noun", "noun", "both", "quality"])
    if changed == "verb" and not (verb.name in ASKABLE and new_verb.name in ASKABLE):
        return new_verb, noun, quality
    if changed == "noun":
        return verb, new_noun, quality
    return (verb, noun, new_quality) if changed == "quality" else (new_verb, new_noun, new_quality)


def _label(triple: Triple, style: str) -> list[str]:
    verb, noun, quality = triple
    middle = [quality.name] if quality else []
    if style == "noun":
        return [*middle, noun.name] if verb.name in ASKABLE else [verb.name, *middle, noun.name]
    if style == "quality noun verb":
        return [noun.name, *middle, verb.name]
    return [verb.name, *middle, noun.name]


def _tool(name: str, triple: Triple, place: tuple[str, str], rng: random.Random) -> Known:
    verb, noun, quality = triple
    spanish = rng.random() < 0.5
    parts: dict[str, str] = {}
    kinds: dict[str, str] = {}
    if rng.random() < 0.9:
        kinds[place[0]] = place[1]
        parts[place[0]] = rng.choice(("de {}", "en {}") if spanish else ("of {}", "in {}", "for {}"))
    if rng.random() < 0.15:
        kind = rng.choice(["place", "word", "path"])
        pair = dict.fromkeys((f"{end}_{place[0]}" for end in FROM_TO), kind)
        kinds |= pair
        phrases = ("de {}", "a {}") if spanish else ("from {}", rng.choice(["to {}", "into {}"]))
        parts |= dict(zip(pair, phrases, strict=True))
    for extra in rng.sample(EXTRAS, rng.choice([0, 0, 1, 1, 2])):
        if len(kinds) < 3:
            kinds[extra.name] = extra.kind
            parts[extra.name] = rng.choice(extra.spanish if spanish else extra.english)
    if not kinds:
        kinds[place[0]], parts[place[0]] = place[1], "{}"
    shown = {key: phrase.format(f"{{{key}}}") for key, phrase in parts.items()}
    act = _spanish(triple, rng) if spanish else _english(triple, rng)
    told = list(shown.values())
    rng.shuffle(told)
    if rng.random() < 0.15:
        first, *told = told
        wording = f"{first[0].upper()}{first[1:]}, {act[0].lower()}{act[1:]}"
    else:
        wording = act
    wording = " ".join([wording, *told])
    subject = f"{noun.english[0]}" if quality is None else f"{quality.english[0]} {noun.english[0]}"
    owner = rng.choice(NOUNS).name
    described = rng.choice(
        [
            f"{verb.name.capitalize()}s the {subject} of a {owner}",
            f"{verb.name.capitalize()} the {subject}",
            f"{rng.choice(verb.english).capitalize()} the {subject} in the {owner}",
        ]
    )
    return Known(name, described, tuple(kinds.items()), ((spanish, _asked(wording, spanish)),))


def _asked(wording: str, spanish: bool) -> str:
    starts = ("cuál", "qué", "puedes", "me ") if spanish else ("what", "can", "which")
    if wording.lower().startswith(starts):
        return f"¿{wording}?" if spanish else f"{wording}?"
    return wording


def _spanish(triple: Triple, rng: random.Random) -> str:
    verb, noun, quality = triple
    article, _, name = rng.choice(noun.spanish).partition(" ")
    thing = f"{article} {name}"
    if quality:
        thing += f" {_agree(rng.choice(quality.spanish), article)}"
    order = rng.choice(verb.spanish).capitalize()
    infinitive = rng.choice(verb.infinitives)
    options = [f"{order} {thing}"] * 4
    options += [f"{start} {infinitive} {thing}" for start in ("Quiero", "Necesito", "Puedes")]
    if verb.name in ASKABLE:
        options += [f"Dime {thing}", f"Cuál es {thing}", f"Quiero {thing}", f"Necesito {thing}"]
    return rng.choice(options)


def _english(triple: Triple, rng: random.Random) -> str:
    verb, noun, quality = triple
    thing = "the " + (f"{rng.choice(quality.english)} " if quality else "") + rng.choice(noun.english)
    order = rng.choice(verb.english)
    options = [f"{order.capitalize()} {thing}"] * 4
    options += [f"I want to {order} {thing}", f"I need to {order} {thing}", f"Can you {order} {thing}"]
    if verb.name in ASKABLE:
        options += [f"Tell me {thing}", f"What is {thing}", f"I want {thing}", f"I need {thing}"]
    return rng.choice(options)


def _agree(quality: str, article: str) -> str:
    """A Spanish adjective in the gender and number of its noun's article."""
    if " " in quality:
        return quality
    if article in ("la", "las") and quality.endswith("o"):
        quality = quality[:-1] + "a"
    if article in ("los", "las"):
        quality += "s" if quality[-1] in "aeiou" else "es"
    return quality


MEANINGS = _meanings()
"""Word -> the concepts that it stands for, in either language."""
