"""Dataset rows: conversations in the OpenAI message format, one JSON object a line.

A row has the fields of `Row`. Tool-call arguments are dicts (the chat template walks them);
`reasoning_content` stands apart from `content`.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError

if TYPE_CHECKING:
    import datasets

Message = dict[str, Any]
Tool = dict[str, Any]
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, kw_only=True)
class Row:
    id: str
    bucket: str
    group: str
    """Rows of one group never stand on both sides of the split."""
    split: str
    messages: list[Message]
    tools: list[Tool]
    server: str | None = None
    skill: str | None = None
    source: str = ""
    """Where it came from, e.g. `schemas/git.json#git_status`."""
    train_turns: list[int] | None = None
    """Which assistant turns carry loss, counted from 0; None is all of them."""
    meta: dict[str, Any] = field(default_factory=dict)


def tool(name: str, description: str, parameters: dict[str, Any]) -> Tool:
    """A tool as the chat template shows it; `parameters` is its JSON schema."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def call(name: str, arguments: dict[str, Any], *, think: str, say: str = "") -> Message:
    """An assistant turn that calls one tool."""
    return {
        "role": "assistant",
        "reasoning_content": think,
        "content": say,
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def say(text: str, *, think: str) -> Message:
    """An assistant turn of text alone."""
    return {"role": "assistant", "reasoning_content": think, "content": text}


def user(text: str) -> Message:
    """A user turn."""
    return {"role": "user", "content": text}


def result(text: str) -> Message:
    """A tool's answer."""
    return {"role": "tool", "content": text}


def system(text: str) -> list[Message]:
    """The system message, or none where the text is empty."""
    return [{"role": "system", "content": text}] if text else []


def assistant_turns(messages: list[Message]) -> list[int]:
    """Positions of the assistant's messages."""
    return [i for i, message in enumerate(messages) if message["role"] == "assistant"]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")


def read_rows(path: Path) -> list[Row]:
    """Read and check rows; UserError with the file and line of the first that is broken."""
    rows = []
    try:
        # Lines of bytes: a text would also split at U+2028 and the like, which JSON leaves raw.
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        try:
            row = Row(**json.loads(line))
        except ValueError as error:
            reason = getattr(error, "msg", "not UTF-8")
            raise UserError(f"{where}: broken JSON ({reason}); mend or delete the line") from None
        except TypeError as error:
            raise UserError(f"{where}: not a dataset row ({_reason(error)})") from None
        fault = fault_in(row.messages)
        if fault:
            raise UserError(f"{where}: {fault}")
        rows.append(row)
    return rows


def fault_in(messages: Any) -> str | None:
    """What is wrong with a conversation, or None."""
    if not isinstance(messages, list) or not messages:
        return "messages: expected a non-empty list"
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            return f"{where}: role must be one of {', '.join(ROLES)}"
        if not isinstance(message.get("content", ""), str):
            return f"{where}: content must be a text"
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            return f"{where}: tool_calls must be a list"
        for one in calls:
            function = one.get("function") if isinstance(one, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                return f"{where}: a tool call must have a function with a name"
            if not isinstance(function.get("arguments"), dict):
                return f"{where}: tool call arguments must be an object, not a JSON text"
    if not any(message["role"] == "user" for message in messages):
        return "messages: no user turn"
    return None


def to_dataset(rows: list[Row]) -> "datasets.Dataset":
    """Rows as an Arrow dataset whose nested columns are `Json()`.

    Plain Arrow structs would give every tool call the union of all argument names, with nulls.
    """
    from datasets import Dataset, Features, Json, Value

    nested = ("messages", "tools", "train_turns", "meta")
    features = Features(
        {name: Json() if name in nested else Value("string") for name in Row.__dataclass_fields__}
    )
    return Dataset.from_list([asdict(row) for row in rows], features=features)


def _reason(error: TypeError) -> str:
    text = str(error).removeprefix("Row.__init__() ").removeprefix("core.chat.")
    return text.replace("keyword-only argument", "field").replace("keyword argument", "field")
