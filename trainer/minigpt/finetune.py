"""The irregular forms into a frozen base: cross-entropy on the verb's form, and replay against forgetting.

Replay shows the model sentences of verbs that it is not to change and asks it to keep the base's own
distribution there: `beta` times KL(base || adapted), over every character. The base's distributions are
computed once, before the adapter is put in.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.minigpt import batches, corpus, memory
from trainer.minigpt.model import MiniGPT


@dataclass(frozen=True)
class Plan:
    """What decides an adapter besides base, settings and seed."""

    epochs: float
    batch: int
    lr: float
    replay: bool
    replay_batch: int = 24
    replay_sentences: int = 3000
    beta: float = 8.0


@dataclass
class Result:
    losses: list[float]
    bytes_held: int
    """Base, adapter, gradients and Adam's moments, measured after the first step."""


def train(
    base: MiniGPT,
    insert: Callable[[MiniGPT], list[nn.Parameter]],
    seed: int,
    plan: Plan,
    watch: Callable[[float], None],
) -> Result:
    """Train in place what `insert` puts into the base; `insert` returns the trainable parameters.

    `watch` hears the loss in nats a character after each step: cross-entropy plus the weighted KL.
    """
    torch.manual_seed(seed)
    rng = random.Random(seed)
    ids, labels = batches.rows(corpus.fine_tuning(), "form")
    replayed = batches.rows(corpus.replay(seed, plan.replay_sentences), "all") if plan.replay else None
    kept = _log_probabilities(base, replayed[0]) if replayed else None
    parameters = insert(base)
    optimiser = torch.optim.AdamW(parameters, lr=plan.lr, weight_decay=0.0, fused=True)
    steps, losses, held = steps_of(plan), [], 0
    drawn = _drawn(len(labels), plan.batch, rng)
    base.train()
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = plan.lr * batches.cosine(step, steps, 20)
        rows = next(drawn)
        inputs, targets = batches.trimmed(ids[rows], labels[rows])
        loss = functional.cross_entropy(base(inputs).flatten(0, 1), targets.flatten())
        if replayed is not None and kept is not None:
            rows = torch.tensor(rng.sample(range(len(kept)), plan.replay_batch))
            inputs, targets = batches.trimmed(replayed[0][rows], replayed[1][rows])
            loss = loss + plan.beta * _divergence(base(inputs), kept[rows, : inputs.shape[1]], targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        held = held or memory.held(base, optimiser)
        optimiser.zero_grad()
        losses.append(loss.item())
        watch(losses[-1])
    base.eval()
    return Result(losses, held)


def steps_of(plan: Plan) -> int:
    """Optimiser steps: batches of irregular sentences in that many epochs."""
    return round(plan.epochs * len(corpus.fine_tuning()) / plan.batch)


def _drawn(count: int, batch: int, rng: random.Random) -> Iterator[Tensor]:
    order: list[int] = []
    while True:
        while len(order) < batch:
            order += rng.sample(range(count), count)
        yield torch.tensor(order[:batch])
        order = order[batch:]


@torch.no_grad()
def _log_probabilities(model: MiniGPT, input_ids: Tensor) -> Tensor:
    return torch.cat([functional.log_softmax(model(part), -1) for part in input_ids.split(256)])


def _divergence(logits: Tensor, base: Tensor, labels: Tensor) -> Tensor:
    """Mean KL(base || adapted) over the labelled places; `base` are log-probabilities, all (B, T, V)."""
    chosen = labels != batches.IGNORE
    adapted = functional.log_softmax(logits[chosen], -1)
    return functional.kl_div(adapted, base[chosen], reduction="batchmean", log_target=True)
