"""What an interrupted run resumes from: an artefact, written aside, synced, and verified before use.

`<states>/step-000050/` holds the adapter, the optimiser, the schedule, the random generators and the
trainer's log. The last two are kept, so that one is left where the newest turns out damaged.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from core import artifacts
from core.settings import TrainSettings

STEP, BEST = "step", "best"
KEPT = {STEP: 2, BEST: 1}
TRAINER = "trainer_state.json"


@contextlib.contextmanager
def writing(states: Path, name: str, settings: TrainSettings) -> Iterator[Path]:
    """A directory that becomes `<states>/<name>` when the block ends well; else what was there stays."""
    facts = {"profile": settings.profile.name, "run": settings.run, "settings": {}, "inputs": {}}
    states.mkdir(parents=True, exist_ok=True)
    with artifacts.create(states / name, kind="state", **facts) as draft:
        yield draft.path
        for file in artifacts.payload(draft.path).values():
            _sync(file)
    kind = name.split("-")[0]
    for old in _all(states, kind)[: -KEPT[kind]]:
        shutil.rmtree(old)


def unfinished(states: Path, name: str) -> Path:
    """Where `writing` builds, for the other processes of a run, which add their random generators."""
    return states / f"{name}.partial"


def name_of(kind: str, step: int) -> str:
    """`step`, 50 -> `step-000050`."""
    return f"{kind}-{step:06d}"


def step_of(path: Path) -> int:
    """The step after which a state was saved."""
    return int(path.name.split("-")[1])


def latest(states: Path) -> Path | None:
    """The newest state that is whole, if any; damaged ones are removed and named on stderr."""
    for path in reversed(_all(states, STEP)):
        fault = fault_in(path)
        if fault is None:
            return path
        print(f"train: the state {path.name} is not used: {fault}", file=sys.stderr)
        shutil.rmtree(path)
    return None


def fault_in(path: Path) -> str | None:
    """Why a state cannot be resumed from, or None; reads all of it."""
    manifest = artifacts.read_manifest(path)
    if manifest is None:
        return "it has no manifest"
    for name, entry in manifest["files"].items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if artifacts.file_sha256(file) != entry["sha256"]:
            return f"{name} is damaged"
    return None


def _all(states: Path, kind: str) -> list[Path]:
    """The finished ones, oldest step first."""
    return sorted(path for path in states.glob(f"{kind}-*") if path.name.split("-")[1].isdigit())


def _sync(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
