"""A conversation as the reader sees it, with the turns marked where something broke."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core import chat
from core.chat import Message
from core.markup import Markup, join, tag
from core.rules import BROKEN
from eval.reporting.words import clip

LONGEST_TEXT = 800
MOST_MESSAGES = 16

Finding = Mapping[str, Any]
"""`rule`, `verdict`, `position`, `turn`, `reason`."""


def transcript(trace: Sequence[Message], findings: Sequence[Finding] = (), *, asked: str = "") -> Markup:
    """What was asked and the messages of a trace; the broken ones of `findings` stand under theirs.

    Those without a position stand at the end. A long trace is shown from MOST_MESSAGES / 2 before the first
    broken one on.
    """
    broken = [one for one in findings if one["verdict"] == BROKEN]
    start, stop = _window(len(trace), [one["position"] for one in broken])
    turn = sum(message["role"] == "assistant" for message in trace[:start])
    made = [said("asked", chat.user(asked))] if asked else []
    if start:
        made.append(_gap(start, "before"))
    for position in range(start, stop):
        message = trace[position]
        turn += message["role"] == "assistant"
        speaker = f"assistant, turn {turn}" if message["role"] == "assistant" else message["role"]
        made.append(said(speaker, message, [one for one in broken if one["position"] == position]))
    if stop < len(trace):
        made.append(_gap(len(trace) - stop, "after"))
    missing = [one for one in broken if one["position"] is None]
    if missing:
        made.append(tag("div", _speaker("the end"), *map(_mark, missing), class_="turn broken"))
    return join(*made)


def said(speaker: str, message: Message, broken: Sequence[Finding] = ()) -> Markup:
    """One message, and the rules that it breaks."""
    calls = [one["function"] for one in message.get("tool_calls") or []]
    think, text = message.get("reasoning_content"), message.get("content")
    return tag(
        "div",
        _speaker(speaker),
        tag("p", clip(think, LONGEST_TEXT), class_="think") if think else "",
        tag("p", clip(text, LONGEST_TEXT)) if text else "",
        *(tag("pre", f"{one['name']} {_arguments(one['arguments'])}") for one in calls),
        "" if text or calls else tag("p", "neither text nor call", class_="soft"),
        *map(_mark, broken),
        class_=f"turn {message['role']}{' broken' if broken else ''}",
    )


def _speaker(name: str) -> Markup:
    return tag("p", name, class_="speaker")


def _mark(finding: Finding) -> Markup:
    return tag("p", tag("strong", f"✗ {finding['rule']} breaks here: "), finding["reason"], class_="why")


def _gap(count: int, side: str) -> Markup:
    return tag("p", f"… {count} messages {side}", class_="soft")


def _window(length: int, positions: Sequence[int | None]) -> tuple[int, int]:
    first = min((length - 1 if one is None else one for one in positions), default=0)
    start = max(0, min(first - MOST_MESSAGES // 2, length - MOST_MESSAGES))
    return start, min(length, start + MOST_MESSAGES)


def _arguments(arguments: Any) -> str:
    return clip(json.dumps(arguments, ensure_ascii=False), LONGEST_TEXT)
