"""The user's own conversations: what they asked, with their own tools, cut to whole turns.

A conversation ends before the first turn that cannot be taught: a call to a tool of which no schema is known,
a turn that ends without an answer. Turns without reasoning, which transcripts often lack, carry no loss.
Conversations that share a request or a value stand on one side.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.chat import Message, Row
from dataset_builder import sources as src
from dataset_builder.documents.transcripts import NO_RESULT, Conversation
from dataset_builder.drawing import values
from dataset_builder.verifying import checks
from dataset_builder.verifying.split import free_values

# What a request may be about; without it, the request is a template. Too much taken out only joins more.
VALUE = re.compile(r"""«[^»]*»|"[^"]*"|`[^`]*`|(?<!\w)'[^']*'(?!\w)|\S*[\d/_.@#-]\S*""")


@dataclass(frozen=True)
class _Kept:
    """A conversation that can be taught, cut to its turns."""

    conversation: Conversation
    messages: list[Message]


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """At most `count` conversations of the side, in an order that the rng draws, one row each."""
    own = [kept for kept, side in _sided(sources) if side == split]
    chosen = rng.sample(own, min(count, len(own)))
    return [_row(sources, kept, rng, split, number) for number, kept in enumerate(chosen)]


def left_out(sources: src.Sources) -> Counter[str]:
    """How many conversations give no row, or not all of their turns, by reason."""
    tools = _by_name(sources)
    return Counter(reason for one in sources.conversations if (reason := _cut(one, tools)[1]))


def _row(sources: src.Sources, kept: _Kept, rng: random.Random, split: str, number: int) -> Row:
    conversation, tools = kept.conversation, _by_name(sources)
    keys = [tools[name] for name in _called(kept.messages)]
    return src.row(
        "transcripts", number, split, group=conversation.id, system="",
        tools=src.show(sources, list(dict.fromkeys(keys)), rng), messages=kept.messages,
        train_turns=_thoughtful(kept.messages), source=conversation.source,
        meta={"kind": "subagent" if conversation.sidechain else "conversation"},
    )  # fmt: skip


def _cut(conversation: Conversation, tools: Mapping[str, str]) -> tuple[list[Message], str]:
    """The messages up to the last turn that can be taught, and why there are fewer than all."""
    messages: list[Message] = []
    fault = ""
    for span in _spans(conversation.messages):
        fault = _fault_in(span, tools)
        if fault:
            break
        messages += span
    if messages and not _thoughtful(messages):
        return [], "no turn with reasoning"
    return messages, f"cut short: {fault}" if fault and messages else fault


def _thoughtful(messages: list[Message]) -> list[int]:
    """The assistant's turns that reason, counted from 0: a model that thinks would write no other."""
    turns = [message for message in messages if message["role"] == "assistant"]
    return [number for number, turn in enumerate(turns) if turn.get("reasoning_content", "").strip()]


def _fault_in(span: list[Message], tools: Mapping[str, str]) -> str:
    """Why a user's turn and its answer cannot be taught; empty where they can."""
    unknown = next((name for name in _called(span) if name not in tools), None)
    if unknown is not None:
        return f"calls {unknown}, a tool without a schema"
    if any(message["content"] == NO_RESULT for message in span):
        return "a call without a result"
    last = span[-1]
    if last["role"] != "assistant" or last.get("tool_calls") or not last["content"].strip():
        return "a turn that ends without an answer"
    return ""


def _spans(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Each user's turn with all that answers it."""
    span: list[Message] = []
    for message in messages:
        if message["role"] == "user" and span:
            yield span
            span = []
        span.append(message)
    if span:
        yield span


def _called(messages: Iterable[Message]) -> list[str]:
    return [call.name for message in messages for call in checks.calls(message)]


def _by_name(sources: src.Sources) -> dict[str, str]:
    return {tool.shown_name: key for key, tool in sources.tools.items()}


# ---- sides ---------------------------------------------------------------------------------------


def _sided(sources: src.Sources) -> list[tuple[_Kept, str]]:
    """The conversations that can be taught, each with its side.

    Those that share a request or a free value are one group, whose side is that of its first id: a user who
    works in one repository has one group.
    """
    tools = _by_name(sources)
    cut = ((one, _cut(one, tools)[0]) for one in sources.conversations)
    kept = [_Kept(one, messages) for one, messages in cut if messages]
    leader = {one.conversation.id: one.conversation.id for one in kept}

    def first(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    owners: dict[str, str] = {}
    for one in kept:
        for shared in _shared(one, sources):
            pair = sorted((first(one.conversation.id), first(owners.setdefault(shared, one.conversation.id))))
            leader[pair[1]] = pair[0]
    return [(one, values.side(first(one.conversation.id))) for one in kept]


def _shared(kept: _Kept, sources: src.Sources) -> Iterator[str]:
    """What must not stand on both sides: requests, as they are and without their values; free values."""
    tools = _by_name(sources)
    called = dict.fromkeys(_called(kept.messages))
    row = src.row(
        "transcripts", 0, "train", group=kept.conversation.id, system="", messages=kept.messages,
        tools=[sources.tools[tools[name]].shown for name in called],
    )  # fmt: skip
    yield from (f"value {value}" for value in free_values(row))
    for message in kept.messages:
        if message["role"] == "user":
            yield f"request {message['content']}"
            yield f"template {VALUE.sub('{}', message['content'])}"
