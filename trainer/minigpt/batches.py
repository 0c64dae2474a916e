"""Sentences as tensors, and the learning-rate schedule that both trainings use."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.minigpt.corpus import CHARACTERS, Sentence, encode

IGNORE = -100
END = CHARACTERS.index("\n")


def rows(sentences: Sequence[Sentence], labelled: str) -> tuple[Tensor, Tensor]:
    """`input_ids` and `labels` (N, T), both int64, padded on the right; labels are those of the next place.

    `labelled` says which characters bear a label: `all` of a sentence, its `answer` with the end of the
    sentence, or only the `form` with the blank after it (and then the row stops there).
    """
    made = []
    for one in sentences:
        prompt, answer = encode(one.prompt), encode(one.answer)
        if labelled == "form":
            answer = answer[: len(one.form) + 1]
        ids = [END, *prompt, *answer] + ([] if labelled == "form" else [END])
        first = 0 if labelled == "all" else len(prompt)
        made.append((ids[:-1], [IGNORE] * first + ids[1 + first :]))
    longest = max(len(ids) for ids, _ in made)
    input_ids = torch.zeros(len(made), longest, dtype=torch.long)
    labels = torch.full((len(made), longest), IGNORE)
    for i, (ids, targets) in enumerate(made):
        input_ids[i, : len(ids)] = torch.tensor(ids)
        labels[i, : len(ids)] = torch.tensor(targets)
    return input_ids, labels


def trimmed(input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The same rows without the columns that are padding in all of them."""
    used = int((labels != IGNORE).any(0).nonzero().max()) + 1
    return input_ids[:, :used], labels[:, :used]


def cosine(step: int, steps: int, warmup: int) -> float:
    """Factor of the peak learning rate: linear warm-up, then a cosine down to a twentieth."""
    return min(1.0, (step + 1) / warmup) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
