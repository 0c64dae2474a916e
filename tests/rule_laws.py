"""Which rules of a skill a mutation must break, read off the rules as their file has them.

A law speaks of a trace in which every step is right and done once, and of one thing that is changed in it.
"""

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from core import rules, selectors
from core.chat import Message
from core.rules import Rule
from core.selectors import Event
from tests import long_tasks

Entry = dict[str, Any]
"""A rule as its file has it, or one of its selectors."""
Turn = list[Message]
"""An assistant's turn with its results, or a message of the user's."""


@functools.cache
def file_of(skill: str) -> Path:
    drafts = long_tasks.sources().drafts
    return rules.location(long_tasks.ROOT / "examples/skills" / skill / "SKILL.md", skill, drafts)


@functools.cache
def entries(skill: str) -> list[Entry]:
    """The rules that a program decides."""
    found = yaml.safe_load(file_of(skill).read_text(encoding="utf-8"))
    found = found["rules"] if isinstance(found, dict) else found
    return [entry for entry in found if entry.get("kind") in rules.DECIDED]


@functools.cache
def book(skill: str) -> list[Rule]:
    """The same, and those for a reader, as the checker takes them."""
    return rules.read(file_of(skill))


def tool_of(turn: Turn) -> str:
    """The tool that a turn calls; blank where it calls none or several."""
    calls = turn[0].get("tool_calls") or []
    return calls[0]["function"]["name"] if len(calls) == 1 else ""


def arguments_of(turn: Turn) -> dict[str, Any]:
    return turn[0]["tool_calls"][0]["function"]["arguments"]


def names(selector: Entry | None, tool: str) -> bool:
    """Whether a selector picks calls of the tool, or what they gave back."""
    if not selector or "call" not in selector or not tool:
        return False
    called = Event(kind="call", turn=1, position=0, tool=tool)
    return bool(selectors.parse({"call": selector["call"]}, "").concerned([called]))


# ---- what breaks where a step changes ------------------------------------------------------------


def gone(entry: Entry, tool: str, parts: list[Turn], *, result_stays: bool = False) -> bool:
    """The only call of a tool is not there; its result may be."""
    kind, what, first, then = (entry.get(key) for key in ("kind", "what", "first", "then"))
    called = [tool_of(turn) for turn in parts]
    if kind == "order":
        return any(names(step, tool) for step in entry["steps"])
    if kind == "count" and names(what, tool):
        return sum(names(what, one) for one in called) <= entry.get("min", 0)
    if kind == "must" and names(what, tool):
        return True
    if kind == "before" and names(first, tool):
        return any(names(then, one) for one in called)
    if kind == "after" and names(then, tool):
        return any(names(first, one) for one in called)
    if kind == "after" and names(first, tool):
        return False  # nothing is left to follow
    return copies_argument(entry, tool) or (not result_stays and copies_result(entry, tool, parts))


def failed(entry: Entry, tool: str, parts: list[Turn]) -> bool:
    """A step gives back an error, and the model goes on as if it had not."""
    kind, waits = entry["kind"], entry.get("when") or entry.get("since")
    if waits:
        later = next(place for place, turn in enumerate(parts) if tool_of(turn) == tool) + 1
        goes_on = kind == "must" or any(names(entry["what"], tool_of(turn)) for turn in parts[later:])
        return names({"call": "*"} | waits, tool) and "Error" in waits["result"] and goes_on
    if kind == "order":
        return any(names(step, tool) and "result" in step for step in entry["steps"])
    return copies_result(entry, tool, parts)


def repeated(entry: Entry, tool: str, parts: list[Turn]) -> bool:
    """A call is made once more."""
    if entry["kind"] != "count" or not names(entry["what"], tool):
        return False
    times = sum(names(entry["what"], tool_of(turn)) for turn in parts)
    return "max" in entry and times >= entry["max"]


def turned(entry: Entry, tools: tuple[str, str], parts: list[Turn]) -> bool:
    """Of two steps the second is not after the first any more."""
    one, other = tools
    if entry["kind"] == "order":
        return all(any(names(step, tool) for step in entry["steps"]) for tool in tools)
    if names(entry.get("first"), one) and names(entry.get("then"), other):
        return True
    copies = copies_argument(entry, one) or copies_result(entry, one, parts)
    return copies and names(entry.get("what"), other)


def altered(entry: Entry, where: tuple[str, str], parts: list[Turn]) -> bool:
    """A call's argument, (tool, name), is one that nobody gave."""
    tool, argument = where
    own = ((selector, name) for selector, name, _ in copied(entry) if names(selector, tool))
    return any(name == argument for _, name in own) or copies_argument(entry, tool, argument)


# ---- what a rule wants copied --------------------------------------------------------------------


def copied(entry: Entry) -> Iterator[tuple[Entry, str, Entry]]:
    """(selector, argument or `say`, pattern) of all that the rule wants copied."""
    for selector in filter(None, (entry.get("what"), entry.get("then"))):
        patterns = {**selector.get("args", {}), **selector.get("args_not", {}), "say": selector.get("say")}
        for name, pattern in patterns.items():
            if isinstance(pattern, dict):
                yield selector, name, pattern


def sources(pattern: Entry) -> list[str]:
    return pattern["in"] if isinstance(pattern["in"], list) else [pattern["in"]]


def copies_argument(entry: Entry, tool: str, argument: str = "") -> bool:
    """Whether another act must copy from a call of the tool, from this argument where one is named."""
    for selector, _, pattern in copied(entry):
        for caller, _, name in (source.rpartition(".") for source in sources(pattern)):
            told = caller and names({"call": caller}, tool) and argument in ("", name)
            if told and not names(selector, tool):
                return True
    return False


def copies_result(entry: Entry, tool: str, parts: list[Turn]) -> bool:
    """Whether another act copies from what the tool gave back."""
    given = "\n".join(message["content"] for turn in parts if tool_of(turn) == tool for message in turn[1:])
    return any(
        value in given
        for selector, name, pattern in copied(entry)
        if "result" in sources(pattern) and not names(selector, tool)
        for value in _values(selector, name, pattern, parts)
    )


def _values(selector: Entry, name: str, pattern: Entry, parts: list[Turn]) -> list[str]:
    if name == "say":
        return re.findall(pattern["find"], parts[-1][0]["content"], re.MULTILINE)
    made = [arguments_of(turn)[name] for turn in parts if names(selector, tool_of(turn))]
    return [str(item) for value in made for item in (value if isinstance(value, list) else [value])]


# ---- what breaks where the report changes --------------------------------------------------------


def read_in(skill: str, report: str) -> dict[str, str]:
    """The passages that rules read in a report: they must stay as they are. By passage, the rule's id."""
    found = {}
    for entry in entries(skill):
        said = (entry.get("then") or entry.get("what") or {}).get("say")
        pattern = said["find"] if isinstance(said, dict) else said
        match = re.search(pattern, report, re.MULTILINE) if pattern and "when" not in entry else None
        if match:
            found[match[0]] = entry["id"]
    return found


def unread(skill: str, before: str, after: str) -> set[str]:
    """The rule on the report's form, and those whose passage is gone."""
    form = {entry["id"] for entry in entries(skill) if entry["kind"] == "final_sections"}
    found = read_in(skill, before).items()
    return form | {rule for said, rule in found if not re.search(f"^{re.escape(said)}", after, re.MULTILINE)}


Law = Callable[..., bool]


def broken_by(law: Law, skill: str, *about: Any, **how: Any) -> set[str]:
    """The rules that a law says must break; in these skills `when` and `since` wait for an error."""
    own = [entry for entry in entries(skill) if law is failed or not entry.keys() & {"when", "since"}]
    return {entry["id"] for entry in own if law(entry, *about, **how)}
