"""The YAML between --- lines at the head of a Markdown file, as skills, subagents and plans have it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.yaml_files import mapping, parse_yaml, read_text

PATTERN = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*$\n?(.*)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A Markdown file with its front matter read."""

    head: dict[str, Any]
    """Empty where there is no front matter."""
    body: str
    body_line: int
    """Line of the file at which the body begins."""


def split(content: str) -> tuple[str, str]:
    """Front matter and body of a text, as they stand; the front matter is empty where there is none."""
    match = PATTERN.fullmatch(content)
    return (match[1], match[2]) if match else ("", content)


def read(path: Path, *, keys: tuple[str, ...] = ()) -> Document:
    """A Markdown file; UserError, with the line, where its front matter is broken or not closed.

    With `keys`, YAML that unquoted text breaks is taken line by line, one of these keys beginning an entry:
    so Claude Code reads (and writes) subagents.
    """
    content = read_text(path)
    head, body = split(content)
    has_head = body != content
    if not has_head and content.startswith("---"):
        raise UserError(f"{path}:1: the front matter is never closed; end it with a line of ---")
    try:
        values = mapping(parse_yaml(head, path, first_line=2), str(path)) if has_head else {}
    except UserError:
        values = _by_line(head, keys)
        if not values:
            raise
    start = content[: len(content) - len(body.lstrip())]
    return Document(head=values, body=body.strip(), body_line=start.count("\n") + 1)


def _by_line(head: str, keys: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    key = ""
    for line in head.strip("\n").split("\n"):
        name, _, value = line.partition(":")
        if name in keys:
            key, values[name] = name, value.strip()
        elif key:
            values[key] += f"\n{line}"
    return values
