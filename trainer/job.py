"""What a backend needs to know of a run."""

from dataclasses import dataclass
from pathlib import Path

from core.settings import TrainSettings
from trainer.plan import Plan


@dataclass(frozen=True)
class Job:
    settings: TrainSettings
    plan: Plan
    out: Path
    """The run's directory, for caches."""
    states: Path
    """Where the trainer keeps the states that an interrupted run resumes from."""
