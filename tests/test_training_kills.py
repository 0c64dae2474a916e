"""kill -9 during training: the next start goes on, and the adapter is an undisturbed run's to the byte."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.training import Training
from trainer.learning import metrics

START = (
    "import sys; from pathlib import Path; from tests.training import Training;"
    " Training(Path(sys.argv[1]), Path(sys.argv[2]), tuple(sys.argv[3:])).start()"
)


def kill_at(training: Training, step: int) -> None:
    """Start the training as a process of its own and kill it once it has told of that step."""
    child = subprocess.Popen(
        [sys.executable, "-c", START, str(training.directory), str(training.base), *training.words],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 400
    while not any(entry["step"] >= step for entry in metrics.read(training.metrics)):
        assert child.poll() is None, f"ended before step {step}"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


def same(killed: Training, whole: Training) -> None:
    """The curve without gaps or repetitions, and the adapter's bytes."""
    told = [[entry for entry in metrics.read(run.metrics) if "loss" in entry] for run in (killed, whole)]
    curves = [[(entry["step"], entry["loss"], entry["grad_norm"]) for entry in log] for log in told]
    assert curves[0] == curves[1]
    assert killed.adapter() == whole.adapter()


def test_a_kill_costs_only_time(base_dir: Path, tmp_path: Path) -> None:
    words = ("SAVE_STEPS=2",)
    killed = Training(tmp_path / "killed", base_dir, words)
    kill_at(killed, 5)
    same(killed.start(), Training(tmp_path / "whole", base_dir, words).start())


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["PACKING=", "PACKING=1"])
def test_ten_kills_cost_only_time(base_dir: Path, tmp_path: Path, packing: str) -> None:
    words = ("SAVE_STEPS=3", "EPOCHS=5", "EVAL_STEPS=7", packing)
    killed = Training(tmp_path / "killed", base_dir, words)
    for step in sorted(random.Random(20261201).sample(range(1, 42), 10)):
        kill_at(killed, step)
    same(killed.start(), Training(tmp_path / "whole", base_dir, words).start())
