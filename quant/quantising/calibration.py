"""What calibrates the activations' scales: the run's own training rows, replay among them."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from core.chat import Row
from core.errors import UserError
from core.render import render


def choose(rows: Sequence[Row], count: int) -> list[Row]:
    """The first `count` rows in turns of a row from each bucket, replay among them: all weigh the same.

    A scale is the largest activation seen, so a bucket that is rare in training must not be rare here.
    """
    buckets: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        buckets[row.bucket].append(row)
    turns = max((len(bucket) for bucket in buckets.values()), default=0)
    in_turn = [bucket[turn] for turn in range(turns) for bucket in buckets.values() if turn < len(bucket)]
    return in_turn[:count]


def samples(rows: Sequence[Row], tokenizer: Any, length: int) -> list[list[int]]:
    """Token ids of the rows as the chat template writes them, of each the last `length`.

    A long row begins with the descriptions of tools; what the model is to do stands at its end. UserError
    where there is none.
    """
    found = [sample.input_ids[-length:] for row in rows for sample in render(row, tokenizer)]
    if not found:
        raise UserError("no calibration rows, expected one or more: make dataset")
    return found
