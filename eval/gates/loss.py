"""How well does the model predict the held-out answers, token by token, when shown their true beginning?

The labels are those of training (`core/render.py`), so this is the training loss on rows never trained on.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from core.chat import Row
from core.progress import Progress
from core.render import IGNORE, Rendered, render

BATCH_TOKENS = 4096  # padding included
HEAD_TOKENS = 1024  # positions that go through the head at once: a vocabulary of 250,000 in fp32 is 1 GB

Sample = tuple[int, Rendered]
"""A row's number and one of its training samples."""


def measure(rows: Sequence[Row], model: Any, tokenizer: Any, *, what: str = "loss") -> list[float]:
    """Mean loss of each row's labelled tokens, in nats, in the order of the rows.

    Samples of like length share a batch. Only labelled positions go through the language model's head.
    Raises RenderError on a row that the dataset would not have kept.
    """
    samples = [(i, sample) for i, row in enumerate(rows) for sample in render(row, tokenizer)]
    # By content, not by place: the same batches whatever the order of the rows.
    samples.sort(key=lambda one: (len(one[1].input_ids), one[1].input_ids, one[1].labels))
    totals, counts = [0.0] * len(rows), [0] * len(rows)
    progress = Progress(what, len(samples))
    for batch in _batches(samples):
        owners = [row for row, sample in batch for label in sample.labels[1:] if label != IGNORE]
        losses = token_losses(model, [sample for _, sample in batch], tokenizer.pad_token_id)
        for row, loss in zip(owners, losses, strict=True):
            totals[row] += loss
            counts[row] += 1
        progress.step(len(batch))
    progress.close()
    return [total / count for total, count in zip(totals, counts, strict=True)]


def token_losses(model: Any, samples: Sequence[Rendered], pad: int) -> list[float]:
    """-log p of every labelled token given all before it, sample after sample; nats.

    Batched with padding on the right, where a causal model's earlier positions never see it.
    """
    import torch
    from torch.nn.functional import cross_entropy

    width = max(len(sample.input_ids) for sample in samples)
    ids = torch.full((len(samples), width), pad)
    labels = torch.full((len(samples), width), IGNORE)
    mask = torch.zeros((len(samples), width), dtype=torch.long)
    for i, sample in enumerate(samples):
        length = len(sample.input_ids)
        ids[i, :length] = torch.tensor(sample.input_ids)
        labels[i, :length] = torch.tensor(sample.labels)
        mask[i, :length] = 1
    ids, labels, mask = (tensor.to(model.device) for tensor in (ids, labels, mask))
    with torch.inference_mode():
        hidden = model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        labelled = labels[:, 1:] != IGNORE  # position t predicts the token at t + 1
        states, targets = hidden[:, :-1][labelled], labels[:, 1:][labelled]
        head = model.get_output_embeddings()
        losses = [
            cross_entropy(head(part).float(), target, reduction="none")
            for part, target in zip(states.split(HEAD_TOKENS), targets.split(HEAD_TOKENS), strict=True)
        ]
        return torch.cat(losses).tolist()


def _batches(samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    """Runs of samples, sorted by length, that padded to their longest hold at most BATCH_TOKENS."""
    batch: list[Sample] = []
    for sample in samples:
        if batch and (len(batch) + 1) * len(sample[1].input_ids) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(sample)
    if batch:
        yield batch
