"""Supervised fine-tuning of a prepared PEFT model on rendered rows, by trl."""

import random
from dataclasses import asdict
from typing import Any

from trainer.job import Job
from trainer.learning import evaluation, metrics, order
from trainer.learning.samples import Sample


def train(model: Any, tokenizer: Any, samples: list[Sample], job: Job) -> list[dict[str, Any]]:
    """Train in place, resuming from `job.states` where an earlier run of the same job was interrupted.

    Returns the trainer's log: entries with `loss` of optimiser steps, with `eval_loss` of evaluations.
    Raises UserError where packed rows are not safe, a loss or gradient is not finite, or nothing is being
    learnt; Stopped where a signal asked to stop.
    """
    import torch
    from datasets import Dataset
    from transformers.trainer_callback import PrinterCallback
    from trl.trainer.sft_config import SFTConfig

    from trainer.learning import packing
    from trainer.learning.loop import Loop

    settings, profile = job.settings, job.settings.profile.train
    on_gpu = torch.cuda.is_available()
    config = SFTConfig(
        output_dir=str(job.states),
        per_device_train_batch_size=1,  # of the loop's batches, whole steps
        gradient_accumulation_steps=1,
        num_train_epochs=1,
        learning_rate=settings.learning_rate,
        optim=settings.optimizer,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup,
        adam_beta2=profile.adam_beta2,
        weight_decay=0.0,
        max_length=settings.max_length,
        gradient_checkpointing=profile.gradient_checkpointing,
        bf16=profile.dtype == "bfloat16" and on_gpu,
        fp16=False,
        use_cpu=not on_gpu,
        loss_type="chunked_nll",
        router_aux_loss_coef=0.0,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        seed=settings.train_seed,
        save_strategy="no",  # the loop says when
        logging_steps=1,
        logging_nan_inf_filter=False,
        ddp_find_unused_parameters=False,  # every step uses the whole adapter
        disable_tqdm=True,
        report_to=metrics.report_to(settings.tracker, job.out),
    )
    if settings.packing:
        found = packing.enable(model, samples)
        print(f"train: packed samples keep apart: no logit moves by more than {found.packed:.1g}", flush=True)
    collate = (packing.packed if settings.packing else packing.padded)(tokenizer.pad_token_id)
    loop = Loop(
        job=job,
        samples=samples,
        plan=plan(samples, job, config.world_size),
        collate=collate,
        held_out=held_out(tokenizer, job),
        model=model,
        args=config,
        # trl looks at its columns; the rows come from the plan.
        train_dataset=Dataset.from_list([asdict(samples[0])]),
        processing_class=tokenizer,
        data_collator=lambda samples: samples,
    )
    loop.remove_callback(PrinterCallback)
    return loop.run()


def plan(samples: list[Sample], job: Job, processes: int = 1) -> list[list[list[int]]]:
    """For each optimiser step its micro-batches, each a list of positions in `samples`.

    The rows of a step follow from the settings alone; `job.batch`, `job.tokens` and the number of processes
    only decide how they are grouped. Packed rows need no neighbours of their length, so those steps are
    plainly shuffled: a batch of one kind of row gives a worse gradient.
    """
    settings, lengths = job.settings, [len(sample.input_ids) for sample in samples]
    rng = random.Random(settings.train_seed)
    if settings.packing:
        rows = order.shuffled(len(samples), settings.epochs, rng)
    else:
        rows = order.batch_order(lengths, batch=settings.batch_size, epochs=settings.epochs, rng=rng)
    size = job.batch * job.accumulate
    steps = [rows[i : i + size] for i in range(0, len(rows), size)][: job.steps or settings.max_steps or None]
    if settings.packing:
        capacity = order.tokens_at_once(settings.max_length, job.batch, job.tokens)
        return [order.packed(step, lengths, capacity, processes) for step in steps]
    return [
        order.padded(step, order.rows_at_once([lengths[i] for i in step], job.batch, job.tokens), processes)
        for step in steps
    ]


def held_out(tokenizer: Any, job: Job) -> dict[str, list[Sample]]:
    """What EVAL_STEPS measures, by bucket; nothing where it is 0, and in a dry run."""
    if job.steps or not job.settings.eval_steps:
        return {}
    path = job.settings.data_dir / "dataset" / "eval.jsonl"
    return evaluation.held_out(path, tokenizer, job.settings.max_length)
