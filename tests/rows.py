"""Small dataset rows, made by hand, for tests to plant faults in."""

from typing import Any

from core import chat
from core.chat import Message, Row

LOG = chat.tool(
    "mcp__git__git_log",
    "Shows commits",
    {
        "type": "object",
        "properties": {
            "repo_path": {"type": "string"},
            "max_count": {"type": "integer"},
            "order": {"type": "string", "enum": ["newest", "oldest"]},
            "since": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["repo_path"],
    },
)
NOTE = chat.tool(
    "mcp__notes__save",
    "Saves a note",
    {"type": "object", "properties": {"text": {"type": "string"}, "pinned": {"type": "boolean"}}},
)


def row(messages: list[Message] | None = None, **more: Any) -> Row:
    """A row of the bucket `mcp` that shows both tools; without messages, a good one."""
    given = {"id": "mcp-train-00000", "bucket": "mcp", "group": "g", "split": "train", "tools": [LOG, NOTE]}
    return Row(messages=asked() if messages is None else messages, **given | more)


def asked(text: str = "Enséñame los últimos 12 commits de «web/rubo»", **arguments: Any) -> list[Message]:
    """A request and the call that answers it; `arguments` come on top of the right ones."""
    return [chat.user(text), log(**arguments)]


def log(**arguments: Any) -> Message:
    """A call of LOG."""
    right = {"repo_path": "web/rubo", "max_count": 12}
    return chat.call("mcp__git__git_log", right | arguments, think="Use `git__git_log`.")
