"""The dataset's rows as training samples: token ids and labels, with the row that each came from."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import chat
from core.errors import UserError
from core.render import Rendered, RenderError, render


@dataclass(frozen=True)
class Sample(Rendered):
    """A rendered sample and the row that it came from."""

    id: str
    """The row's; the samples of a row share it."""
    bucket: str

    @property
    def labelled(self) -> int:
        """Tokens that carry loss: the first has nothing to be predicted from."""
        return sum(label >= 0 for label in self.labels[1:])


def read(path: Path, tokenizer: Any, max_length: int, *, rows_a_bucket: int | None = None) -> list[Sample]:
    """Every sample of a file of dataset rows, in its order, or those of the first rows of each bucket.

    Raises UserError naming the row that the chat template refuses, that is longer than `max_length` tokens,
    or in which no token carries loss: it would train nothing, and an average hide it.
    """
    rows = _first(chat.read_rows(path), rows_a_bucket)
    if not rows:
        return []
    samples = []
    for arrow in chat.to_dataset(rows):
        row = chat.Row(**arrow)  # pyright: ignore[reportCallIssue]
        try:
            rendered = render(row, tokenizer)
        except RenderError as error:
            raise UserError(f"{path}: row {row.id}: {error}: make dataset") from None
        samples += [Sample(one.input_ids, one.labels, row.id, row.bucket) for one in rendered]
    for sample in samples:
        length = len(sample.input_ids)
        if length > max_length:
            raise UserError(
                f"row {sample.id} has {length} tokens, MAX_LENGTH={max_length}:"
                f" make dataset with that MAX_LENGTH"
            )
        if not sample.labelled:
            raise UserError(f"{path}: row {sample.id}: no token carries loss: make dataset")
    return samples


def spread(samples: list[Sample], count: int) -> list[Sample]:
    """About `count` for a dry run: the longest, which decide the memory, and others of all lengths."""
    ordered = sorted(samples, key=lambda sample: len(sample.input_ids), reverse=True)
    return ordered[:: max(1, len(ordered) // count)][:count]


def counts(samples: list[Sample]) -> dict[str, int]:
    """Tokens of the samples: all, labelled, the longest sample's; the fewest and most labelled in one."""
    return {
        "all": sum(len(sample.input_ids) for sample in samples),
        "labelled": sum(sample.labelled for sample in samples),
        "longest": max(len(sample.input_ids) for sample in samples),
        "fewest": min(sample.labelled for sample in samples),
        "most": max(sample.labelled for sample in samples),
    }


def write_counts(path: Path, samples: list[Sample]) -> None:
    """Write each sample's row, tokens and labelled tokens, a JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        json.dumps({"id": sample.id, "tokens": len(sample.input_ids), "labelled": sample.labelled})
        for sample in samples
    )
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _first(rows: list[chat.Row], count: int | None) -> list[chat.Row]:
    """The first `count` rows of each bucket; all for None."""
    seen: Counter[str] = Counter()
    kept = []
    for row in rows:
        seen[row.bucket] += 1
        if count is None or seen[row.bucket] <= count:
            kept.append(row)
    return kept
