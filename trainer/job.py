"""What the parent asks of the process that trains, what a backend needs to know, and how it may end."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from core import artifacts
from core.settings import TrainSettings
from trainer.planning.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Task:
    """What `trainer.worker` is to do; a JSON file, since a launcher may start several processes of it."""

    words: list[str]
    """NAME=value of the settings."""
    backend: str
    out: str
    """The run's directory, for caches."""
    states: str
    """Where the states of an interrupted run are."""
    adapter: str
    """Directory that receives the adapter."""
    batch: int
    """Rows a device step: BATCH_SIZE, or less where that did not fit."""
    accumulate: int
    """Device steps an optimiser step."""
    tokens: int | None = None
    """Tokens a device step at the most, padding included, where one row is not longer; None: any."""
    steps: int = 0
    """Optimiser steps of a dry run; 0 trains wholly."""
    node: int = 0
    """Which of the machines that train together; the others share the first one's directory of the run."""

    def dry(self, steps: int) -> "Task":
        """The same as a dry run, which leaves nothing in the run's directory."""
        return replace(self, steps=steps, out=self.states)

    @property
    def result(self) -> Path:
        """Where the worker says how it ended, a `Result`."""
        return self._place / "result.json"

    def write(self) -> Path:
        """Write it beside the states, those of other machines than the first apart; returns where."""
        path = self._place / "task.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        artifacts.write_atomically(path, json.dumps(asdict(self), indent=1) + "\n")
        return path

    @property
    def _place(self) -> Path:
        return Path(self.out) / f"node-{self.node}" if self.node else Path(self.states)

    @classmethod
    def read(cls, path: Path) -> "Task":
        """What `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Job:
    settings: TrainSettings
    plan: Plan
    out: Path
    """The run's directory, for caches."""
    states: Path
    """Where the trainer keeps the states that an interrupted run resumes from."""
    batch: int
    """Rows a device step: settings.batch_size (which alone decides the row order), or less to fit."""
    accumulate: int
    """Device steps an optimiser step; batch * accumulate stays the same."""
    tokens: int | None = None
    """Tokens a device step at the most; a step of more is taken in several parts (order.tokens_at_once)."""
    steps: int = 0
    """Optimiser steps of a dry run, which needs no states; 0 trains wholly."""


class Stopped(Exception):
    """SIGTERM asked the training to stop: its state is saved, and the same command goes on from there."""
