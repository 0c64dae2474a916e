"""The rendered rows before the gate against secrets: what a model would read of them, and nothing twice."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core import render
from core.chat import Row
from core.errors import Refused
from dataset_builder import secrets_gate

LONG = 200
"""Characters of a line from which it is scanned once only: each tool's schema stands in hundreds of rows."""


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
