"""What a tool answers: plausible texts whose names and numbers agree with the call and can feed the next.

Servers differ, so each tool keeps one manner, by a digest of its name: a bare JSON list, one inside an
object, or lines of text.
"""

import hashlib
import json
import random
import re
from collections.abc import Sequence
from typing import Any

from dataset_builder.drawing import arguments as args
from dataset_builder.drawing import methods, texts, values
from dataset_builder.drawing.texts import snake
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking import penpot
from dataset_builder.talking.tool_names import (
    NUMBERED,
    PREPOSITIONS,
    RESULT,
    Noun,
    head_of,
    identifies,
    singular,
    verb_and_words,
)

Item = dict[str, Any]

BARE = re.compile(r"[\w-]+")
READS = ("get", "check", "download", "export", "use")
MANY = ("list", "search")
NAMED = ("branch", "tag", "label", "file", "release", "workflow", "component", "version")
TITLED = (
    "issue",
    "pull request",
    "page",
    "discussion",
    "milestone",
    "sub issue",
    "child page",
    "gist",
    "alert",
)
TEXTS = ("content", "diff", "log", "overview", "body", "blame", "code", "wiki")
"""Nouns that are read as a text and not as an object."""
BODIES = ("page", "issue", "pull request", "discussion", "gist", "comment")
"""Nouns that are read with their text."""
EXTRAS: dict[str, tuple[str, ...]] = {
    "issue": ("state", "author", "labels", "updated"),
    "pull request": ("state", "author", "head", "updated"),
    "commit": ("author", "date"),
    "page": ("updated",),
    "sprint": ("state", "start_date"),
    "user": ("email",),
    "member": ("email",),
    "comment": ("author", "date"),
    "file": ("sha",),
    "release": ("published",),
}
"""What is told of a thing besides who and what it is."""
PEOPLE = ("user", "member", "watcher", "collaborator", "reviewer", "assignee", "team member")


def result_of(
    tool: ToolSchema,
    arguments: dict[str, Any],
    rng: random.Random,
    split: str,
    *,
    items: list[Item] | None = None,
    known: dict[str, Any] | None = None,
) -> str:
    """The answer's text; every free value in it is of the split.

    `items` are the entries that a list is to hold, `known` fields that an object is to show.
    """
    if tool.name in PENPOT:
        return PENPOT[tool.name](arguments, rng)
    verb, words = verb_and_words(tool, arguments)
    thing = head_of(words) or RESULT
    if items is not None or is_list(verb, words):
        return _listed(
            tool, thing, items or [item(tool, thing, rng, split) for _ in range(rng.randint(2, 4))]
        )
    if verb in READS:
        if thing.en.split()[-1] in TEXTS:
            return _text_of(thing, rng, split)
        told = item(tool, thing, rng, split, arguments) | (known or {})
        if thing.en in BODIES:
            told["content"] = of_side(texts.markdown, rng, split)
        return dumped(told)
    return _done(tool, thing, verb, arguments, rng, split)


def item(
    tool: ToolSchema,
    thing: Noun,
    rng: random.Random,
    split: str,
    known: dict[str, Any] | None = None,
    own: tuple[str, Any] | None = None,
) -> Item:
    """One thing as the tool tells of it; what the arguments `known` say of it stands in it.

    `own` is the argument (name and schema) that identifies it; the tool's own one where it is not given.
    """
    known = known or {}
    own = own or next(((n, s) for n, s in tool.properties.items() if identifies(n, thing)), None)
    field = id_field(own[0] if own else None, thing)
    if own is None:
        own = (
            f"{thing.en.replace(' ', '_')}_{field}",
            {"type": "integer" if field == "number" else "string"},
        )
    found: Item = {field: known.get(own[0]) or _drawn(own[1], own[0], rng, split, tool)}
    title = title_field(thing, field)
    if title:
        found[title] = _drawn({"type": "string"}, title, rng, split, tool)
    for extra in EXTRAS.get(thing.en, ()):
        if extra == "state":
            found[extra] = rng.choice(("open", "closed"))
        elif extra == "labels":
            found[extra] = [_drawn({"type": "string"}, "label", rng, split, tool)]
        else:
            found[extra] = _drawn({"type": "string"}, extra, rng, split, tool)
    for name, value in known.items():
        plain = snake(name)
        if plain in found and plain != field and isinstance(value, type(found[plain])) and value != "all":
            found[plain] = value
    return found


def id_field(argument: str | None, thing: Noun) -> str:
    """The field of an answer that holds what an argument asks for: `issue_number` -> `number`."""
    plain = snake(argument or "")
    if plain == "index":
        return "number"
    if not plain:
        kinds = (("number", NUMBERED), ("name", NAMED), ("sha", ("commit",)))
        return next((field for field, things in kinds if thing.en in things), "id")
    last = plain.rsplit("_", 1)[-1]
    return last if last in ("id", "key", "number", "sha", "path", "slug", "name") else "name"


def title_field(thing: Noun, field: str) -> str | None:
    """The field by which people call a thing, or None where they call it by its identifier."""
    if field in ("name", "path"):
        return None
    if thing.en == "commit":
        return "message"
    if thing.en.split()[-1] == "comment":
        return "body"
    if thing.en in PEOPLE:
        return "login"
    if thing.en == "issue" and field == "key":
        return "summary"
    return "title" if thing.en in TITLED or thing.en.split()[-1] in TITLED else "name"


def _drawn(schema: Any, name: str, rng: random.Random, split: str, tool: ToolSchema) -> Any:
    return args.draw(schema, rng, split, name=name, root=tool.parameters)


def is_list(verb: str, words: Sequence[str]) -> bool:
    """Whether a call answers with several things: `list_branches`, `get_comments`."""
    if verb not in READS:
        return verb in MANY
    stop = next((i for i, word in enumerate(words) if word in PREPOSITIONS), len(words))
    return (
        stop > 0
        and singular(words[stop - 1]) != words[stop - 1]
        and words[stop - 1] not in ("contents", "logs")
    )


def _listed(tool: ToolSchema, thing: Noun, items: list[Item]) -> str:
    manner = hashlib.sha256(tool.shown_name.encode()).digest()[0] % 3
    if manner == 0:
        return dumped(items)
    if manner == 1:
        return dumped({"total": len(items), f"{thing.en.replace(' ', '_')}s": items})
    return "\n".join(
        "- " + ", ".join(f"{key}: {plain(value)}" for key, value in one.items()) for one in items
    )


def _text_of(thing: Noun, rng: random.Random, split: str) -> str:
    kind = thing.en.split()[-1]
    make = texts.code if kind in ("content", "code", "blame") else texts.markdown
    text = of_side(make, rng, split)
    if kind == "diff":
        old, new = (of_side(texts.title, rng, split) for _ in range(2))
        return f"--- a\n+++ b\n@@ -1,2 +1,2 @@\n-{old}\n+{new}"
    if kind == "log":
        return "\n".join(f"10:0{minute}:11  {of_side(texts.title, rng, split)}" for minute in range(2, 5))
    return text


def _done(
    tool: ToolSchema, thing: Noun, verb: str, arguments: dict[str, Any], rng: random.Random, split: str
) -> str:
    if verb in ("delete", "remove", "dismiss", "clear", "cancel", "stop"):
        return dumped({"success": True}) if len(tool.name) % 2 else f"{verb} {thing.en}: done"
    made = item(tool, thing, rng, split, arguments)
    field = next(iter(made))
    told = {
        name: value
        for name, value in arguments.items()
        if _is_short(value) and not identifies(name, thing) and name not in (field, *methods.SELECTORS)
    }
    if BARE.fullmatch(str(made[field])):
        host = texts.HOSTS[len(tool.server) % len(texts.HOSTS)]
        told["url"] = f"https://{host}/{thing.en.replace(' ', '-')}/{made[field]}"
    return dumped({field: made[field], **told})


def of_side(make: texts.Maker, rng: random.Random, split: str) -> str:
    """A text that belongs to the split."""
    text = make(rng)
    while values.side(text) != split:
        text = make(rng)
    return text


def _is_short(value: Any) -> bool:
    if isinstance(value, dict | list):
        return False
    return not isinstance(value, str) or (len(value) < 80 and "\n" not in value and value[:1] not in "{[")


def plain(value: Any) -> str:
    """A value as a line of text shows it: a list without brackets."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def dumped(value: Any) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


PENPOT = {
    "execute_code": lambda _, rng: dumped({"result": {"id": texts.uuid(rng)}, "log": ""}),
    "high_level_overview": lambda _, rng: penpot.OVERVIEW,
    "penpot_api_info": lambda call, _: penpot.api_info(call["type"], call.get("member")),
    "export_shape": lambda call, rng: (
        f"The shape was exported to {call['filePath']}"
        if "filePath" in call
        else f"[image/{call.get('format', 'png')}, {rng.randint(20, 120) * 8} x {rng.randint(20, 90) * 8}]"
    ),
    "import_image": lambda call, rng: dumped(
        {"result": {"shapeId": texts.uuid(rng)}, "path": call["filePath"]}
    ),
}
"""Penpot answers in its own way; its tools are called so by no other server."""
