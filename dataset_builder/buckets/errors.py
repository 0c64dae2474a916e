"""After a tool's error: mend the call, try once more, look for the right thing, turn the page, or say so.

The errors are in the shapes that servers give them, some as ordinary text. A wrong call of the model's own
carries no loss, so it learns the mending and not the mistake. No call is tried more than twice.
"""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from core import chat
from core.chat import Message, Row
from dataset_builder import sources as src
from dataset_builder.buckets import penpot
from dataset_builder.drawing import arguments as args
from dataset_builder.drawing import texts
from dataset_builder.drawing.json_schema import Undrawable, as_dict, listed
from dataset_builder.schemas import ToolSchema
from dataset_builder.servers import server_rules
from dataset_builder.talking import chains, prompts, replies, results, talks, wording
from dataset_builder.talking.talks import Talk
from dataset_builder.talking.tool_names import head_of, lexicon, verb_and_words
from dataset_builder.talking.wording import product_of

PAGES = ("page",)
TRIES = 40
"""Tools asked in vain for a kind of error before another kind is made."""
TRANSIENT = (
    "Tool execution failed: Error: Task {n} timed out after 30 seconds",
    "MCP error -32001: Request timed out",
    "Error: 503 Service Unavailable",
    "Error: connect ETIMEDOUT 192.0.2.{n}:443",
)
REFUSED = (
    "Error: 401 Unauthorized",
    "failed to get repository: GET https://{host}/api: 403 Resource not accessible by personal access token",
    'Error: 401 {{"message": "Bad credentials"}}',
    "HTTP 403: Forbidden",
)
BROKEN = (
    "Tool execution failed: Error: Internal server error",
    "Error: 500 Internal Server Error",
    "Tool execution failed: TypeError: Cannot read properties of undefined (reading 'id')",
    "Error: 422 Unprocessable Entity",
)
MISSING = (
    "Error: 404 Not Found",
    "{noun} not found: {value}",
    "Tool execution failed: Error: {noun} {value} does not exist",
)


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows over every kind of error in turn."""
    keys, kinds, made = list(sources.tools), itertools.cycle(KINDS.items()), []
    stated = server_rules.deployed(sources.tools.values(), sources.servers)
    while keys and len(made) < count:
        kind, make = next(kinds)
        talk = next(_tried(make, sources, keys, rng, split, stated), None)
        if talk is None and kind == "failed":
            break
        if talk is not None:
            made.append(talks.row("errors", len(made), split, sources, talk, rng))
    return made


def _tried(
    make: Callable[..., Talk | None],
    sources: src.Sources,
    keys: list[str],
    rng: random.Random,
    split: str,
    stated: Any,
) -> Iterator[Talk]:
    """What a maker gives for one tool after the other, where it keeps the rules of the tool's server."""
    for _ in range(TRIES):
        key = rng.choice(keys)
        try:
            talk = make(sources, key, rng, split)
        except Undrawable:
            continue
        if talk is not None and talks.holds(talk, stated.get(sources.tools[talk.key].server, [])):
            yield talk


def _words(what: str, spanish: bool, rng: random.Random, **values: Any) -> str:
    return rng.choice(lexicon()["errors"]["es" if spanish else "en"][what]).format(**values)


def _asked(sources: src.Sources, key: str, rng: random.Random, split: str) -> tuple[Any, ...]:
    """Tool, call, tools shown, request, template, and whether it is Spanish."""
    tool = sources.tools[key]
    call = args.draw_call(tool, rng, split)
    shown = prompts.shown(sources, [key], rng)
    named = prompts.is_ambiguous(sources, key, call, shown)
    text, template = wording.request(tool, call, rng, split, named=named)
    return tool, call, shown, text, template, wording.is_spanish(template)


def _end(
    tool: ToolSchema, call: dict[str, Any], spanish: bool, rng: random.Random, split: str
) -> list[Message]:
    """The answer of the call that worked, and what is said of it."""
    result = results.result_of(tool, call, rng, split)
    said = replies.answer(tool, call, result, spanish)
    return [chat.result(result), chat.say(said, think=replies.closing(spanish, rng))]


def _mended(sources: src.Sources, key: str, rng: random.Random, split: str) -> Talk | None:
    """A required argument was left out, or one had the wrong type: the validator says so."""
    tool, call, shown, text, template, spanish = _asked(sources, key, rng, split)
    typed = [name for name in call if listed(as_dict(tool.properties.get(name)).get("type", ())) == ["array"]]
    if typed and rng.random() < 0.5:
        name, what = typed[0], "retype"
        wrong = call | {name: {"items": call[name]}}
        complaint = f"Invalid type for argument {name}: expected array, received object"
    elif tool.required:
        name, what = rng.choice(tool.required), "mend"
        wrong = {other: value for other, value in call.items() if other != name}
        complaint = rng.choice(
            (
                f"Input validation error: '{name}' is a required property",
                f"MCP error -32602: Invalid arguments for tool {tool.name}: Required at {name}",
                f"missing required parameter: {name}",
            )
        )
    else:
        return None
    turns = [
        chat.user(text),
        talks.calls([(tool, wrong)], replies.thought(tool, wrong, spanish, rng)),
        chat.result(complaint),
        talks.calls([(tool, call)], _words(what, spanish, rng, name=name)),
        *_end(tool, call, spanish, rng, split),
    ]
    return Talk(kind="validation", key=key, template=template, turns=turns, tools=shown, trained=[1, 2])


def _passing(sources: src.Sources, key: str, rng: random.Random, split: str) -> Talk:
    """No answer in time: once more, and no third time."""
    tool, call, shown, text, template, spanish = _asked(sources, key, rng, split)
    fault = rng.choice(TRANSIENT).format(n=rng.randint(2, 200))
    turns = [
        chat.user(text),
        talks.calls([(tool, call)], replies.thought(tool, call, spanish, rng)),
        chat.result(fault),
        talks.calls([(tool, call)], _words("again", spanish, rng)),
    ]
    recovers = rng.random() < 0.6
    if recovers:
        turns += _end(tool, call, spanish, rng, split)
    else:
        late = _words("late", spanish, rng, e=fault)
        turns += [chat.result(fault), chat.say(late, think=_words("enough", spanish, rng))]
    kind = "timeout" if recovers else "given up"
    return Talk(kind=kind, key=key, template=template, turns=turns, tools=shown)


def _failed(sources: src.Sources, key: str, rng: random.Random, split: str) -> Talk:
    """Nothing that another call could mend: no permission, a fault of the server."""
    tool, call, shown, text, template, spanish = _asked(sources, key, rng, split)
    if rng.random() < 0.5:
        host = texts.FORMATS["hostname"](rng)
        fault, what = rng.choice(REFUSED).format(host=host), "login"
    else:
        fault, what = rng.choice(BROKEN), "told"
    said = _words(what, spanish, rng, e=fault, p=product_of(tool))
    turns = [
        chat.user(text),
        talks.calls([(tool, call)], replies.thought(tool, call, spanish, rng)),
        chat.result(fault),
        chat.say(said, think=_words("stop", spanish, rng)),
    ]
    kind = "refused" if what == "login" else "failed"
    return Talk(kind=kind, key=key, template=template, turns=turns, tools=shown)


def _not_connected(sources: src.Sources, key: str, rng: random.Random, split: str) -> Talk | None:
    """Penpot's plugin is not there, and the error comes as ordinary text: only the user can open it."""
    tongue = rng.choice(wording.TONGUES)
    return penpot.unplugged(
        sources, rng, split, tongue, _words("stop", tongue == "es", rng),
        _words("connect", tongue == "es", rng, e=penpot.UNPLUGGED),
    )  # fmt: skip


def _not_found(sources: src.Sources, key: str, rng: random.Random, split: str) -> Talk | None:
    """The user's identifier is not there: the list tells the right one, by the name that the user gave."""
    chain = chains.drawn(sources.tools, sources.tools[key], rng, split)
    if chain is None:
        return None
    first, last = chain.steps[0], chain.steps[-1]
    tool, argument = last.tool, chain.argument
    schema = tool.properties[argument]
    stale = args.draw(schema, rng, split, name=argument, root=tool.parameters)
    if stale == chain.value:
        return None
    wrong = last.arguments | {argument: stale}
    keys = [f"{step.tool.server}.{step.tool.name}" for step in (first, last)]
    shown = prompts.shown(sources, keys, rng)
    tongue = rng.choice(wording.TONGUES)
    words = wording.called(chain.called, chain.by_title, tongue)
    told = wrong | {argument: wording.Described(f"{wording.shown(stale)} ({words})")}
    text, template = wording.request(
        tool, told, rng, split, tongue, named=prompts.is_ambiguous(sources, key, wrong, shown)
    )
    spanish = wording.is_spanish(template)
    fault = rng.choice(MISSING).format(noun=chain.thing.en, value=stale)
    field = results.id_field(argument, chain.thing)
    turns = [
        chat.user(text),
        talks.calls([(tool, wrong)], replies.thought(tool, wrong, spanish, rng)),
        chat.result(fault),
        talks.calls([(first.tool, first.arguments)], _words("look", spanish, rng)),
        chat.result(first.result),
        talks.calls([(tool, last.arguments)], replies.found(chain.called, field, chain.value, spanish)),
        *_end(tool, last.arguments, spanish, rng, split),
    ]
    return Talk(kind="not found", key=key, template=f"{template} not found", turns=turns, tools=shown)


def _next_page(sources: src.Sources, key: str, rng: random.Random, split: str) -> Talk | None:
    """A list that is cut: what the user looks for is on the next page."""
    tool = sources.tools[key]
    page = next((name for name in PAGES if name in tool.properties and name not in tool.required), None)
    if page is None:
        return None
    call = {
        name: value for name, value in args.draw_call(tool, rng, split, sparse=True).items() if name != page
    }
    verb, words = verb_and_words(tool, call)
    thing = head_of(words)
    if thing is None or not results.is_list(verb, words) or tool.fault_in(call):
        return None
    more = {name: (call | {page: 2})[name] for name in tool.properties if name in call or name == page}
    shown = prompts.shown(sources, [key], rng)
    items = [results.item(tool, thing, rng, split) for _ in range(5)]
    field = next(iter(items[4]))
    title = results.title_field(thing, field) or field
    sought = items[4][title]
    text, template = wording.request(
        tool, call, rng, split, named=prompts.is_ambiguous(sources, key, call, shown)
    )
    spanish = wording.is_spanish(template)
    text += f"\n{'Busco' if spanish else 'I am looking for'} «{sought}»."
    first = json.dumps({"page": 1, "has_next": True, "items": items[:3]}, ensure_ascii=False)
    second = json.dumps({"page": 2, "has_next": False, "items": items[3:]}, ensure_ascii=False)
    told = ", ".join(f"{name}: {results.plain(value)}" for name, value in items[4].items())
    said = f"Está en la página 2: {told}." if spanish else f"It is on page 2: {told}."
    turns = [
        chat.user(text),
        talks.calls([(tool, call)], replies.thought(tool, call, spanish, rng)),
        chat.result(first),
        talks.calls([(tool, more)], _words("next", spanish, rng, n=2)),
        chat.result(second),
        chat.say(said, think=replies.closing(spanish, rng)),
    ]
    return Talk(kind="next page", key=key, template=f"{template} page", turns=turns, tools=shown)


KINDS = {
    "validation": _mended,
    "failed": _failed,
    "not connected": _not_connected,
    "timeout": _passing,
    "not found": _not_found,
    "next page": _next_page,
}
"""What went wrong, by the function that plays it."""
