"""`make gpu-check`: on one GPU and in ten minutes, what a CPU cannot tell. Needs no base and no dataset.

Each backend trains a model of the 35B's real widths and few layers (`trainer.real_shape`) from the same start
on the same rows, alone and packed, through the same stages as `make train` and `make merge`. Without a GPU
the same script runs on a much smaller model, and the parts that need one are skipped with the reason.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core import artifacts, config, errors, fla_trial
from core import profile as profiles
from core.progress import clock
from core.settings import RunSettings
from trainer import backends, real_shape

ROOT = Path(__file__).parents[1]
PROFILE = "qwen3_6_35b_a3b"
BACKENDS = ("plain", "unsloth")
STEPS = 8
ALLOWED = 0.02
"""Relative difference of two losses of the same step, all in bfloat16."""
Part = dict[str, Any]
"""Figures of a part; `skipped` or `failed` with the reason where there are none."""


def main(words: list[str]) -> int:
    """Run every part and write out/<RUN>/gpu-check.json; exit code 1 where one failed, skipped ones apart."""
    import torch

    settings, start = config.parse(RunSettings, words), time.monotonic()
    on_gpu = torch.cuda.is_available()
    shape = real_shape.REAL if on_gpu else real_shape.SMALL
    scratch = settings.out_dir.resolve() / "gpu-check"
    shutil.rmtree(scratch, ignore_errors=True)
    parts: dict[str, Part] = {"gated delta rule": _timed(lambda: gated_delta(on_gpu))}
    try:
        _timed(lambda: prepare(scratch, shape))
        for backend in BACKENDS:
            for packing in ("", "1"):
                name = f"{backend}{', packed' if packing else ''}"
                parts[name] = _timed(lambda b=backend, p=packing: train(scratch, b, p, shape.longest))
            parts[f"{backend}, merged"] = _timed(lambda b=backend: merge(scratch, b, parts[b]))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for one, other in (("plain", "unsloth"), ("plain", "plain, packed"), ("unsloth", "unsloth, packed")):
        parts[f"{one} against {other}"] = compare(parts[one], parts[other])
    report = {
        "machine": {
            "gpu": torch.cuda.get_device_name() if on_gpu else None,
            "system": platform.platform(),
            "versions": artifacts.versions(),
        },
        "shape": vars(shape),
        "parts": parts,
        "seconds": round(time.monotonic() - start, 1),
    }
    settings.out_dir.mkdir(parents=True, exist_ok=True)
    file = settings.out_dir / "gpu-check.json"
    artifacts.write_atomically(file, json.dumps(report, indent=1) + "\n")
    print(table(parts))
    print(f"gpu-check: {clock(time.monotonic() - start)}, {file}")
    return errors.NEGATIVE if any("failed" in part for part in parts.values()) else errors.DONE


def prepare(scratch: Path, shape: real_shape.Shape) -> Part:
    """A working directory for the stages: base, dataset."""
    profile = profiles.load(PROFILE)
    _stage("trainer.base", scratch, PROFILE="tiny", RUN="tiny", MODELS_DIR="models")  # for its tokenizer
    base = scratch / "models" / profile.base_name
    real_shape.write_base(base, shape, scratch / "models" / "tiny")
    artifacts.record(base, kind="checkpoint", profile=profile.name)
    rows = real_shape.make_rows(shape)
    real_shape.write_dataset(scratch / "data" / profile.name / "dataset", rows, base, profile, shape.longest)
    return {}


def gated_delta(on_gpu: bool) -> Part:
    """The rule of core/gated_delta.py against fla's and transformers': agreement, speed, memory."""
    fault = fla_trial.fault()
    if not on_gpu:
        return {"skipped": "no CUDA device: make gpu-check measures it there"}
    done = _run([sys.executable, "-m", "benchmarks.gated_delta"], ROOT)
    if done.returncode:
        return {"failed": _last_line(done)}
    *lines, last = done.stdout.strip().splitlines()
    return {"fla": fault or "agrees", "lines": lines, **json.loads(last)}


def train(scratch: Path, backend: str, packing: str, longest: int) -> Part:
    """A short training by `trainer.train`, without dropout, so that it compares: losses, speed, memory."""
    missing = backends.module(backend).unavailable(profiles.load(PROFILE))
    if missing:
        return {"skipped": missing}
    run = f"{backend}{packing}"
    done = _stage(
        "trainer.train",
        scratch,
        **_place(run),
        BACKEND=backend,
        PACKING=packing,
        MAX_STEPS=STEPS,
        MAX_LENGTH=longest,
        BATCH_SIZE=2,
        ACCUMULATE=2,
        LORA_DROPOUT=0,
        TRAIN_SEED=0,
        MEMORY_LIMIT=0,
        STOP_CMD="true",
        START_CMD="true",
    )
    if done.returncode:
        return {"failed": _last_line(done)}
    adapter = scratch / "out" / run / "adapter"
    manifest = json.loads((adapter / artifacts.MANIFEST).read_text(encoding="utf-8"))
    steps = (adapter / "loss.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        "losses": [json.loads(step)["loss"] for step in steps],
        "tokens_per_second": round(manifest["counts"]["tokens_per_second"]),
        "peak_mb": manifest["counts"]["peak"],
        "gated_delta": manifest["backend"]["gated_delta"],
    }


def merge(scratch: Path, backend: str, trained: Part) -> Part:
    """The adapter merged by `quant.merge`, whose parity probe compares it with PEFT's own output."""
    if "losses" not in trained:
        return {"skipped": f"{backend} trained no adapter"}
    done = _stage("quant.merge", scratch, **_place(backend))
    if done.returncode:
        return {"failed": _last_line(done)}
    said = next(line for line in done.stdout.splitlines() if line.startswith("merge:"))
    return {"merge": said.removeprefix("merge: ")}


def compare(one: Part, other: Part) -> Part:
    """The largest relative difference of two runs' losses, step by step."""
    if "losses" not in one or "losses" not in other:
        return {"skipped": "one of them did not train"}
    pairs = zip(one["losses"], other["losses"], strict=True)
    largest = max(abs(a - b) / a for a, b in pairs)
    figures = {"largest_relative_difference": round(largest, 6)}
    return figures if largest <= ALLOWED else figures | {"failed": f"losses differ by {largest:.1%}"}


def table(parts: dict[str, Part]) -> str:
    """A line a part."""
    lines = []
    for name, part in parts.items():
        if "skipped" in part or "failed" in part:
            word = "failed" if "failed" in part else "skipped"
            lines.append(f"{name:<34}{word}: {part[word]}")
            continue
        figures = []
        if "losses" in part:
            peak = part["peak_mb"]
            memory = f"GPU {peak['gpu_mb']:,} MB" if peak["gpu_mb"] else f"host {peak['host_mb']:,} MB"
            figures.append(f"loss {part['losses'][0]:.3f} to {part['losses'][-1]:.3f}")
            figures += [f"{part['tokens_per_second']:,} tokens/s", memory]
        simple = ("largest_relative_difference", "merge", "fla", "speedup_8192")
        figures += [f"{key.replace('_', ' ')} {part[key]}" for key in simple if key in part]
        lines.append(f"{name:<34}{', '.join(figures)}")
    return "\n".join(lines)


def _place(run: str) -> dict[str, object]:
    return {"PROFILE": PROFILE, "RUN": run, "MODELS_DIR": "models"}


def _stage(module: str, scratch: Path, **settings: object) -> "subprocess.CompletedProcess[str]":
    scratch.mkdir(parents=True, exist_ok=True)
    return _run([sys.executable, "-m", module, *(f"{n}={v}" for n, v in settings.items())], scratch)


def _run(command: list[str], where: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=where,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _timed(part: Callable[[], Part]) -> Part:
    start = time.monotonic()
    return part() | {"seconds": round(time.monotonic() - start, 1)}


if __name__ == "__main__":
    errors.run(main)
