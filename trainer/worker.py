"""The process that trains: everything that needs the model. Started by `trainer.train`, never by a user.

Its words are the path of a task file; it leaves the adapter in the task's directory, and a result file that
says how it ended.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from core import artifacts, attention_trial, config, errors, shards
from core.errors import UserError
from core.settings import TrainSettings
from trainer import backends
from trainer.backends import adapter
from trainer.job import Job, Stopped, Task
from trainer.learning import metrics, samples
from trainer.planning import plan
from trainer.running import processes, supervise


@dataclass(frozen=True)
class Result:
    """How the worker ended, as it says itself; a worker that was killed leaves none."""

    outcome: Literal["done", "stopped", "memory", "mistake"]
    message: str = ""
    """One line for the user where it is a mistake."""
    backend: dict[str, Any] = field(default_factory=dict)
    """What to add to the manifest's `backend`."""
    counts: dict[str, Any] = field(default_factory=dict)


def main(words: list[str]) -> int:
    """Do the task; exit code 0 where the result file says `done`, else 2."""
    supervise.die_with_parent()
    processes.silence_others()
    task = Task.read(Path(words[0]))
    try:
        result = _train(task)
    except Stopped as stopped:
        result = Result("stopped", str(stopped))
    except UserError as error:
        result = Result("mistake", str(error))
    except Exception as error:
        if _out_of_memory(error):
            result = Result("memory", str(error).splitlines()[0])
        elif message := errors.disk_message(error):
            result = Result("mistake", message)
        else:
            raise
    if processes.is_first_here() or result.outcome != "done":
        artifacts.write_atomically(task.result, json.dumps(asdict(result)) + "\n")
    return errors.DONE if result.outcome == "done" else errors.MISTAKE


def read_result(task: Task) -> Result | None:
    """What the worker left; None where it was killed before."""
    try:
        return Result(**json.loads(task.result.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def _train(task: Task) -> Result:
    settings = config.parse(TrainSettings, task.words)
    planned = plan.of(settings, shards.read_checkpoint(settings.base_dir))
    job = Job(
        settings=settings,
        plan=planned,
        out=Path(task.out),
        states=Path(task.states),
        batch=task.batch,
        accumulate=task.accumulate,
        tokens=task.tokens,
        steps=task.steps,
    )
    rule = backends.gated_delta(task.backend, settings.max_length)
    print(f"train: backend {task.backend}; Gated DeltaNet runs {rule}", flush=True)
    backend = backends.module(task.backend)
    model, tokenizer = backend.load(job)
    plan.check_trained({n: p.numel() for n, p in model.named_parameters() if p.requires_grad}, planned)

    rows = samples.read(settings.data_dir / "dataset" / "train.jsonl", tokenizer, settings.max_length)
    tokens = samples.counts(rows)
    if processes.is_first():
        samples.write_counts(job.out / "labels.jsonl", rows)
    print(
        f"train: {len(rows)} samples, {tokens['all']:,} tokens, {tokens['labelled']:,} labelled"
        f" ({tokens['fewest']} to {tokens['most']} a sample: {job.out / 'labels.jsonl'})",
        flush=True,
    )
    if job.steps:
        rows = samples.spread(rows, job.steps * job.batch * job.accumulate)
    log = backend.fit(model, tokenizer, rows, job)
    steps = metrics.train_steps(log)

    if processes.is_first():
        adapter.save(model, Path(task.adapter))
        metrics.write(log, Path(task.adapter))
    shown = max(1, min(20, len(steps) // 2))
    return Result(
        "done",
        backend={"gated_delta": rule, "attention": attention_trial.described()},
        counts={
            "samples": len(rows),
            "tokens": tokens,
            "steps": len(steps),
            "tokens_per_second": metrics.rate(job.out),
            "peak": _peak(),
            "first_loss": _mean_loss(steps[:shown]),
            "last_loss": _mean_loss(steps[-shown:]),
        },
    )


def _out_of_memory(error: BaseException) -> bool:
    """Whether an allocator gave up: CUDA's by its own class, a CPU's by its message."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def _peak() -> dict[str, int]:
    """Peak memory of this process in MB: resident, and what torch reserved on a GPU."""
    torch = sys.modules.get("torch")
    gpu = torch.cuda.max_memory_reserved() >> 20 if torch and torch.cuda.is_available() else 0
    return {"host_mb": artifacts.peak_mb(), "gpu_mb": gpu}


def _mean_loss(steps: list[dict[str, float]]) -> float:
    return round(sum(step["loss"] for step in steps) / max(len(steps), 1), 4)


if __name__ == "__main__":
    errors.run(main)
