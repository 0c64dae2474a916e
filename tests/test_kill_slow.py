"""The chain under kill -9: whatever is killed whenever, the next `make all` ends as if nothing had been."""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from core import artifacts
from eval import evaluations
from tests.conftest import copy_project, run_make

pytestmark = pytest.mark.slow
ALL = ("all", "PROFILE=mini", "FORCE=1")


def commands(project: Path) -> list[str]:
    """What `make all` runs, in order."""
    lines = run_make(project, "-n", *ALL).stdout.splitlines()
    return [line for line in lines if line.startswith(".venv/bin/python -m ")]


def run(project: Path, command: str) -> float:
    """Run one command of the chain; its seconds."""
    start = time.monotonic()
    done = subprocess.run(command, shell=True, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, command + done.stdout + done.stderr
    return time.monotonic() - start


def kill(project: Path, command: str, after: float) -> bool:
    """Start a command and kill it with its children; whether it was still running."""
    child = subprocess.Popen(
        ["bash", "-c", command], cwd=project, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(after)
    alive = child.poll() is None
    if alive:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return alive


def files(project: Path) -> set[str]:
    """Every file that the chain left, by name."""
    roots = [project / name for name in ("data", "out", "models", "deployed")]
    found = (p.relative_to(project) for root in roots for p in root.rglob("*") if p.is_file())
    return {timeless(str(path)) for path in found if evaluations.LOGS not in path.parts}


def timeless(name: str) -> str:
    """A name without the time that a backup has in its own."""
    return re.sub(r"\.bak-[^/]+", ".bak", name)


def digests(project: Path) -> dict[str, str]:
    """The payload digest of every artefact."""
    found = sorted(project.glob("*/**/manifest.json"))
    return {
        timeless(str(path.parent.relative_to(project))): digest(path)
        for path in found
        if path.relative_to(project).parts[0] in ("data", "out", "models", "deployed")
    }


def digest(path: Path) -> str:
    """Of a manifest's payload; live traces, which quote the clock and commits, count by how they ended."""
    manifest = json.loads(path.read_text())
    samples = path.with_name(evaluations.SAMPLES)
    if not samples.exists():
        return artifacts.digest(manifest)
    lines = [json.loads(line) for line in samples.read_bytes().splitlines()]
    kept = [(one["id"], one["right"]) if one["kind"] == "live" else one for one in lines]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()


def test_killed_anywhere_the_chain_ends_with_the_same_bytes(tmp_path):
    whole, killed = (copy_project(tmp_path / name) for name in ("whole", "killed"))
    seconds = {command: run(whole, command) for command in commands(whole)}
    rng = random.Random(20261130)
    kills = 0
    for command, duration in seconds.items():
        kills += kill(killed, command, duration * rng.uniform(0.3, 0.95))
        for manifest in killed.glob("*/**/manifest.json"):
            assert artifacts.complete(manifest.parent, json.loads(manifest.read_text())), manifest
        run(killed, command)
    assert kills >= 10
    done = run_make(killed, *ALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert digests(killed) == digests(whole)
    assert len(digests(whole)) >= 10
    assert files(killed) == files(whole)
