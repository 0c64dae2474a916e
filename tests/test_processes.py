"""Several processes train as one: the same losses and the same adapter from the same global batch."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core import chat
from tests.conftest import ROOT
from tests.training import WORDS, Training, rows
from trainer import worker
from trainer.job import Task
from trainer.learning import metrics
from trainer.running import launch

STEPS = ("BATCH_SIZE=2", "ACCUMULATE=2", "LORA_DROPOUT=0", "LORA_RANK=4", "MAX_STEPS=3", "LORA_EXPERTS=1")


def together(
    directory: Path, base: Path, data: Path, *words: str
) -> tuple[subprocess.CompletedProcess[str], Task]:
    """Let two processes train over gloo, as `make train NPROC=2` starts them."""
    given = dict(word.split("=", 1) for word in (*WORDS, f"MODELS_DIR={base.parent}", *STEPS, *words))
    shutil.copytree(data, directory / "data")
    (directory / "adapter").mkdir()
    job = Training(directory, base, (*STEPS, "NPROC=2")).job()
    task = Task(
        words=[f"{name}={value}" for name, value in given.items()],
        backend="plain",
        out="out/x",
        states=str(directory / "states"),
        adapter=str(directory / "adapter"),
        batch=job.batch,
        accumulate=job.accumulate,
    )
    done = subprocess.run(
        launch.command(job.settings, task),
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done, task


def adapter(directory: Path) -> dict[str, Any]:
    """The saved tensors by name."""
    from safetensors.torch import load_file

    return load_file(directory / "adapter/adapter_model.safetensors")


@pytest.mark.slow  # the libraries are imported three times
def test_two_processes_train_as_one(base_dir, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    alone = metrics.train_steps(Training(one, base_dir, STEPS).start().log)
    done, task = together(two, base_dir, one / "data")
    assert done.returncode == 0, done.stdout + done.stderr
    result = worker.read_result(task)
    assert result and result.outcome == "done"
    assert done.stdout.count("samples") == 1, "one process speaks for all"
    shared = metrics.read(two / "out/x/metrics.jsonl")
    assert len(alone) == len(shared) == 3
    for ours, theirs in zip(alone, shared, strict=True):
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-6)
        assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-5)
    before, after = adapter(one), adapter(two)
    assert before.keys() == after.keys()
    assert max(float((before[name] - after[name]).abs().max()) for name in before) <= 1e-6
    assert any(float(after[name].abs().max()) > 1e-3 for name in after if "lora_B" in name), "it has trained"


@pytest.mark.slow
def test_a_mistake_in_two_processes_is_one_line(base_dir, tmp_path):
    dataset = tmp_path / "made/tiny/dataset"
    dataset.mkdir(parents=True)
    chat.write_rows(dataset / "train.jsonl", rows(4))
    done, task = together(tmp_path, base_dir, tmp_path / "made", "MAX_LENGTH=8")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    result = worker.read_result(task)
    assert result and result.outcome == "mistake"
    assert "MAX_LENGTH=8" in result.message
