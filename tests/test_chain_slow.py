"""The long proofs: the whole chain on the tiny profile reaches its bars; the base can be made again."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from core import artifacts
from eval.stats import Rate, compare
from tests.conftest import copy_project, run_make

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """`make all` in a fresh copy of the project, and what it printed."""
    project = copy_project(tmp_path_factory.mktemp("chain"))
    done = subprocess.run(["make", "all"], cwd=project, capture_output=True, text=True, check=False)
    return project, done


def rates(project: Path, name: str) -> dict[str, Rate]:
    manifest = json.loads((project / f"out/tiny/eval/{name}/manifest.json").read_text())
    return {bucket: Rate(**rate) for bucket, rate in manifest["counts"].items()}


def test_the_gain_is_large_and_certain(chain):
    project, done = chain
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"eval: tool-call validity .*: improves", done.stdout)
    base, merged = rates(project, "base")["mcp_calls"], rates(project, "merged")["mcp_calls"]
    assert merged.n >= 150
    assert merged.rate >= 0.8
    assert compare(base, merged) == "improves"


def test_what_the_base_knew_is_lost_by_15_points_at_most(chain):
    project, _ = chain
    before, after = rates(project, "base")["replay"], rates(project, "merged")["replay"]
    assert before.n >= 150
    assert before.rate - after.rate <= 0.15


def test_a_second_make_all_does_nothing(chain):
    project, _ = chain
    done = run_make(project, "all")
    assert done.returncode == 0
    assert done.stdout.count("up to date") == 7


def test_the_script_still_makes_a_base_as_good_as_the_shipped_one(tmp_path):
    project = copy_project(tmp_path)
    done = run_make(project, "base", "REBUILD=1")
    assert done.returncode == 0, done.stderr
    counts = json.loads((project / "models/tiny/manifest.json").read_text())["counts"]
    assert counts["measured"]["known"]["rate"] >= 0.85
    assert counts["measured"]["invented"]["rate"] >= 0.5
    assert counts["mtp_accepted"] >= 0.4


def test_a_killed_training_resumes_and_ends_with_the_same_adapter(project, tmp_path):
    other = copy_project(tmp_path)
    for name in ("models", "data"):
        (other / name).symlink_to(project / name)
    profile = other / "core/profiles/mini.py"
    profile.write_text(profile.read_text().replace("epochs=1", "epochs=2, save_steps=2"))
    undisturbed = run_make(other, "train", "PROFILE=mini", "RUN=whole")
    assert undisturbed.returncode == 0, undisturbed.stderr

    command = run_make(other, "-n", "train", "PROFILE=mini", "RUN=killed").stdout.splitlines()[-1]
    child = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=other, stdout=subprocess.DEVNULL)
    states = other / "out/killed/states"
    while not list(states.glob("*/checkpoint-4/trainer_state.json")):
        assert child.poll() is None, "the training ended before it could be killed"
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert artifacts.read_manifest(other / "out/killed/adapter") is None
    resumed = run_make(other, "train", "PROFILE=mini", "RUN=killed")
    assert resumed.returncode == 0, resumed.stderr
    one, two = (other / f"out/{run}/adapter/adapter_model.safetensors" for run in ("whole", "killed"))
    assert one.read_bytes() == two.read_bytes()
    assert sorted(p.name for p in (other / "out/killed").iterdir()) == ["adapter"]
