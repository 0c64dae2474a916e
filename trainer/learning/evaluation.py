"""The loss on held-out rows while training runs, a bucket at a time, and what an early stop makes of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.learning import order, samples
from trainer.learning.samples import Sample

ROWS = 16
"""Held-out rows a bucket: the gates measure all of them afterwards, these only show where training goes."""
REPLAY = "replay"
"""What the model knew before: its loss shows forgetting, not learning, and decides no early stop."""


def held_out(path: Path, tokenizer: Any, max_length: int) -> dict[str, list[Sample]]:
    """The first rows of each bucket of a file of dataset rows, in the order of their lengths."""
    buckets: dict[str, list[Sample]] = {}
    for sample in samples.read(path, tokenizer, max_length, rows_a_bucket=ROWS):
        buckets.setdefault(sample.bucket, []).append(sample)
    return {name: sorted(found, key=lambda s: len(s.input_ids)) for name, found in buckets.items()}


def losses(
    forward: Callable[[list[Sample]], Any],
    buckets: dict[str, list[Sample]],
    batch: int,
    most: int | None = None,
) -> dict[str, float]:
    """`eval_loss` over all buckets but replay, and `eval_<bucket>_loss`: nats a labelled token.

    `forward` gives the mean loss over the labelled tokens of some samples; it is asked in evaluation mode,
    without gradients, in the same order each time: no random generator is drawn from. It gets at most `batch`
    rows at once, of at most `most` tokens (order.rows_at_once).
    """
    sums: dict[str, tuple[float, int]] = {}
    for bucket, found in buckets.items():
        total, tokens = 0.0, 0
        rows = order.rows_at_once([len(sample.input_ids) for sample in found], batch, most)
        for positions in order.padded(list(range(len(found))), rows):
            part = [found[i] for i in positions]
            count = sum(sample.labelled for sample in part)
            total += float(forward(part)) * count
            tokens += count
        sums[bucket] = (total, tokens)
    decisive = [pair for bucket, pair in sums.items() if bucket != REPLAY] or list(sums.values())
    whole = sum(total for total, _ in decisive) / sum(tokens for _, tokens in decisive)
    return {"eval_loss": whole} | {
        f"eval_{bucket}_loss": total / tokens for bucket, (total, tokens) in sums.items()
    }


def best(evaluations: list[dict[str, Any]]) -> int:
    """The step of the lowest `eval_loss`, the first of equals."""
    return min(evaluations, key=lambda entry: entry["eval_loss"])["step"]


def exhausted(evaluations: list[dict[str, Any]], patience: int) -> bool:
    """Whether the last `patience` evaluations were none better than one before them."""
    return len([entry for entry in evaluations if entry["step"] > best(evaluations)]) >= patience
