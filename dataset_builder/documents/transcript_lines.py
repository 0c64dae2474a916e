"""One line of a Claude Code transcript (JSONL) -> what the model said, called, was told.

The format is Claude Code's own and changes without notice: what is not known is dropped and counted by name,
and never stops the reading.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULT_LIMIT = 8000
"""Characters of a tool's result that are kept; the rest is replaced by a note of how many there were."""
INJECTED = re.compile(
    r"<(system-reminder|local-command-[a-z]+|bash-(?:input|stdout|stderr)|ide_[a-z_]+|new-diagnostics"
    r"|user-prompt-submit-hook|command-contents|task-notification)>.*?</\1>\s*",
    re.DOTALL,
)
"""What the harness puts into a user's message or a tool's result."""
COMMAND = re.compile(r"<command-(message|name|args)>(.*?)</command-\1>\s*", re.DOTALL)
INTERRUPTED = re.compile(r"\[Request interrupted by user[^\]]*\]\s*")


@dataclass
class Entry:
    """A line; one that says nothing (a summary, an attachment) has no role, but its place in the thread."""

    uuid: str
    parent: str | None
    sidechain: bool
    role: str = ""
    message: str = ""
    """Id of the API's message, which Claude Code splits over lines, one block each."""
    thoughts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Id, name and arguments."""
    results: dict[str, str] = field(default_factory=dict)
    """By the call's id."""
    is_command: bool = False
    """Whether the text is a slash command."""


def read_entries(path: Path, counts: Counter[str]) -> Iterator[Entry]:
    """The entries of a file, one line in memory at a time; what is dropped goes into `counts`."""
    previous: dict[bool, str] = {}
    seen: set[str] = set()
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            try:
                line = _parse(raw)
            except (ValueError, RecursionError):
                live = not raw.endswith(b"\n")  # the last line of a session that goes on
                counts["last line cut short" if live else f"broken line, {path}:{number}"] += 1
                continue
            if not isinstance(line, dict):
                counts[f"line that is no object, {path}:{number}"] += 1
                continue
            sidechain = line.get("isSidechain") is True
            uuid = line.get("uuid")
            uuid = uuid if isinstance(uuid, str) else f"{path}:{number}"
            if uuid in seen:
                counts["repeated line"] += 1
                continue
            parent = line.get("parentUuid", previous.get(sidechain))
            entry = Entry(uuid, parent if isinstance(parent, str) else None, sidechain)
            _fill(entry, line, counts)
            if entry.role or "uuid" in line:
                seen.add(uuid)
                previous[sidechain] = uuid
                yield entry


def _parse(raw: bytes) -> Any:
    line = json.loads(raw)
    if b"\\ud" in raw.lower():  # half a surrogate pair, from a text cut in two, cannot be written as UTF-8
        line = json.loads(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace"))
    return line


def _fill(entry: Entry, line: dict[str, Any], counts: Counter[str]) -> None:
    kind, message = line.get("type"), line.get("message")
    if kind not in ("user", "assistant") or not isinstance(message, dict):
        counts[f"{kind} line" if isinstance(kind, str) else "line without a type"] += 1
    elif line.get("isMeta") is True:
        counts["meta line"] += 1
    elif line.get("isApiErrorMessage") is True or message.get("model") == "<synthetic>":
        counts["message of the harness"] += 1
    else:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list):
            counts[f"{kind} line without content"] += 1
            return
        entry.role = kind
        entry.message = message["id"] if isinstance(message.get("id"), str) else entry.uuid
        for block in blocks:
            _add(entry, block if isinstance(block, dict) else {}, counts)


def _add(entry: Entry, block: dict[str, Any], counts: Counter[str]) -> None:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        text = block["text"] if entry.role == "assistant" else _users(entry, block["text"], counts)
        entry.texts += [text] if text.strip() else []
    elif kind == "image" and entry.role == "user":
        counts["image"] += 1
        entry.texts.append("[image]")
    elif kind == "thinking" and entry.role == "assistant" and isinstance(block.get("thinking"), str):
        entry.thoughts += [block["thinking"]] if block["thinking"].strip() else []
    elif kind == "tool_use" and entry.role == "assistant" and isinstance(block.get("input"), dict):
        entry.calls.append((str(block.get("id")), str(block.get("name")), block["input"]))
    elif kind == "tool_result" and entry.role == "user":
        entry.results[str(block.get("tool_use_id"))] = _result(block.get("content"), counts)
    else:
        counts[f"{entry.role} block of type {kind}"] += 1


def _users(entry: Entry, text: str, counts: Counter[str]) -> str:
    """What the user wrote: no markup of the harness; a slash command as it was typed."""
    command = {match[1]: match[2].strip() for match in COMMAND.finditer(text)}
    written = INTERRUPTED.sub("", COMMAND.sub("", INJECTED.sub("", text)))
    if command.get("name"):
        entry.is_command = True
        written = f"{command['name']} {command.get('args', '')} {written}".strip()
    if not written.strip():
        counts["text of the harness"] += 1
    return written


def _result(content: Any, counts: Counter[str]) -> str:
    """A tool's result as text, at most RESULT_LIMIT characters of it."""
    parts = []
    for block in content if isinstance(content, list) else [{"type": "text", "text": content or ""}]:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            parts.append(block["text"])
        else:
            kind = block.get("type") if isinstance(block, dict) else None
            counts["image" if kind == "image" else f"result block of type {kind}"] += 1
            parts.append(f"[{kind}]")
    text = INJECTED.sub("", "\n".join(parts))
    if len(text) > RESULT_LIMIT:
        counts["result cut"] += 1
        text = f"{text[:RESULT_LIMIT]}\n[... {len(text) - RESULT_LIMIT} more characters]"
    return text
