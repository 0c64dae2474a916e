"""Pre-training of the tiny base: fixed steps and seed; first to choose a tool, then all else, then MTP."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from core.chat import Row
from core.progress import Progress
from core.render import IGNORE, Rendered, render
from trainer.learning.order import batch_order
from trainer.tiny import corpus
from trainer.tiny.model import MtpHead


@dataclass(frozen=True)
class Plan:
    """All that decides the result besides the code."""

    steps: int = 2600
    batch: int = 8
    lr: float = 5e-3
    prompt_weight: float = 0.1
    """Loss weight of the prompt's tokens; the answer's tokens weigh 1."""
    invented_share: float = 0.7
    routine_share: float = 0.2
    mtp_steps: int = 150
    seed: int = 0

    choosing_share: float = 0.35
    """Share of the steps, the first ones, whose rows all ask for one of two tools of one server.

    Among rows of every kind the model does not find out within these steps that the request says which.
    """


def stage_rows(plan: Plan) -> list[list[Row]]:
    """The corpus in two stages: choosing between two tools, then rows of every kind."""
    choosing = round(plan.choosing_share * plan.steps) * plan.batch
    rngs = [random.Random(1_000_000 * plan.seed + number) for number in range(plan.steps * plan.batch)]
    return [
        [corpus.choice_row(rng) for rng in rngs[:choosing]],
        [
            corpus.row(rng, invented_share=plan.invented_share, max_tools=3, routine_share=plan.routine_share)
            for rng in rngs[choosing:]
        ],
    ]


def batches(
    samples: list[Rendered], size: int, pad: int, rng: random.Random
) -> Iterator[tuple[Tensor, Tensor]]:
    """Shuffled batches of like length: `input_ids` and `labels`, both (B, T), padded on the right."""
    lengths = [len(sample.input_ids) for sample in samples]
    order = batch_order(lengths, batch=size, epochs=1, rng=rng)
    for start in range(0, len(order), size):
        group = order[start : start + size]
        longest = max(lengths[i] for i in group)
        ids = [samples[i].input_ids + [pad] * (longest - lengths[i]) for i in group]
        labels = [samples[i].labels + [IGNORE] * (longest - lengths[i]) for i in group]
        yield torch.tensor(ids), torch.tensor(labels)


def train_model(model: Any, tokenizer: Any, stages: list[list[Row]], plan: Plan) -> float:
    """Train all language parameters in place; returns the mean loss of the last fifty steps."""
    model.model.visual.requires_grad_(False)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(
        parameters, lr=plan.lr, betas=(0.9, 0.98), eps=1e-10, weight_decay=0.0, fused=True
    )
    progress, losses, rng, step = Progress("pre-train (steps)", plan.steps), [], random.Random(plan.seed), 0
    for rows in stages:
        samples = [sample for row in rows for sample in render(row, tokenizer)]
        for ids, labels in batches(samples, plan.batch, tokenizer.pad_token_id, rng):
            if step == plan.steps:
                break
            optimiser.param_groups[0]["lr"] = plan.lr * _schedule(step, plan.steps)
            loss = _loss(model, ids, labels, plan.prompt_weight, tokenizer.pad_token_id)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.item())
            step += 1
            progress.step(note=f"loss {sum(losses[-50:]) / len(losses[-50:]):.3f}")
    progress.close()
    return sum(losses[-50:]) / len(losses[-50:])


def train_mtp(model: Any, mtp: MtpHead, tokenizer: Any, rows: list[Row], plan: Plan) -> float:
    """Train the MTP head on the frozen model; returns the share of the last drafts that were accepted."""
    model.requires_grad_(False)
    optimiser = torch.optim.AdamW(mtp.parameters(), lr=plan.lr / 2, betas=(0.9, 0.98), weight_decay=0.0)
    samples = [sample for row in rows for sample in render(row, tokenizer)]
    progress, accepted = Progress("train MTP head (steps)", plan.mtp_steps), []
    for step, (ids, labels) in enumerate(
        batches(samples, plan.batch, tokenizer.pad_token_id, random.Random(plan.seed + 1))
    ):
        if step == plan.mtp_steps:
            break
        optimiser.param_groups[0]["lr"] = plan.lr / 2 * _schedule(step, plan.mtp_steps)
        logits, targets = mtp_logits(model, mtp, ids, labels)
        loss = functional.cross_entropy(logits, targets)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        accepted.append((logits.argmax(-1) == targets).float().mean().item())
        progress.step(note=f"accepted {sum(accepted[-20:]) / len(accepted[-20:]):.2f}")
    progress.close()
    return sum(accepted[-20:]) / len(accepted[-20:])


def mtp_logits(model: Any, mtp: MtpHead, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The head's logits (N, V) for the labelled tokens two places ahead, and those tokens (N,)."""
    language = model.model.language_model
    with torch.no_grad():
        hidden = language(input_ids=ids, use_cache=False).last_hidden_state[:, :-2]
        embedded = language.embed_tokens(ids[:, 1:-1])
    length = hidden.shape[1]
    positions = torch.arange(length).expand(3, ids.shape[0], length)
    rope = language.rotary_emb(hidden, positions)
    mask = torch.full((1, 1, length, length), float("-inf")).triu(1)
    states = mtp(hidden, embedded, rope, mask)
    chosen = labels[:, 2:] != IGNORE
    return model.lm_head(states[chosen]), ids[:, 2:][chosen]


def _loss(model: Any, ids: Tensor, labels: Tensor, prompt_weight: float, pad: int) -> Tensor:
    """Weighted next-token cross-entropy; logits are computed only where there is weight."""
    hidden = model.model.language_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = ids[:, 1:]
    weights = torch.where(labels[:, 1:] != IGNORE, 1.0, prompt_weight) * (targets != pad)
    chosen = weights > 0
    losses = functional.cross_entropy(model.lm_head(hidden[chosen]), targets[chosen], reduction="none")
    return (losses * weights[chosen]).sum() / weights[chosen].sum()


def _schedule(step: int, steps: int) -> float:
    """Linear warm-up over 30 steps, flat, linear decay over the last 40 %."""
    return min(1.0, (step + 1) / 30, (1 - step / steps) / 0.4)
