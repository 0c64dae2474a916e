"""What `claude -p --output-format stream-json --verbose` prints -> our messages.

A JSON object a line, with a `type`. Read are `assistant` (blocks `thinking`, `text`, `tool_use`), `user`
(blocks `tool_result`) and the last one, `result`. The format is Claude Code's own and grows: lines and blocks
of other types are passed over, and so is what a subagent does (`parent_tool_use_id`).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from core import chat
from core.chat import Message
from core.errors import UserError
from core.selectors import one_line

TYPES = ("system", "assistant", "user", "result")
NO_RESULT = "Error: no result"
"""Of a call that was still running when the agent ended."""


@dataclass(frozen=True)
class Transcript:
    """What an agent did."""

    trace: list[Message]
    failure: str
    """What the agent says went wrong with itself, its endpoint for instance; blank where nothing did."""


@dataclass
class _Turn:
    thoughts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    """Blocks `tool_use`."""


def parse(output: str) -> Transcript:
    """Read what an agent printed; UserError where no line of it is of this format."""
    turns: dict[str, _Turn] = {}
    results: dict[str, str] = {}
    failure, seen = "", False
    for number, line in enumerate(_lines(output)):
        kind, message = line["type"], line["message"] if isinstance(line.get("message"), dict) else {}
        seen = seen or kind in TYPES
        if kind == "result":
            failure = _failure(line)
        if kind not in ("assistant", "user") or line.get("parent_tool_use_id"):
            continue
        for block in _blocks(message.get("content")):
            if kind == "user":
                if block.get("type") == "tool_result":
                    results[str(block.get("tool_use_id"))] = _result(block)
                continue
            # A message comes in several lines, one block each, with results of its first calls between.
            turn = turns.setdefault(str(message.get("id", number)), _Turn())
            _add(turn, block)
    if not seen:
        raise UserError(
            "AGENT_CMD: no line of its output is of stream-json; end it with claude -p "
            f"--output-format stream-json --verbose, or print the same; it began: {one_line(output)!r}"
        )
    return Transcript([m for turn in turns.values() for m in _messages(turn, results)], failure)


def _failure(line: dict[str, Any]) -> str:
    subtype = str(line.get("subtype"))
    failed = line.get("is_error") is True or subtype.startswith("error")
    if not failed or subtype == "error_max_turns":
        return ""
    return one_line(str(line.get("result") or line.get("errors") or subtype))


def _lines(output: str) -> Iterator[dict[str, Any]]:
    for line in output.split("\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            yield value


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _add(turn: _Turn, block: dict[str, Any]) -> None:
    kind = block.get("type")
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        turn.thoughts.append(block["thinking"])
    elif kind == "text" and isinstance(block.get("text"), str):
        turn.texts.append(block["text"])
    elif kind == "tool_use" and isinstance(block.get("input"), dict):
        turn.calls.append(block)


def _result(block: dict[str, Any]) -> str:
    content = block.get("content")
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    text = "\n".join(str(p.get("text", f"[{p.get('type')}]")) for p in parts if isinstance(p, dict))
    return f"Error: {text}" if block.get("is_error") is True and not text.startswith("Error") else text


def _messages(turn: _Turn, results: dict[str, str]) -> list[Message]:
    message = chat.say("\n\n".join(turn.texts), think="\n\n".join(turn.thoughts))
    if not turn.calls:
        return [message]
    message["tool_calls"] = [
        {"type": "function", "function": {"name": str(one.get("name")), "arguments": one["input"]}}
        for one in turn.calls
    ]
    return [message, *(chat.result(results.get(str(one.get("id")), NO_RESULT)) for one in turn.calls)]
