"""What comes before a training, a dry run or a plan: inputs, backend, forecast; no weight is loaded."""

from dataclasses import dataclass
from pathlib import Path

from core import artifacts
from core.errors import UserError
from core.settings import TrainSettings
from trainer import backends
from trainer.job import Task
from trainer.planning import forecast, memory
from trainer.planning.forecast import Forecast
from trainer.running import room

BITS8 = "adamw_8bit"
OPTIMIZERS = ("adamw_torch_fused", "adamw_torch", BITS8)
SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    inputs: dict[str, dict[str, str]]
    backend: str
    reasons: dict[str, str]
    """Why each backend before it is not used."""
    forecast: Forecast


def inputs_of(settings: TrainSettings) -> dict[str, dict[str, str]]:
    """The base and the dataset, for a manifest; UserError where one is missing."""
    dataset = settings.data_dir / "dataset"
    return {
        "base": artifacts.as_input(settings.base_dir, artifacts.require(settings.base_dir, "base")),
        "dataset": artifacts.as_input(dataset, artifacts.require(dataset, "dataset")),
    }


def prepare(settings: TrainSettings, what: str) -> Prepared:
    """Choose the backend and say what the run will take; `what` begins the lines.

    UserError where an input is missing, a setting cannot be, or no backend can run.
    """
    inputs, dataset = inputs_of(settings), settings.data_dir / "dataset"
    if not (dataset / "train.jsonl").stat().st_size:
        raise UserError(f"{dataset}: no training rows; look at what make dataset dropped")
    check_settings(settings)
    name, reasons = backends.choose(settings.profile, settings.backend, settings.nodes * settings.nproc)
    for other, reason in reasons.items():
        print(f"{what}: backend {other} not used: {reason}")
    found = forecast.make(settings, artifacts.require(dataset, "dataset"))
    for line in found.lines(settings):
        print(f"{what}: {line}" if not line.startswith("adapter") else line)
    return Prepared(inputs=inputs, backend=name, reasons=reasons, forecast=found)


def check_settings(settings: TrainSettings) -> None:
    """UserError on a schedule or an optimiser that is not known, or cannot run here."""
    for name, value, known in (
        ("SCHEDULE", settings.schedule, SCHEDULES),
        ("OPTIMIZER", settings.optimizer, OPTIMIZERS),
    ):
        if value not in known:
            raise UserError(f"{name}={value}: expected one of {', '.join(known)}")
    if settings.optimizer == BITS8:
        fault = _without_8bit()
        if fault:
            raise UserError(
                f"OPTIMIZER={BITS8} needs CUDA and bitsandbytes, {fault}: OPTIMIZER={OPTIMIZERS[0]}"
            )


def task(settings: TrainSettings, words: list[str], backend: str, states: Path, adapter: Path) -> Task:
    """What the worker is to do for these settings."""
    return Task(
        words=words,
        backend=backend,
        out=str(settings.out_dir),
        states=str(states),
        adapter=str(adapter),
        batch=settings.batch_size,
        accumulate=settings.accumulate,
        tokens=memory.AT_ONCE[room.place()],
        node=settings.node_rank,
    )


def _without_8bit() -> str | None:
    from importlib.util import find_spec

    from core import machine

    if machine.kind() != "cuda":
        return "and here is no NVIDIA GPU"
    return None if find_spec("bitsandbytes") else "and bitsandbytes is not installed"
