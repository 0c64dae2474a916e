"""The base of one seed: plain next-character training on the base's share of the corpus."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from trainer.minigpt import batches, corpus, memory
from trainer.minigpt.model import MiniGPT


@dataclass(frozen=True)
class Plan:
    """All that decides the base besides the code and the seed."""

    steps: int = 1200
    batch: int = 32
    lr: float = 4e-3
    sentences: int = 16000


@dataclass
class Result:
    model: MiniGPT
    losses: list[float]
    bytes_held: int
    """Weights, gradients and Adam's moments, measured after the first step."""


def train(seed: int, plan: Plan, watch: Callable[[float], None]) -> Result:
    """Train a fresh MiniGPT; `watch` hears the loss (nats a character) after each step."""
    torch.manual_seed(seed)
    model, rng = MiniGPT(), random.Random(seed)
    input_ids, labels = batches.rows(corpus.pretraining(seed, plan.sentences), "all")
    optimiser = torch.optim.AdamW(model.parameters(), lr=plan.lr, weight_decay=0.01, fused=True)
    losses, held = [], 0
    for step in range(plan.steps):
        optimiser.param_groups[0]["lr"] = plan.lr * batches.cosine(step, plan.steps, 100)
        chosen = torch.tensor(rng.choices(range(len(labels)), k=plan.batch))
        ids, targets = batches.trimmed(input_ids[chosen], labels[chosen])
        loss = functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        held = held or memory.held(model, optimiser)
        optimiser.zero_grad()
        losses.append(loss.item())
        watch(losses[-1])
    return Result(model.eval(), losses, held)
