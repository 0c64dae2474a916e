"""What a model did, as a list of events, and the selectors of a rule that pick some of them.

A selector is a mapping. It picks calls by `call` (globs for `tool` or `server.tool`), `args` and `args_not`;
or texts by one of `say`, `think`, `result`, `user`; `result` beside `call` picks what such calls gave back.
`args_not` picks the calls whose arguments do not all fit. A text is matched by a regular expression
(searched, `^` and `$` at every line), an argument by

- a text: a regular expression, on the JSON of whatever is no text itself;
- a number, list or truth value: that very value;
- `{in: SOURCES}`: copied from an earlier event. A source is `user`, `result`, or `<tool>.<argument>` of a
  call. With `find`, all that this expression (its groups) finds must be copied, and it must find
  something; a text can be matched so as well.
"""

import fnmatch
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.chat import Message
from core.errors import UserError, did_you_mean

KINDS = ("think", "say", "call", "result", "user")
"""Of events, in their order within a turn. Calls of one turn are simultaneous, their results as well."""
TEXTS = ("say", "think", "result", "user")
KEYS = ("call", "args", "args_not", *TEXTS)

_QUOTATION = re.compile(r"""«([^»]*)»|"([^"]*)"|`([^`]*)`|(?<!\w)'([^']*)'(?!\w)""")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One act: a thought, a text, a call, a call's result, a user's message."""

    kind: str
    turn: int
    """The assistant's turn that it belongs to, from 1; the request is in turn 0."""
    position: int | None
    """Of its message in the trace; None for the request."""
    text: str = ""
    tool: str = ""
    """Name of the tool as the model calls it, for calls and results."""
    args: Mapping[str, Any] = field(default_factory=dict)

    def is_before(self, other: "Event") -> bool:
        """Whether it came earlier; acts of one kind in one turn are simultaneous."""
        return (self.turn, KINDS.index(self.kind)) < (other.turn, KINDS.index(other.kind))


Matcher = Callable[[Any, Sequence[Event]], bool]
"""(value, events before it) -> whether it fits."""


@dataclass(frozen=True)
class Selector:
    """Picks events of one kind; `text` is how it is written."""

    text: str
    kind: str
    fits: Matcher | None
    calls: tuple[str, ...]
    args: Mapping[str, Matcher]
    args_not: Mapping[str, Matcher]

    def pick(self, events: Sequence[Event]) -> list[Event]:
        """The events that match, in their order."""
        return [event for event in self.concerned(events) if self._matches(event, events)]

    def concerned(self, events: Sequence[Event]) -> list[Event]:
        """The events of its kind and calls, whatever their arguments and text."""
        return [
            event
            for event in events
            if event.kind == self.kind
            and (not self.calls or any(_is_named(event.tool, glob) for glob in self.calls))
        ]

    def _matches(self, event: Event, events: Sequence[Event]) -> bool:
        earlier = [other for other in events if other.is_before(event)]
        return (
            (self.fits is None or self.fits(event.text, earlier))
            and _all_fit(self.args, event, earlier)
            and not (self.args_not and _all_fit(self.args_not, event, earlier))
        )


def events(trace: Sequence[Message], request: str) -> list[Event]:
    """What happened in a trace: messages in the OpenAI format that follow the user's `request`.

    Results belong to the calls of the turn before them, in order; those without a call are left out.
    """
    found = [Event(kind="user", turn=0, position=None, text=request)]
    turn, waiting = 0, iter(())
    for position, message in enumerate(trace):
        content = message.get("content") or ""
        if message["role"] == "assistant":
            turn += 1
            calls = [call["function"] for call in message.get("tool_calls") or []]
            for kind, text in (("think", message.get("reasoning_content")), ("say", content)):
                if text:
                    found.append(Event(kind=kind, turn=turn, position=position, text=text))
            named = [{"turn": turn, "tool": call["name"], "args": call["arguments"]} for call in calls]
            found += [Event(kind="call", position=position, **one) for one in named]
            waiting = iter(named)
        elif message["role"] == "tool":
            call = next(waiting, None)
            if call:
                found.append(Event(kind="result", position=position, text=content, **call))
        elif message["role"] == "user":
            found.append(Event(kind="user", turn=turn, position=position, text=content))
    return found


def one_line(text: str) -> str:
    """A text without its line breaks, cut to what a report can carry."""
    return " ".join(text.split())[:120]


def parse(value: Any, where: str) -> Selector:
    """A selector as YAML gives it; UserError at `where` on an unknown key, a broken expression or source."""
    if not isinstance(value, dict) or not value:
        raise UserError(f"{where}: {value!r} is no selector; write {{call: <tool>}}; have {', '.join(KEYS)}")
    for key in value:
        if key not in KEYS:
            hint = did_you_mean(str(key), KEYS)
            raise UserError(f"{where}: unknown selector {key!r}{hint}; have {', '.join(KEYS)}")
    texts = [key for key in TEXTS if key in value]
    if len(texts) > 1 or (texts and texts != ["result"] and len(value) > 1):
        raise UserError(f"{where}: {' and '.join(value)} cannot match at once; only result goes with call")
    kind = texts[0] if texts else "call"
    globs = value.get("call", [])
    globs = [globs] if isinstance(globs, str) else globs
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
        raise UserError(f"{where}: call {globs!r}: expected the name of a tool, or a list of names")
    if texts and not isinstance(value[kind], str | dict):
        raise UserError(f"{where}: {kind} {value[kind]!r}: expected a regular expression; put it in quotes")
    return Selector(
        text=one_line(", ".join(f"{key} {_written(part)}" for key, part in value.items())),
        kind=kind,
        fits=_matcher(value[kind], f"{where}: {kind}") if texts else None,
        calls=tuple(globs),
        args=_matchers(value.get("args", {}), f"{where}: args"),
        args_not=_matchers(value.get("args_not", {}), f"{where}: args_not"),
    )


def _matchers(value: Any, where: str) -> dict[str, Matcher]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected {{<argument>: <pattern>}}, got {value!r}")
    return {str(name): _matcher(pattern, f"{where}: {name}") for name, pattern in value.items()}


def _matcher(pattern: Any, where: str) -> Matcher:
    if isinstance(pattern, dict):
        return _copied(pattern, where)
    if not isinstance(pattern, str):
        return lambda value, _: value == pattern
    regex = _regex(pattern, where)
    return lambda value, _: regex.search(_written(value)) is not None


def _copied(pattern: dict[str, Any], where: str) -> Matcher:
    sources = pattern.get("in")
    sources = [sources] if isinstance(sources, str) else sources
    if not isinstance(sources, list) or not sources or pattern.keys() - {"in", "find"}:
        raise UserError(f"{where}: {pattern!r}: expected {{in: <sources>}}, with find: <regex> if need be")
    for source in sources:
        if source not in ("user", "result") and not re.fullmatch(r".+\..+", str(source)):
            raise UserError(f"{where}: unknown source {source!r}; have user, result, <tool>.<argument>")
    regex = _regex(pattern["find"], where) if "find" in pattern else None

    def fits(value: Any, earlier: Sequence[Event]) -> bool:
        found = _found(regex, _written(value)) if regex else _items(value)
        return bool(found) and all(any(_stands_in(s, one, earlier) for s in sources) for one in found)

    return fits


def _found(regex: re.Pattern[str], text: str) -> list[str]:
    return [part for match in regex.finditer(text) for part in match.groups() or (match[0],) if part]


def _stands_in(source: str, value: str, earlier: Sequence[Event]) -> bool:
    if source == "result":
        return any(_has_words(event.text, value) for event in earlier if event.kind == "result")
    if source == "user":
        return any(_is_asked(event.text, value) for event in earlier if event.kind == "user")
    tool, _, argument = source.rpartition(".")
    calls = [event for event in earlier if event.kind == "call" and _is_named(event.tool, tool)]
    return any(value in _items(event.args.get(argument)) for event in calls)


def _is_asked(request: str, value: str) -> bool:
    """Whether a user's text gives a value: what stands in quotation marks counts as a whole."""
    quoted = ["".join(part or "" for part in match.groups()) for match in _QUOTATION.finditer(request)]
    return value in quoted or _has_words(_QUOTATION.sub(" ", request), value)


def _has_words(text: str, value: str) -> bool:
    """Whether a value stands in a text as whole words; blanks and signs alone are none."""
    # The T of a date and time (2026-11-30T16:30) ends a word as well.
    whole = rf"(?:(?<!\w)|(?<=\dT)){re.escape(value)}(?!\w)"
    return re.search(r"\w", value) is not None and re.search(whole, text) is not None


def _all_fit(patterns: Mapping[str, Matcher], event: Event, earlier: Sequence[Event]) -> bool:
    return all(name in event.args and fits(event.args[name], earlier) for name, fits in patterns.items())


def _is_named(tool: str, glob: str) -> bool:
    """Whether a glob fits `mcp__server__tool` as it is, as `server.tool` or as `tool`."""
    prefix, _, rest = tool.partition("__")
    server, _, name = rest.partition("__")
    names = (tool, f"{server}.{name}", name) if prefix == "mcp" and name else (tool,)
    return any(fnmatch.fnmatchcase(one, glob) for one in names)


def _items(value: Any) -> list[str]:
    return [_written(item) for item in (value if isinstance(value, list) else [value])]


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _regex(pattern: Any, where: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.MULTILINE)
    except (re.error, TypeError) as error:
        raise UserError(f"{where}: {pattern!r} is no regular expression ({error}); mend it") from None
