"""The training loop of the mlx backend, with transformers' schedule, AdamW and clipping: losses compare."""

import json
import math
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.progress import Progress
from core.render import IGNORE
from trainer.backends.mlx_adapter import Adapted
from trainer.job import Job, Stopped
from trainer.learning import canary, evaluation, metrics, sft, states
from trainer.learning.samples import Sample
from trainer.running.supervise import handled

if TYPE_CHECKING:
    import mlx.core as mx

MAX_NORM = 1.0
"""transformers' `max_grad_norm`."""
ADAMW = ("adamw_torch", "adamw_torch_fused")
"""transformers' names of the one optimiser here."""
STATE, LOG = "mlx.safetensors", "log.json"

Log = list[dict[str, Any]]


def train(adapted: Adapted, tokenizer: Any, samples: list[Sample], job: Job) -> Log:
    """Train in place, going on from the newest whole state of an interrupted run of the same job.

    Returns the log: entries with `loss` of optimiser steps (the mean over the step's labelled tokens), with
    `eval_loss` of evaluations. UserError on what this backend lacks, where a loss or gradient is not finite,
    or nothing is being learnt; Stopped where a signal asked to stop.
    """
    _refuse(job)
    loop = _Loop(adapted, tokenizer, samples, job)
    asked: list[int] = []
    with handled(dict.fromkeys((signal.SIGTERM, signal.SIGINT), lambda number, _: asked.append(number))):
        while loop.step < len(loop.rates):
            loop.take_step()
            last = loop.step == len(loop.rates)
            every = job.settings.save_steps
            if not job.steps and not last and (asked or loop.step % every == 0):
                loop.save(states.STEP)
            if asked and not last:
                raise Stopped(f"stopped after step {loop.step} of {len(loop.rates)}; its state is kept")
            if loop.due(last) and loop.evaluate():
                break
    loop.progress.close()
    loop.return_to_best()
    return loop.log


def _refuse(job: Job) -> None:
    settings = job.settings
    if settings.packing:
        raise UserError("PACKING=1: mlx-lm's layers carry over from one packed sample to the next: PACKING=")
    if settings.optimizer not in ADAMW:
        raise UserError(f"OPTIMIZER={settings.optimizer}: the mlx backend has AdamW alone: {ADAMW[0]}")


class _Loop:
    def __init__(self, adapted: Adapted, tokenizer: Any, samples: list[Sample], job: Job) -> None:
        import mlx.core as mx
        import mlx.nn as nn
        from mlx.optimizers import AdamW
        from mlx_lm.tuner.trainer import grad_checkpoint
        from mlx_lm.utils import maybe_set_recommended_wired_limit

        settings, profile = job.settings, job.settings.profile.train
        self.adapted, self.samples, self.job, self.pad = adapted, samples, job, tokenizer.pad_token_id
        self.plan = sft.plan(samples, job)
        count = job.steps or settings.max_steps or len(self.plan)
        self.rates = learning_rates(settings.schedule, settings.learning_rate, settings.warmup, count)
        self.held_out = sft.held_out(tokenizer, job)
        self.optimizer = AdamW(0.0, betas=[0.9, profile.adam_beta2], weight_decay=0.0, bias_correction=True)
        self.optimizer.init(adapted.model.trainable_parameters())
        self.gradients = nn.value_and_grad(adapted.model, summed_loss)
        mx.random.seed(settings.train_seed)
        maybe_set_recommended_wired_limit()
        if profile.gradient_checkpointing:
            grad_checkpoint(adapted.model.layers[0])  # pyright: ignore[reportOptionalSubscript]
        self.step, self.log = 0, []
        newest = states.latest(job.states)
        if newest is not None:
            self._restore(newest)
            print(f"train: going on after step {self.step}", flush=True)
        self.file = metrics.Metrics(job.out / "metrics.jsonl", self.step)
        self.progress = Progress("train (steps)", count - self.step)
        adapted.model.train()

    def take_step(self) -> None:
        """Forward and backward of the step's micro-batches, and the optimiser's update."""
        import mlx.core as mx

        start = time.monotonic()
        batches = self.plan[self.step % len(self.plan)]
        rows = [self.samples[i] for batch in batches for i in batch]
        labelled, total, whole = sum(row.labelled for row in rows), mx.array(0.0), None
        for batch in batches:
            ids, labels = padded([self.samples[i] for i in batch], self.pad)
            loss, found = self.gradients(self.adapted.model, ids, labels)
            total, whole = total + loss, found if whole is None else _added(whole, found)
            mx.eval(total, whole)
        clipped, norm = _clipped(whole, labelled)
        loss, rate = float(total.item()) / labelled, self.rates[self.step]  # pyright: ignore[reportArgumentType]
        if not (math.isfinite(loss) and math.isfinite(norm)):
            named = ", ".join(row.id for row in rows)
            raise UserError(
                f"the loss of step {self.step + 1} is {loss}, its gradient {norm}: look at its rows"
                f" ({named}), or lower LEARNING_RATE; the states before it are as they were"
            )
        self.optimizer.learning_rate = rate
        self.optimizer.update(self.adapted.model, clipped)
        mx.eval(self.adapted.model.trainable_parameters(), self.optimizer.state)
        self.step += 1
        entry = {"step": self.step, "loss": loss, "grad_norm": norm, "learning_rate": rate}
        self.log.append(entry)
        speed = sum(len(row.input_ids) for row in rows) / (time.monotonic() - start)
        self.progress.step(note=f"loss {loss:.3f}, {speed:,.0f} tokens/s")
        self.file.append({**entry, "tokens_per_second": round(speed)})
        fault = canary.fault_in_log(metrics.train_steps(self.log))
        if fault and self.step <= canary.WATCHED_STEPS:
            raise UserError(fault)

    def due(self, last: bool) -> bool:
        """Whether the held-out rows are measured after this step."""
        every = self.job.settings.eval_steps
        return bool(self.held_out and every and (last or self.step % every == 0))

    def evaluate(self) -> bool:
        """Log the losses on held-out rows; whether training has stopped to help."""
        model, patience = self.adapted.model, self.job.settings.early_stop
        model.eval()
        losses = evaluation.losses(self._mean_loss, self.held_out, self.job.batch, self.job.tokens)
        entry = {"step": self.step, **losses}
        model.train()
        self.log.append(entry)
        self.file.append(entry)
        self.file.draw(self.log)
        history = metrics.evaluations(self.log)
        if patience and evaluation.best(history) == self.step:
            self.save(states.BEST)
        return bool(patience and evaluation.exhausted(history, patience))

    def save(self, kind: str) -> None:
        """Keep adapter, optimiser, random numbers and log."""
        import mlx.core as mx
        from mlx.utils import tree_flatten

        arrays = {f"adapter {name}": array for name, array in self.adapted.arrays().items()}
        arrays |= {f"optimizer {name}": array for name, array in tree_flatten(self.optimizer.state)}
        arrays |= {f"random {number}": array for number, array in enumerate(_random())}
        name = states.name_of(kind, self.step)
        with states.writing(self.job.states, name, self.job.settings) as directory:
            mx.save_safetensors(str(directory / STATE), arrays)
            (directory / LOG).write_text(json.dumps(self.log), encoding="utf-8")

    def return_to_best(self) -> None:
        """After training with EARLY_STOP, take the adapter of the best evaluation."""
        history = metrics.evaluations(self.log)
        if self.job.settings.early_stop and history and evaluation.best(history) != self.step:
            path = self.job.states / states.name_of(states.BEST, evaluation.best(history))
            self.adapted.load(_part("adapter", path))

    def _restore(self, state: Path) -> None:
        from mlx.utils import tree_unflatten

        self.adapted.load(_part("adapter", state))
        self.optimizer.state = tree_unflatten(list(_part("optimizer", state).items()))
        for number, array in _part("random", state).items():
            _random()[int(number)][:] = array
        self.log = json.loads((state / LOG).read_text(encoding="utf-8"))
        self.step = states.step_of(state)

    def _mean_loss(self, samples: list[Sample]) -> float:
        labelled = sum(sample.labelled for sample in samples)
        total: Any = summed_loss(self.adapted.model, *padded(samples, self.pad)).item()
        return total / labelled


def learning_rates(schedule: str, peak: float, warmup: float, steps: int) -> list[float]:
    """The learning rate of each step, by transformers' own schedule of that name."""
    import torch
    from transformers.optimization import get_scheduler

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=peak)
    warm = math.ceil(warmup * steps)
    scheduler = get_scheduler(schedule, optimizer, num_warmup_steps=warm, num_training_steps=steps)
    rates = []
    for _ in range(steps):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


def padded(samples: Sequence[Sample], pad: int) -> "tuple[mx.array, mx.array]":
    """Input ids and labels, each [rows, tokens], padded on the right: causal layers never see the padding."""
    import mlx.core as mx

    longest = max(len(sample.input_ids) for sample in samples)
    ids = [sample.input_ids + [pad] * (longest - len(sample.input_ids)) for sample in samples]
    labels = [sample.labels + [IGNORE] * (longest - len(sample.labels)) for sample in samples]
    return mx.array(ids), mx.array(labels)


def summed_loss(model: Any, ids: "mx.array", labels: "mx.array") -> "mx.array":
    """Cross entropy in nats, summed over the labelled tokens; in float32 as in transformers."""
    import mlx.core as mx
    import mlx.nn as nn

    logits, wanted = model(ids)[:, :-1].astype(mx.float32), labels[:, 1:]
    kept = wanted != IGNORE
    losses = nn.losses.cross_entropy(logits, mx.where(kept, wanted, 0))
    return mx.where(kept, losses, 0.0).sum()


def _added(one: Any, other: Any) -> Any:
    from mlx.utils import tree_map

    return tree_map(lambda x, y: x + y, one, other)


def _clipped(gradients: Any, labelled: int) -> tuple[Any, float]:
    """The mean gradient over the labelled tokens, clipped, and its norm before that."""
    from mlx.optimizers import clip_grad_norm
    from mlx.utils import tree_map

    clipped, norm = clip_grad_norm(tree_map(lambda g: g / labelled, gradients), MAX_NORM)
    return clipped, float(norm.item())  # pyright: ignore[reportArgumentType]


def _random() -> Any:
    """mlx's random states: arrays that can be written to, in a list that cannot."""
    import mlx.core as mx

    return mx.random.state


def _part(kind: str, state: Path) -> dict[str, Any]:
    """The arrays of one kind in a state, by name."""
    import mlx.core as mx

    arrays: Any = mx.load(str(state / STATE))
    return {n.removeprefix(f"{kind} "): a for n, a in arrays.items() if n.startswith(f"{kind} ")}
