"""`make train`: a LoRA adapter in PEFT's layout, from whichever backend can run here.

An adapter is never overwritten by one of other settings: the run stops and names both ways on.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, errors, fla_trial, shards
from core.errors import UserError
from core.render import Rendered, render
from core.settings import TrainSettings
from trainer import backends
from trainer.job import Job
from trainer.plan import check_trained, make_plan


def main(words: list[str]) -> int:
    """Train; exit code 0. UserError where an input is missing or the adapter there is another's."""
    settings = config.parse(TrainSettings, words)
    profile, path = settings.profile, settings.out_dir / "adapter"
    dataset_dir = settings.data_dir / "dataset"
    inputs = {
        "base": artifacts.as_input(settings.base_dir, artifacts.require(settings.base_dir, "base")),
        "dataset": artifacts.as_input(dataset_dir, artifacts.require(dataset_dir, "dataset")),
    }
    recorded = config.recorded(settings)
    there = artifacts.read_manifest(path)
    changed = artifacts.differences(there, recorded, inputs)
    if not changed:
        print(f"train: up to date ({path})")
        return errors.DONE
    if there is not None and not settings.retrain:
        raise UserError(
            f"{path} was trained otherwise: {', '.join(changed)}. Repeat those settings, or keep both with "
            f"make train RUN=<new name>, or train anew over it with make train RETRAIN=1"
        )

    name, reasons = backends.choose(profile, settings.backend)
    for other, reason in reasons.items():
        print(f"train: backend {other} not used: {reason}")
    rule = fla_trial.rule(settings.max_length)
    print(f"train: backend {name}; Gated DeltaNet runs {rule}")
    plan = make_plan(profile, shards.read_checkpoint(settings.base_dir), settings.lora_rank)
    print(
        f"train: {len(plan.modules)} modules, {plan.parameters:,} trainable parameters "
        f"({plan.share:.2%} of the base)"
    )
    rows = chat.read_rows(dataset_dir / "train.jsonl")
    if not rows:
        raise UserError(f"{dataset_dir}: no training rows; look at what make dataset dropped")
    states = settings.out_dir / "states" / _job_digest(recorded, inputs)
    job = Job(settings, plan, settings.out_dir, states)
    with artifacts.create(
        path, kind="adapter", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        backend = backends.module(name)
        model, tokenizer = backend.load(job)
        check_trained({n: p.numel() for n, p in model.named_parameters() if p.requires_grad}, plan)
        samples, tokens = _samples(rows, tokenizer, settings.max_length)
        print(f"train: {len(samples)} samples, {tokens['all']:,} tokens, {tokens['labelled']:,} labelled")
        log = backend.fit(model, tokenizer, samples, job)
        model.save_pretrained(draft.path)
        (draft.path / "README.md").unlink(missing_ok=True)
        _write_log(draft.path, log)
        shown = max(1, min(20, len(log) // 2))
        draft.backend = {"name": name, "reasons": reasons, "gated_delta": rule}
        draft.counts = {
            "samples": len(samples),
            "tokens": tokens,
            "steps": len(log),
            "modules": len(plan.modules),
            "trainable_parameters": plan.parameters,
            "first_loss": _mean_loss(log[:shown]),
            "last_loss": _mean_loss(log[-shown:]),
        }
    shutil.rmtree(states.parent, ignore_errors=True)
    print(f"train: loss {draft.counts['first_loss']} -> {draft.counts['last_loss']}, adapter at {path}")
    return errors.DONE


def _samples(rows: list[chat.Row], tokenizer: Any, max_length: int) -> tuple[list[Rendered], dict[str, int]]:
    arrow = chat.to_dataset(rows)
    samples = [sample for row in arrow for sample in render(chat.Row(**row), tokenizer)]  # pyright: ignore[reportCallIssue]
    longest = max(len(sample.input_ids) for sample in samples)
    if longest > max_length:
        raise UserError(
            f"a row has {longest} tokens, MAX_LENGTH={max_length}: make dataset with that MAX_LENGTH"
        )
    labelled = sum(label >= 0 for sample in samples for label in sample.labels)
    return samples, {"all": sum(len(s.input_ids) for s in samples), "labelled": labelled, "longest": longest}


def _job_digest(recorded: dict[str, Any], inputs: dict[str, dict[str, str]]) -> str:
    whole = json.dumps([recorded, [entry["sha256"] for entry in inputs.values()]], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def _mean_loss(steps: list[dict[str, float]]) -> float:
    return round(sum(step["loss"] for step in steps) / max(len(steps), 1), 4)


def _write_log(directory: Path, log: list[dict[str, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = "".join(json.dumps(step) + "\n" for step in log)
    (directory / "loss.jsonl").write_text(lines, encoding="utf-8")
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot([step["step"] for step in log], [step["loss"] for step in log], linewidth=0.8)
    axes.set(xlabel="optimiser step", ylabel="loss (assistant tokens)", yscale="log", title="Training loss")
    figure.tight_layout()
    figure.savefig(directory / "loss.png", dpi=100, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    errors.run(main)
