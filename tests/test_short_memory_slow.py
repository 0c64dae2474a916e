"""A training whose steps do not fit into the memory that it gets takes smaller ones and learns the same."""

import json
import subprocess

import pytest

from tests.conftest import copy_project, run_make

pytestmark = pytest.mark.slow
IMPORTS = """
import torch, transformers, peft, trl, datasets
from trl.trainer.sft_trainer import SFTTrainer
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(status["VmPeak"].split()[0])
"""
ROOM = 650_000
"""KiB of addresses beyond what the imports take: too few for eight of the longest rows, enough for four."""


def test_a_run_that_does_not_fit_takes_smaller_steps_and_learns_the_same(project, tmp_path):
    from safetensors.numpy import load_file

    other = copy_project(tmp_path)
    for name in ("models", "data"):
        (other / name).symlink_to(project / name)
    python = other / ".venv/bin/python"
    imported = subprocess.run([python, "-c", IMPORTS], capture_output=True, text=True, check=True)
    command = run_make(other, "-n", "train", "PROFILE=mini", "RUN=short").stdout.splitlines()[-1]
    limited = f"ulimit -v {int(imported.stdout) + ROOM}; {command}"
    done = subprocess.run(["bash", "-c", limited], cwd=other, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "memory ran out with 8 rows a device step; now 4, 2 device steps an optimiser step" in done.stdout
    counts = json.loads((other / "out/short/adapter/manifest.json").read_text())["counts"]
    whole = json.loads((project / "out/mini/adapter/manifest.json").read_text())["counts"]
    assert counts["device_batch"] < whole["device_batch"] == 8
    assert counts["steps"] == whole["steps"]
    assert abs(counts["last_loss"] - whole["last_loss"]) < 1e-3
    name = "adapter/adapter_model.safetensors"
    one, two = load_file(other / "out/short" / name), load_file(project / "out/mini" / name)
    assert max(abs(one[key] - two[key]).max() for key in one) < 1e-3
