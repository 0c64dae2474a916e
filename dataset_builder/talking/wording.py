"""A user's text for a call: what the tool's name and description say, with every argument's value in it.

The words stand in wording.yaml, by language and split. Long and structured values stand in fenced blocks.
"""

import json
import random
import re
from collections.abc import Sequence
from typing import Any

from dataset_builder.drawing import methods
from dataset_builder.drawing.texts import snake
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking.tool_names import (
    IDENTIFIER,
    PREPOSITIONS,
    Noun,
    identifies,
    lexicon,
    noun_of,
    nouns_of,
    plural_of,
    singular,
    verb_and_words,
)

TONGUES = ("es", "es", "en")
"""Two thirds Spanish."""
BARE = re.compile(r"[\w./@:#+-]+")
LONG = 160
"""Characters; longer texts stand in a block of their own."""


class Described(str):
    """Words that stand for a value which the user does not know: `titled «Carrito roto»`."""


def request(
    tool: ToolSchema,
    arguments: dict[str, Any],
    rng: random.Random,
    split: str,
    tongue: str | None = None,
    *,
    named: bool = False,
) -> tuple[str, str]:
    """A text that asks for this call, and the id of its template, which begins with the language.

    Every value stands in it word for word; a truth value is said by `with` or `without`. `tongue` (`es` or
    `en`) is drawn where it is not given; `named` says which product is meant.
    """
    tongue = tongue or rng.choice(TONGUES)
    sentence, blocks = task(tool, arguments, rng, split, tongue, named=named)
    frames = lexicon()["frames"][tongue][split]
    number = rng.randrange(len(frames))
    text = frames[number].format(sentence, l=_lowered(sentence))
    return _with_blocks(text, blocks), f"{tongue}:{split}:{number}"


def requests(
    calls: list[tuple[ToolSchema, dict[str, Any]]],
    rng: random.Random,
    split: str,
    tongue: str | None = None,
    *,
    named: bool = False,
) -> tuple[str, str]:
    """As `request`, of several calls at once."""
    tongue = tongue or rng.choice(TONGUES)
    openings = lexicon()["several"][tongue][split]
    number = rng.randrange(len(openings))
    tasks = [_with_blocks(*task(tool, call, rng, split, tongue, named=named)) for tool, call in calls]
    text = openings[number] + "\n" + "\n".join(f"{i}. {one}" for i, one in enumerate(tasks, 1))
    return text, f"{tongue}:{split}:several {number}"


def task(
    tool: ToolSchema,
    arguments: dict[str, Any],
    rng: random.Random,
    split: str,
    tongue: str,
    *,
    named: bool = False,
) -> tuple[str, list[str]]:
    """What is to be done, as a sentence without a frame, and the blocks that follow it."""
    said: set[str] = set()
    action = action_of(tool, arguments, rng, split, tongue, said)
    place = _place(arguments, tongue, said)
    inline, blocks = [], []
    for name, value in arguments.items():
        if name in said:
            continue
        if _is_block(value):
            blocks.append(f"{_label(name, tongue)}:\n{fenced(value)}")
        else:
            inline.append(_detail(name, value, tongue))
    front = [f"{'en' if tongue == 'es' else 'in'} {product_of(tool)}"] if named else []
    if place and (front or rng.random() < 0.3):
        front.append(place)
        place = ""
    sentence = _joined([action, *([place] if place else []), *inline])
    if front:
        opening = ", ".join(front)
        sentence = f"{opening[0].upper()}{opening[1:]}, {_lowered(sentence)}"
    return sentence, blocks


def called(name: str, by_title: bool, tongue: str) -> Described:
    """What stands for a thing that the user knows by its name alone."""
    if tongue == "es":
        return Described(f"que se {'titula' if by_title else 'llama'} «{name}»")
    return Described(f'{"titled" if by_title else "called"} "{name}"')


def action_kind(tool: ToolSchema) -> str:
    """`read`, `list`, `write` or `use` (nothing in its name says what it does); consolidated tools write."""
    verb, _ = verb_and_words(tool, {})
    if verb == "use":
        return "use"
    return {"get": "read", "check": "read", "list": "list", "search": "list"}.get(verb, "write")


def name_of(argument: str, spanish: bool) -> str:
    """An argument as people call it, with its article: `el id de la página`."""
    plain = snake(argument)
    base = IDENTIFIER.sub("", plain)
    kind = plain.removeprefix(base).strip("_")
    if base and kind and base in lexicon()["nouns"]:
        thing = noun_of(base)
        if not spanish:
            return f"the {kind} of the {thing.en}"
        named = {"key": "la clave", "number": "el número", "name": "el nombre"}.get(kind, "el id")
        return re.sub(r"\bde el\b", "del", f"{named} de {_article(thing, 'one', False)} {thing.es}")
    named = _named(plain, spanish)
    return (
        f"{_article(nouns_of(tuple(plain.split('_')))[-1], 'one', False)} {named}"
        if spanish
        else f"the {named}"
    )


def product_of(tool: ToolSchema) -> str:
    """What people call the product behind a tool: Jira, GitHub."""
    prefix = snake(tool.name).partition("_")[0]
    name = prefix if prefix in ("jira", "confluence") else tool.server
    return {"github": "GitHub"}.get(name, name[0].upper() + name[1:])


def is_spanish(template: str) -> bool:
    """Whether the template of a request is a Spanish one."""
    return template.startswith("es")


def action_of(
    tool: ToolSchema,
    arguments: dict[str, Any],
    rng: random.Random,
    split: str,
    tongue: str,
    said: set[str] | None = None,
) -> str:
    """`Lista las ramas`: verb and object of a call; what it says of the arguments is added to `said`."""
    said = set() if said is None else said
    verb, nouns = verb_and_words(tool, arguments)
    if (chooser := methods.selector(tool.properties)) in arguments:
        said.add(chooser)
    entry = lexicon()["verbs"][verb]
    if nouns:
        phrase = _object(nouns, entry["object"], tongue, arguments, said)
    else:
        phrase = f"{'en' if tongue == 'es' else 'in'} {product_of(tool)}"
    text = f"{rng.choice(entry[tongue][split])} {phrase}"
    return re.sub(r"\b(a|de) el\b", lambda match: {"a": "al", "de": "del"}[match[1]], text)


def shown(value: Any) -> str:
    """A value within a sentence, word for word: lists joined, texts of several words in quotation marks."""
    if isinstance(value, Described):
        return str(value)
    if isinstance(value, list):
        return ", ".join(shown(item) for item in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if BARE.fullmatch(text):
        return text
    mark = next((mark for mark in ("«{}»", '"{}"', "`{}`") if not set(mark) & set(text) - set("{}")), "{}")
    return mark.format(text)


def fenced(value: Any) -> str:
    """A value in a block of its own, word for word; JSON where it is no text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    kind = "" if isinstance(value, str) else "json"
    return f"{fence}{kind}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def _is_block(value: Any) -> bool:
    if isinstance(value, Described):
        return False
    if isinstance(value, list):
        return any(_is_block(item) for item in value)
    if isinstance(value, str):
        marks = sum(mark in value for mark in ('"', "«", "`"))
        return "\n" in value or len(value) > LONG or value[:1] in "{[" or marks > 1 or value != value.strip()
    return isinstance(value, dict)


def _place(arguments: dict[str, Any], tongue: str, said: set[str]) -> str:
    """The repository that a call is about, `owner/repo`."""
    if not {"owner", "repo"} <= arguments.keys() or said & {"owner", "repo"}:
        return ""
    said |= {"owner", "repo"}
    where = f"{arguments['owner']}/{arguments['repo']}"
    return f"en {where}" if tongue == "es" else f"in {where}"


def _detail(name: str, value: Any, tongue: str) -> str:
    plain, spanish = snake(name), tongue == "es"
    if isinstance(value, bool):
        return _flag(plain, value, spanish)
    for ending, es, en in lexicon()["details"]:
        if re.search(ending, plain):
            return (es if spanish else en).format(v=shown(value))
    base = IDENTIFIER.sub("", plain)
    if base != plain and base in lexicon()["nouns"]:
        thing = noun_of(base)
        if spanish:
            return f"para {_article(thing, 'one', False)} {thing.es} {shown(value)}"
        return f"for the {thing.en} {shown(value)}"
    return f"{'con' if spanish else 'with'} {_label(name, tongue).lower()} {shown(value)}"


def _flag(plain: str, value: bool, spanish: bool) -> str:
    for ending, *phrases in lexicon()["flags"]:
        if re.search(ending, plain):
            return phrases[(not value) + 2 * (not spanish)]
    named = _named(re.sub(r"^(include|with|is|has|enable|use|allow|set)_|_(only)$", "", plain), spanish)
    return f"{('con' if value else 'sin') if spanish else ('with' if value else 'without')} {named}"


def _label(name: str, tongue: str) -> str:
    named = _named(snake(name), tongue == "es")
    return named[0].upper() + named[1:]


def _named(plain: str, spanish: bool) -> str:
    """An argument's name as people say it: `parent_page` -> `página superior`."""
    parts = [part for part in plain.split("_") if part]
    found = nouns_of(tuple(parts))
    if not spanish or not all(noun.en.replace(" ", "_") in lexicon()["nouns"] for noun in found):
        return " ".join(parts)
    return " de ".join(noun.es for noun in reversed(found))


def _lowered(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _with_blocks(text: str, blocks: list[str]) -> str:
    return f"{text.rstrip('.')}.\n\n" + "\n\n".join(blocks) if blocks else text


def _joined(parts: list[str]) -> str:
    head, *rest = parts
    return head + (" " + ", ".join(rest) if rest else "")


# ---- the action ----------------------------------------------------------------------------------


def _object(parts: Sequence[str], kind: str, tongue: str, arguments: dict[str, Any], said: set[str]) -> str:
    """`los comentarios de la issue 42`: the nouns of a name, the identifiers of what they name in place."""
    phrases, position = [], 0
    while position < len(parts):
        preposition = ""
        if parts[position] in PREPOSITIONS:
            preposition = parts[position]
            position += 1
        stop = next((i for i in range(position, len(parts)) if parts[i] in PREPOSITIONS), len(parts))
        words = parts[position:stop]
        position = stop
        if words:
            phrases.append((preposition, words))
    said_parts = []
    for number, (preposition, words) in enumerate(phrases):
        own = kind if not number else "one"
        many = singular(words[-1]) != words[-1]
        phrase = _noun_phrase(words, own, many, tongue, arguments, said)
        link = PREPOSITIONS.get(preposition, "") if tongue == "es" else preposition
        said_parts.append(f"{link} {phrase}".strip())
    return " ".join(said_parts)


def _noun_phrase(
    words: Sequence[str], kind: str, many: bool, tongue: str, arguments: dict[str, Any], said: set[str]
) -> str:
    nouns = nouns_of(tuple(words))
    head = nouns[-1]
    plural = many or kind == "all"
    # One identifier names one thing: `the child pages 42` are those of page 42.
    own = [name for name in arguments if not plural or name.endswith("s")]
    values = [_identifier(noun, {name: arguments[name] for name in own}, said) for noun in nouns[-1:]]
    values = [*(_identifier(noun, arguments, said) for noun in nouns[:-1]), *values]
    if tongue == "en":
        named = " ".join(noun.en for noun, one in zip(nouns[:-1], values[:-1], strict=True) if not one)
        named = f"{named} {plural_of(head.en) if plural else head.en}".strip()
        article = "the"
        if kind == "all" or (kind == "some" and plural):
            article = ""
        elif kind == "some":
            article = "an" if named[0] in "aeiou" else "a"
        text = " ".join(part for part in (article, named, values[-1]) if part)
        link = "to" if kind == "some" else "of"
        owners = [
            f"{link} the {noun.en} {one}" for noun, one in zip(nouns[:-1], values[:-1], strict=True) if one
        ]
        return " ".join([text, *reversed(owners)])
    text = f"{_article(head, kind, plural)} {head.plural if plural else head.es} {values[-1]}".strip()
    for noun, one in zip(reversed(nouns[:-1]), reversed(values[:-1]), strict=True):
        link = "a" if kind == "some" else "de"
        text += f" {link} {_article(noun, 'one', False)} {noun.es} {one}" if one else f" de {noun.es}"
    return text


def _article(noun: Noun, kind: str, plural: bool) -> str:
    if kind == "some":
        return ("unas" if noun.feminine else "unos") if plural else ("una" if noun.feminine else "un")
    return ("las" if noun.feminine else "los") if plural else ("la" if noun.feminine else "el")


def _identifier(thing: Noun, arguments: dict[str, Any], said: set[str]) -> str:
    """The value of the argument that says which one of a noun is meant: `issue_number`, `pageId`."""
    if thing.en in ("repo", "repository") and {"owner", "repo"} <= arguments.keys() - said:
        said |= {"owner", "repo"}
        return f"{arguments['owner']}/{arguments['repo']}"
    for name, value in arguments.items():
        if name in said or isinstance(value, bool | dict) or _is_block(value):
            continue
        if identifies(name, thing):
            said.add(name)
            return shown(value)
    return ""
