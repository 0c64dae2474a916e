"""What every row must pass before it may be rendered: format, schema, rules, judge, near-duplicates.

Each step is a function from a row to the fault it finds, or None; the first fault drops the row. The verdicts
stay in the row's `meta`, with the digests of the schemas that its tools had. What follows is in split.py
(leaks), secrets.py and rendering.py (the mask, the length).
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from core import chat, rules, toolcalls
from core.chat import Message, Row
from core.render import trained_messages
from core.rules import Finding
from core.toolcalls import ToolCall
from dataset_builder.verifying import duplicates, rulebook
from dataset_builder.verifying.rulebook import Rulebook

PASSED, NOT_APPLICABLE = "passed", "not_applicable"
STEPS = ("format", "schema", "rules", "judge", "duplicates", "render")
Judge = Callable[[Row], str | None]
"""A reader of a row, such as a teacher model: what is wrong with it, or None."""


@dataclass(frozen=True)
class Drop:
    """A row that was left out: which, by which step, why."""

    row: str
    bucket: str
    step: str
    reason: str
    twin: str = ""
    """Of a near-duplicate: the row that it repeats."""


def keep(
    rows: Iterable[Row],
    *,
    sha256: Mapping[str, str],
    rules_of: Rulebook,
    judge: Judge | None = None,
) -> tuple[list[Row], list[Drop]]:
    """The rows that pass every step, with their verdicts, and those that do not.

    `sha256` maps a tool's production name to the digest of its schema, `rules_of` the name of a skill or
    server to its rules.
    """
    passed: list[Row] = []
    dropped: list[Drop] = []
    for row in rows:
        book = rulebook.binding(row, rules_of)
        steps: dict[str, Judge] = {"format": fault_in_format, "schema": fault_in_calls}
        steps |= {"rules": functools.partial(broken_rule, book=book)} if book else {}
        steps |= {"judge": judge} if judge else {}
        faults = ((step, check(row)) for step, check in steps.items())
        step, fault = next((found for found in faults if found[1]), ("", None))
        if fault:
            dropped.append(Drop(row.id, row.bucket, step, fault))
            continue
        verdicts = dict.fromkeys(STEPS, NOT_APPLICABLE) | dict.fromkeys([*steps, "duplicates"], PASSED)
        meta = {
            "verdicts": verdicts,
            "rules": {rule: one.verdict for rule, one in findings(row, book).items()},
            "tool_sha256": {name: sha256[name] for name in shown(row) if name in sha256},
        }
        passed.append(replace(row, meta=row.meta | meta))
    repeated = duplicates.near_duplicates(passed)
    dropped += [
        Drop(row.id, row.bucket, "duplicates", "near-duplicate", repeated[row.id])
        for row in passed
        if row.id in repeated
    ]
    return [row for row in passed if row.id not in repeated], dropped


def fault_in_format(row: Row) -> str | None:
    """Broken messages, a trained turn that is not there, a tool's result that nothing asked for."""
    fault = chat.fault_in(row.messages)
    if fault:
        return fault
    turns = chat.assistant_turns(row.messages)
    if not all(0 <= turn < len(turns) for turn in row.train_turns or ()):
        return f"train_turns {row.train_turns}: there are {len(turns)} assistant turns"
    waiting = 0
    for position, message in enumerate(row.messages):
        if message["role"] == "tool":
            waiting -= 1
        else:
            waiting = len(message.get("tool_calls") or [])
        if waiting < 0:
            return f"messages[{position}]: a result without a call"
    return None


def fault_in_calls(row: Row) -> str | None:
    """The first fault of a trained call: an unknown tool or argument, a wrong type, a null.

    A call that carries no loss may be wrong: the row then trains its correction.
    """
    for position in trained_messages(row):
        for call in calls(row.messages[position]):
            null = next((name for name, value in call.arguments.items() if value is None), None)
            if null is not None:
                return f"{call.name}.{null}: null; leave the argument out"
            found = toolcalls.faults(call, row.tools)
            if found:
                return found[0]
    return None


def broken_rule(row: Row, book: Rulebook) -> str | None:
    """The first applicable rule that the row does not hold; `book` has the rules by skill or server."""
    found = findings(row, book).items()
    return next((f"{rule}: {one.reason}" for rule, one in found if one.verdict == rules.BROKEN), None)


def findings(row: Row, book: Rulebook) -> dict[str, Finding]:
    """What the rules say of all that follows the user's request, by `<skill or server>/<rule>`.

    A row may train a correction: the wrong turn is there, without loss. A rule that the whole conversation
    breaks therefore holds if it does once the turns without loss and their results are taken out.
    """
    start = next(i for i, message in enumerate(row.messages, 1) if message["role"] == "user")
    request = row.messages[start - 1]["content"]
    found = {}
    for name, own in book.items():
        whole = rules.check(own, row.messages[start:], request)
        if any(one.verdict == rules.BROKEN for one in whole):
            learnt = rules.check(own, _without_untrained(row, start), request)
            whole = [b if a.verdict == rules.BROKEN else a for a, b in zip(whole, learnt, strict=True)]
        found |= {f"{name}/{one.rule}": one for one in whole}
    return found


def calls(message: Message) -> list[ToolCall]:
    """The tool calls of a message."""
    functions = [call["function"] for call in message.get("tool_calls") or []]
    return [ToolCall(function["name"], function["arguments"]) for function in functions]


def shown(row: Row) -> list[str]:
    """Production names of the tools in the row's prompt."""
    return [tool["function"]["name"] for tool in row.tools]


def _without_untrained(row: Row, start: int) -> list[Message]:
    trained, kept, skipping = set(trained_messages(row)), [], False
    for position, message in enumerate(row.messages[start:], start):
        if message["role"] != "tool":
            skipping = message["role"] == "assistant" and position not in trained
        if not skipping:
            kept.append(message)
    return kept
