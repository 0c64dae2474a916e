"""The last step of verification: every row rendered, its mask judged, its length bounded.

Rows over MAX_LENGTH are dropped and counted, never cut; those of a skill become windows of whole turns.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from core.chat import Row
from core.progress import Progress
from core.render import IGNORE, RenderError, render
from dataset_builder.verifying.checks import PASSED, Drop
from dataset_builder.verifying.masks import fault_in_mask
from dataset_builder.verifying.windows import windows


def keep(rows: list[Row], tokenizer: Any, max_length: int) -> tuple[list[Row], list[Drop]]:
    """The rows that render truly within `max_length` tokens, and those that do not.

    Their `meta` gets the verdict `render` and `tokens`: [all, labelled] of each sample.
    """
    kept: list[Row] = []
    dropped: list[Drop] = []
    progress = Progress("dataset: render (rows)", len(rows))
    for row in rows:
        try:
            kept += _fitting(row, tokenizer, max_length)
        except RenderError as error:
            dropped.append(Drop(row.id, row.bucket, "render", str(error)))
        progress.step()
    progress.close()
    return kept, dropped


def measured(row: Row, tokenizer: Any) -> list[list[int]]:
    """[tokens, labelled tokens] of each sample; RenderError where the row or its mask is not true."""
    samples = render(row, tokenizer)
    fault = fault_in_mask(row, samples, tokenizer)
    if fault:
        raise RenderError(fault)
    return [[len(s.labels), sum(label != IGNORE for label in s.labels)] for s in samples]


def _fitting(row: Row, tokenizer: Any, max_length: int) -> Iterable[Row]:
    found = measured(row, tokenizer)
    parts = [(row, found)]
    if _longest(found) > max_length and row.skill:
        parts = [(part, measured(part, tokenizer)) for part in windows(row, tokenizer, max_length)]
    if max(_longest(found) for _, found in parts) > max_length:
        raise RenderError("over MAX_LENGTH")
    return [replace(part, meta=_with(part.meta, found)) for part, found in parts]


def _with(meta: dict[str, Any], tokens: list[list[int]]) -> dict[str, Any]:
    return meta | {"verdicts": meta.get("verdicts", {}) | {"render": PASSED}, "tokens": tokens}


def _longest(found: list[list[int]]) -> int:
    return max(tokens for tokens, _ in found)
