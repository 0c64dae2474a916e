"""The rows before the gate against secrets: the user's own values hidden in every field, the rest scanned."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core import render
from core.chat import Message, Row, Tool
from core.errors import Refused
from dataset_builder import secrets_gate
from dataset_builder.sanitize import Sanitizer

LONG = 200
"""Characters of a line from which it is scanned once only: each tool's schema stands in hundreds of rows."""


def hidden(rows: Sequence[Row], key: bytes, known: Mapping[str, str]) -> list[Row]:
    """The rows with placeholders for the values of `known`, wherever they stand; a call stays valid."""
    if not known:
        return list(rows)
    sanitizer = Sanitizer(key, known=known, libraries=False, rules=False)
    clean: dict[str, Tool] = {}
    made = []
    for row in rows:
        texts = [json.dumps(tool, ensure_ascii=False) for tool in row.tools]
        for text, tool in zip(texts, row.tools, strict=True):
            if text not in clean:
                clean[text] = sanitizer.scrub_value(tool)
        tools = [clean[text] for text in texts]
        schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in row.tools}
        messages = [_hidden(message, schemas, sanitizer) for message in row.messages]
        made.append(replace(row, tools=tools, messages=messages))
    return made


def _hidden(message: Message, schemas: Mapping[str, dict[str, Any]], sanitizer: Sanitizer) -> Message:
    clean = sanitizer.scrub_value(message)
    for new, old in zip(clean.get("tool_calls") or [], message.get("tool_calls") or [], strict=True):
        name, arguments = old["function"]["name"], old["function"]["arguments"]
        new["function"]["arguments"] = sanitizer.scrub_arguments(arguments, schemas.get(name, {}))
    return clean


def refuse_secrets(
    sides: Mapping[str, Sequence[Row]], tokenizer: Any, allowed: Path | None, known: Mapping[str, str]
) -> None:
    """Refused where a secret is left in a row, with file, row and rule; arguments as `secrets_gate.scan`.

    `sides` has the rows by the name of their file.
    """
    hits = secrets_gate.scan(rendered(sides, tokenizer), allowed, known)
    if hits:
        raise Refused(secrets_gate.report(hits, allowed))


def rendered(sides: Mapping[str, Sequence[Row]], tokenizer: Any) -> Iterator[tuple[str, str]]:
    """`(<file>: <row>, its text by the chat template)`; long lines of earlier rows are left out."""
    seen: set[str] = set()
    for file, rows in sides.items():
        for row in rows:
            lines = render.text(row.messages, row.tools, tokenizer).split("\n")
            fresh = [line for line in lines if len(line) < LONG or line not in seen]
            seen |= {line for line in fresh if len(line) >= LONG}
            yield f"{file}: {row.id}", "\n".join(fresh)
