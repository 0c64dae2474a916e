"""Supervised fine-tuning of a prepared PEFT model on rendered rows, by trl."""

import random
from dataclasses import asdict
from typing import Any

from core.errors import UserError
from core.progress import Progress
from core.render import Rendered
from trainer.job import Job
from trainer.order import batch_order

WATCHED_STEPS = 10


def train(model: Any, tokenizer: Any, samples: list[Rendered], job: Job) -> list[dict[str, float]]:
    """Train in place, resuming from `job.states` where an earlier run of the same job was interrupted.

    Returns one `{"step", "loss", "grad_norm", "learning_rate"}` an optimiser step. Raises UserError when
    nothing is being learnt (see `fault_in_log`).
    """
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling, SFTTrainer

    settings, profile = job.settings, job.settings.profile.train
    on_gpu = torch.cuda.is_available()
    config = SFTConfig(
        output_dir=str(job.states),
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=profile.accumulate,
        num_train_epochs=1,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=profile.schedule,
        warmup_steps=profile.warmup,
        adam_beta2=profile.adam_beta2,
        weight_decay=0.0,
        max_length=settings.max_length,
        packing=False,
        train_sampling_strategy="sequential",
        gradient_checkpointing=profile.gradient_checkpointing,
        bf16=profile.dtype == "bfloat16" and on_gpu,
        fp16=False,
        use_cpu=not on_gpu,
        loss_type="chunked_nll",
        router_aux_loss_coef=0.0,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        dataloader_pin_memory=on_gpu,
        seed=settings.train_seed,
        data_seed=settings.train_seed,
        save_steps=profile.save_steps,
        save_total_limit=2,
        logging_steps=1,
        disable_tqdm=True,
        report_to=[],
    )

    class Report(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.progress = Progress("train (steps)", state.max_steps - state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                self.progress.step(note=f"loss {logs['loss']:.3f}")
                fault = fault_in_log(steps_of(state.log_history))
                if fault:
                    raise UserError(fault)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.progress.close()

    order = batch_order(
        [len(sample.input_ids) for sample in samples],
        batch=settings.batch_size,
        epochs=settings.epochs,
        rng=random.Random(settings.train_seed),
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list([asdict(sample) for sample in samples]).select(order),
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id),
        callbacks=[Report()],
    )
    trainer.remove_callback(_printer())
    resumable = any(job.states.glob("checkpoint-*/trainer_state.json"))
    trainer.train(resume_from_checkpoint=resumable)
    return steps_of(trainer.state.log_history)


def steps_of(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """The entries of a trainer's log that describe an optimiser step."""
    names = ("step", "loss", "grad_norm", "learning_rate")
    return [{name: entry[name] for name in names} for entry in history if "loss" in entry]


def fault_in_log(steps: list[dict[str, float]]) -> str | None:
    """Why the first steps show that nothing is being learnt, or None.

    A loss of exactly 0, or a gradient norm that never changes, means that the labels are all masked or that
    only a regulariser is being trained.
    """
    watched = steps[:WATCHED_STEPS]
    if len(watched) < WATCHED_STEPS:
        return None
    if all(step["loss"] == 0 for step in watched):
        return f"the loss is 0 in the first {WATCHED_STEPS} steps: no label carries loss; look at the rows"
    if len({step["grad_norm"] for step in watched}) == 1:
        norm = watched[0]["grad_norm"]
        return f"the gradient norm is {norm} in each of the first {WATCHED_STEPS} steps: nothing is learnt"
    return None


def _printer() -> type:
    from transformers.trainer_callback import PrinterCallback

    return PrinterCallback
