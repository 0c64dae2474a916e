"""What every row must satisfy before it is written: valid calls, a true mask, a bounded length."""

from collections import Counter
from dataclasses import replace
from typing import Any

from core import toolcalls
from core.chat import Row, assistant_turns
from core.render import RenderError, prompt_text, render
from core.toolcalls import ToolCall


def keep(
    rows: list[Row], tokenizer: Any, max_length: int, sha256: dict[str, str]
) -> tuple[list[Row], Counter[str]]:
    """The rows that hold, with verdicts and the digests of their tools; and why others were dropped.

    `sha256` maps a tool's production name to the digest of its schema.
    """
    kept, dropped = [], Counter()
    for row in rows:
        reason = _fault(row) or _render_fault(row, tokenizer, max_length)
        if reason:
            dropped[f"{row.bucket}: {reason}"] += 1
            continue
        names = [tool["function"]["name"] for tool in row.tools]
        digests = {name: sha256[name] for name in names if name in sha256}
        meta = {"verdicts": {"calls": "valid", "mask": "exact"}, "tool_sha256": digests}
        kept.append(replace(row, meta=row.meta | meta))
    return kept, dropped


def trained_messages(row: Row) -> list[int]:
    """Positions of the messages that carry loss."""
    turns = assistant_turns(row.messages)
    return [turns[i] for i in (row.train_turns if row.train_turns is not None else range(len(turns)))]


def _fault(row: Row) -> str | None:
    for position in trained_messages(row):
        for call in row.messages[position].get("tool_calls") or []:
            function = call["function"]
            found = toolcalls.faults(ToolCall(function["name"], function["arguments"]), row.tools)
            if found:
                return f"invalid call ({found[0]})"
    return None


def _render_fault(row: Row, tokenizer: Any, max_length: int) -> str | None:
    try:
        samples = render(row, tokenizer)
    except RenderError as error:
        return str(error)
    if not _survives_the_text(row, tokenizer):
        return "a call that the text format cannot carry"
    return "over MAX_LENGTH" if max(len(s.input_ids) for s in samples) > max_length else None


def _survives_the_text(row: Row, tokenizer: Any) -> bool:
    """Whether each trained turn, rendered and parsed as the server would, gives back its calls."""
    for position in trained_messages(row):
        written = [
            ToolCall(call["function"]["name"], call["function"]["arguments"])
            for call in row.messages[position].get("tool_calls") or []
        ]
        if written:
            prompt = prompt_text(row.messages[:position], row.tools, tokenizer)
            whole = tokenizer.apply_chat_template(
                row.messages[: position + 1], tools=row.tools, tokenize=False
            )
            if list(toolcalls.parse(whole[len(prompt) :], row.tools).calls) != written:
                return False
    return True
