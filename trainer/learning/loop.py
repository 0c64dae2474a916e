"""trl's trainer with whole optimiser steps as its batches, states to trust, and a watch on it all.

An optimiser step is a fixed list of rows. How many of them the device takes at a time, whether they are
padded or packed, and how many processes share them changes the speed and the memory, and nothing else: the
loss is the mean over the labelled tokens of the step.
"""

import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from safetensors import SafetensorError
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl.trainer.sft_trainer import SFTTrainer

from core.errors import UserError
from core.progress import Progress
from trainer.job import Job, Stopped
from trainer.learning import canary, evaluation, metrics, states
from trainer.learning.samples import Sample
from trainer.running.supervise import handled

Collate = Callable[[list[Sample]], dict[str, Any]]


class Loop(SFTTrainer):
    """Trains on `plan`: for each optimiser step its micro-batches, each a list of positions in `samples`."""

    def __init__(
        self,
        *,
        job: Job,
        samples: list[Sample],
        plan: list[list[list[int]]],
        collate: Collate,
        held_out: dict[str, list[Sample]],
        **trl: Any,
    ) -> None:
        self.job, self.samples, self.plan, self.collate = job, samples, plan, collate
        self.held_out = held_out
        super().__init__(**trl)
        # trl's loss divides by the step's tokens when told them; Qwen3.5's class says that it would not, and
        # transformers would take the mean of the micro-batches' means.
        self.model_accepts_loss_kwargs = True
        self.stop_asked, self.saved = False, 0
        self.watch = Watch(self)
        self.add_callback(self.watch)

    def run(self) -> list[dict[str, Any]]:
        """Train, from the newest whole state where there is one; the log of all steps and evaluations.

        Raises Stopped where SIGTERM or SIGINT came: the state of the step in progress is saved first.
        """

        def ask(*_: object) -> None:
            self.stop_asked = True

        state = states.latest(self.job.states)
        if state is not None:
            self.saved = states.step_of(state)
            print(f"train: going on after step {self.saved}", flush=True)
        with handled({signal.SIGTERM: ask, signal.SIGINT: ask}):
            self.train(resume_from_checkpoint=str(state) if state else None)
        if self.stop_asked and self.state.global_step < self.state.max_steps:
            kept = f"the state of step {self.saved} is kept" if self.saved else "no state was saved yet"
            raise Stopped(f"stopped after step {self.state.global_step} of {self.state.max_steps}; {kept}")
        self._return_to_best()
        return self.state.log_history

    def get_train_dataloader(self) -> Any:
        """Optimiser steps in order; a process takes its share of each one's micro-batches."""
        world, rank = self.args.world_size, self.args.process_index

        def load(step: list[list[list[int]]]) -> dict[str, Any]:
            (batches,) = step
            tokens = sum(self.samples[i].labelled for batch in batches for i in batch)
            share = [self.collate([self.samples[i] for i in batch]) for batch in batches[rank::world]]
            return {"batches": share, "tokens": tokens}

        return DataLoader(self.plan, batch_size=1, collate_fn=load)  # pyright: ignore[reportArgumentType]

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        """The next step, and the labelled tokens of it in all processes."""
        try:
            step = next(epoch_iterator)
        except StopIteration:
            return [], None
        return [step], torch.tensor(step["tokens"], device=device)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward of a step's micro-batches; the step's loss."""
        last = len(inputs["batches"]) - 1
        total = torch.zeros((), device=self.args.device)
        for i, batch in enumerate(inputs["batches"]):
            with self.accelerator.no_sync(model) if i < last else contextlib.nullcontext():
                total += super().training_step(model, batch, num_items_in_batch)
        self._require_finite("loss", total)
        return total

    def _clip_grad_norm(self, model: Any) -> Any:
        norm = super()._clip_grad_norm(model)
        self._require_finite("gradient", norm)
        return norm

    def _require_finite(self, what: str, value: Any) -> None:
        """UserError naming the step and its rows, before the optimiser has spoilt the adapter."""
        if math.isfinite(float(value)):
            return
        rows = [self.samples[i].id for batch in self._step_in_progress() for i in batch]
        raise UserError(
            f"the {what} of step {self.state.global_step + 1} is {float(value)}: look at its rows"
            f" ({', '.join(rows)}), or lower LEARNING_RATE; the states before it are as they were"
        )

    def _step_in_progress(self) -> list[list[int]]:
        return self.plan[self.state.global_step % len(self.plan)]

    def floating_point_ops(self, inputs: Any) -> int:
        """None are counted: a step is no batch of one shape."""
        return 0

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The losses on held-out rows, logged; decides whether training has stopped to help."""
        model: Any = self.model_wrapped
        model.eval()
        with torch.no_grad():
            found = evaluation.losses(self._mean_loss, self.held_out, self.job.batch, self.job.tokens)
        model.train()
        self.log(found)
        history, patience = metrics.evaluations(self.state.log_history), self.job.settings.early_stop
        if patience and evaluation.best(history) == self.state.global_step:
            self._keep(states.BEST, self._write_adapter)
        if patience and evaluation.exhausted(history, patience):
            print(f"train: no better on held-out rows for {patience} evaluations: stopping", flush=True)
            self.control.should_training_stop = True
            # A run resumed from this step would not know that it has ended.
            self.control.should_save = False
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def stop_agreed(self) -> bool:
        """Whether a signal asked any process to stop; all of them get the same answer."""
        if self.args.world_size == 1:
            return self.stop_asked
        asked = torch.tensor(int(self.stop_asked), device=self.args.device)
        torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX)
        self.stop_asked = bool(asked)
        return self.stop_asked

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self._keep(states.STEP, self._write_state):
            self.saved = self.state.global_step

    def _keep(self, kind: str, write: Callable[[str], None]) -> bool:
        """Save a state, or say why it could not be: a full disk costs the state and not the run."""
        name = states.name_of(kind, self.state.global_step)
        if self.args.should_save:
            place = states.writing(self.job.states, name, self.job.settings)
        else:
            place = contextlib.nullcontext(states.unfinished(self.job.states, name))
        try:
            with place as directory:
                self.accelerator.wait_for_everyone()
                write(str(directory))
                self.accelerator.wait_for_everyone()
        except (OSError, RuntimeError, SafetensorError) as error:
            if self.args.world_size > 1:  # the other processes would wait for this one
                raise
            reason = str(error).splitlines()[0]
            print(f"train: {name} is not saved ({reason}); training goes on", file=sys.stderr)
            return False
        return True

    def _write_state(self, directory: str) -> None:
        self._write_adapter(directory)
        self._save_optimizer_and_scheduler(directory)
        self._save_scaler(directory)
        self._save_rng_state(directory)
        if self.args.should_save:
            self.state.save_to_json(f"{directory}/{states.TRAINER}")

    def _write_adapter(self, directory: str) -> None:
        self.save_model(directory, _internal_call=True)

    def _return_to_best(self) -> None:
        """After training with EARLY_STOP, load the adapter of the best evaluation."""
        history = metrics.evaluations(self.state.log_history)
        if not (self.job.settings.early_stop and history):
            return
        step = evaluation.best(history)
        if step == self.state.global_step:
            return
        path = self.job.states / states.name_of(states.BEST, step)
        fault = states.fault_in(path)
        if fault:
            raise UserError(f"{path}: {fault}: the best adapter is lost; make train without EARLY_STOP")
        self._load_from_checkpoint(str(path))
        print(f"train: the adapter is that of step {step}, the best on held-out rows", flush=True)

    def _mean_loss(self, samples: list[Sample]) -> Any:
        batch = self._prepare_inputs(self.collate(samples))
        with self.compute_loss_context_manager():
            model: Any = self.model_wrapped
            return model(**batch, use_cache=False).loss


class Watch(TrainerCallback):
    """Says when to save, evaluate and stop, and tells what happens as it happens."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.job = loop, loop.job
        self.tokens = [
            sum(len(loop.samples[i].input_ids) for batch in step for i in batch) for step in loop.plan
        ]

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.told = state.is_world_process_zero
        if self.told:
            self.progress = Progress("train (steps)", state.max_steps - state.global_step)
            self.file = metrics.Metrics(self.job.out / "metrics.jsonl", state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.begun = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        settings, step = self.job.settings, state.global_step
        stop, last, dry = self.loop.stop_agreed(), step >= state.max_steps, self.job.steps
        if stop:
            control.should_training_stop = True
        control.should_save = not dry and not last and (stop or step % settings.save_steps == 0)
        due = settings.eval_steps and (last or step % settings.eval_steps == 0)
        control.should_evaluate = bool(due and self.loop.held_out and not dry)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        entry, step = state.log_history[-1], state.global_step
        if "loss" in entry:
            fault = canary.fault_in_log(metrics.train_steps(state.log_history))
            if fault and step <= canary.WATCHED_STEPS:
                raise UserError(fault)
        if not self.told:
            return
        if "loss" in entry:
            rate = self.tokens[(step - 1) % len(self.tokens)] / (time.monotonic() - self.begun)
            (told,) = metrics.train_steps([entry])
            self.progress.step(note=f"loss {entry['loss']:.3f}, {rate:,.0f} tokens/s")
            self.file.append({**told, "tokens_per_second": round(rate)})
        elif "eval_loss" in entry:
            self.file.append({"step": step, **{k: v for k, v in entry.items() if k.startswith("eval_")}})
            self.file.draw(state.log_history)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.told:
            self.progress.close()
