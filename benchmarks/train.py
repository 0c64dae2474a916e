"""`python -m benchmarks.train [MODELS_DIR=models] [PAIRS=3] [SCRATCH=<dir>]`: our trainer against stock trl.

On the same rows of `make dataset` (of PROFILE=tiny and of PROFILE=formal_smollm, SmolLM2-135M) in the same
random order, with the same adapter, batch, steps, schedule, loss and one thread. Stock is trl's SFTTrainer as
its SFTConfig comes, but for the fields that `stock` lists: transformers' own delta rule, gradient
checkpointing, padding. Ours is `trainer.learning.sft` with PACKING=1, its proof included. Each training is a
process of its own, its clock the process's; the two take turns, so that a busy machine slows both alike, and
the medians are of the ratios of neighbours. The loss is that of held-out rows after the last step.
"""

import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from core import artifacts, config, shards
from core.settings import TrainSettings
from trainer.backends import plain
from trainer.job import Job
from trainer.learning import evaluation, order, samples, sft
from trainer.learning.samples import Sample
from trainer.planning import plan

STEPS = {"tiny": 12, "formal_smollm": 10}


@dataclass(frozen=True)
class Case:
    profile: str
    models_dir: str
    scratch: str
    seed: int


def main(words: list[str]) -> None:
    """Print a line a training and one a profile, then the JSON line."""
    given = {
        "MODELS_DIR": "models",
        "PAIRS": "3",
        "SCRATCH": tempfile.gettempdir(),
        **config.split_words(words),
    }
    found = {profile: compare(profile, given) for profile in STEPS}
    result = {
        "speedup_tiny": found["tiny"]["speedup"],
        "speedup_smollm": found["formal_smollm"]["speedup"],
        "loss_ratio": max((one["loss_ratio"] for one in found.values()), key=lambda r: abs(r - 1)),
    }
    print(json.dumps({name: round(value, 4) for name, value in result.items()}))


def compare(profile: str, given: dict[str, str]) -> dict[str, float]:
    """Median speedup and ratio of the held-out losses, over pairs of trainings that share their rows."""
    print(
        f"\n{profile}: {STEPS[profile]} steps\n{'seed':<6}{'':<8}{'CPU s':>9}{'tokens/s':>10}{'loss':>9}",
        flush=True,
    )
    pairs = []
    for seed in range(int(given["PAIRS"])):
        case = Case(profile, given["MODELS_DIR"], given["SCRATCH"], seed)
        pair = {}
        for variant in (stock, ours) if seed % 2 else (ours, stock):
            one = pair[variant.__name__] = in_child(variant, case)
            rate = one["tokens"] / one["seconds"]
            row = f"{seed:<6}{variant.__name__:<8}{one['seconds']:>9.1f}{rate:>10.0f}{one['loss']:>9.4f}"
            print(row, flush=True)
        pairs.append(pair)
    speedup = statistics.median(pair["stock"]["seconds"] / pair["ours"]["seconds"] for pair in pairs)
    means = {name: statistics.mean(pair[name]["loss"] for pair in pairs) for name in ("ours", "stock")}
    loss_ratio = means["ours"] / means["stock"]
    print(f"{profile}: {speedup:.2f} times as fast, held-out loss {loss_ratio:.4f} times stock's", flush=True)
    return {"speedup": speedup, "loss_ratio": loss_ratio}


def in_child(work: Callable[[Case], dict[str, float]], case: Case) -> dict[str, float]:
    """Run `work` in a process of its own, since ours patches transformers."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, case).result()


def ours(case: Case) -> dict[str, float]:
    """`make train`'s training with PACKING=1, without evaluations and states."""
    job, rows = prepare(case)
    model, tokenizer = plain.load(job)
    start = _start()
    sft.train(model, tokenizer, rows, job)
    return {"seconds": time.process_time() - start, **_measured(model, tokenizer, rows, job)}


def stock(case: Case) -> dict[str, float]:
    """trl's SFTTrainer; what differs from SFTConfig's defaults is what this function passes."""
    import torch
    from datasets import Dataset
    from transformers.models.qwen3_5 import modeling_qwen3_5 as untouched
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    job, rows = prepare(case)
    settings, profile = job.settings, job.settings.profile.train
    model, tokenizer = plain.load(job)
    for name in ("torch_chunk_gated_delta_rule", "causal_conv1d_fn"):  # as plain.load found them
        setattr(modeling, name, getattr(untouched, name))
    arguments = SFTConfig(
        output_dir=str(job.states),
        per_device_train_batch_size=job.batch,
        gradient_accumulation_steps=job.accumulate,
        num_train_epochs=1,
        learning_rate=settings.learning_rate,
        optim=settings.optimizer,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup,
        adam_beta2=profile.adam_beta2,
        loss_type="chunked_nll",
        router_aux_loss_coef=0.0,
        max_length=settings.max_length,
        dataset_kwargs={"skip_prepare_dataset": True},
        seed=settings.train_seed,
        train_sampling_strategy="sequential",
        bf16=False,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        disable_tqdm=True,
    )
    shuffled = order.shuffled(len(rows), 1, random.Random(settings.train_seed))
    columns = [{"input_ids": rows[i].input_ids, "labels": rows[i].labels} for i in shuffled]
    trainer = SFTTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_list(columns), processing_class=tokenizer
    )
    start = _start()
    trainer.train()
    return {"seconds": time.process_time() - start, **_measured(model, tokenizer, rows, job)}


def prepare(case: Case) -> tuple[Job, list[Sample]]:
    """The job, and as many rows of the dataset as its steps take, drawn by the seed."""
    from core import generate

    words = [f"PROFILE={case.profile}", "RUN=benchmark", f"MODELS_DIR={case.models_dir}", "EPOCHS=1"]
    words += [f"TRAIN_SEED={case.seed}", "EVAL_STEPS=0", "SAVE_STEPS=1000000", "PACKING=1"]
    settings = config.parse(TrainSettings, words)
    artifacts.require(settings.data_dir / "dataset", f"dataset PROFILE={case.profile}")
    scratch = Path(tempfile.mkdtemp(dir=case.scratch))
    job = Job(
        settings=settings,
        plan=plan.of(settings, shards.read_checkpoint(settings.base_dir)),
        out=scratch,
        states=scratch / "states",
        batch=settings.batch_size,
        accumulate=settings.accumulate,
    )
    tokenizer = generate.load_tokenizer(settings.base_dir)
    rows = samples.read(settings.data_dir / "dataset/train.jsonl", tokenizer, settings.max_length)
    count = STEPS[case.profile] * job.batch * job.accumulate
    return job, random.Random(case.seed).sample(rows, count)


def _start() -> float:
    import torch

    torch.set_num_threads(1)
    return time.process_time()


def _measured(model: Any, tokenizer: Any, rows: list[Sample], job: Job) -> dict[str, float]:
    """Tokens trained, padding apart, and the loss on held-out rows."""
    import torch

    from trainer.learning import packing

    collate = packing.padded(tokenizer.pad_token_id)
    held_out = evaluation.held_out(
        job.settings.data_dir / "dataset/eval.jsonl", tokenizer, job.settings.max_length
    )
    model.eval()
    with torch.no_grad():
        found = evaluation.losses(
            lambda part: model(**collate(part), use_cache=False).loss, held_out, job.batch
        )
    return {"tokens": sum(len(row.input_ids) for row in rows), "loss": found["eval_loss"]}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1:])
