"""What a training will take, before it runs: memory, steps, tokens, time where a rate is known, disk."""

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import artifacts, shards
from core.errors import UserError
from core.progress import clock
from core.settings import TrainSettings
from trainer.checks.check import size
from trainer.learning import order
from trainer.planning import memory, plan
from trainer.planning.memory import Estimate, Place
from trainer.planning.plan import Plan
from trainer.running import room

RATE = "dry-run.json"
STATES, STATE_FLOATS = 3, 3
"""Two states and the best one are kept, each with the adapter and AdamW's two moments."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    plan: Plan
    place: Place
    estimate: Estimate
    steps: int
    """Optimiser steps."""
    tokens: int
    """That the model reads in all epochs, without padding."""
    rate: float | None
    """Tokens a second of the run's last dry run or training; None where there was none."""
    disk: int
    """Bytes of the adapter and the states that an interrupted run resumes from."""

    @property
    def seconds(self) -> float | None:
        """How long the steps take; None where it is not known."""
        return self.tokens / self.rate if self.rate else None

    def lines(self, settings: TrainSettings) -> list[str]:
        """It for the user."""
        rows = f"{settings.batch_size * settings.accumulate} rows"
        time = (
            f"{clock(self.seconds)} at {self.rate:,.0f} tokens/s"
            if self.seconds and self.rate
            else "time not known yet: make dry-run"
        )
        return [
            plan.table(self.plan, settings.lora_rank),
            f"memory   {size(self.estimate.peak)} at the peak: {self.estimate}",
            f"steps    {self.steps:,} of {rows}, {self.tokens:,} tokens, {time}",
            f"disk     {size(self.disk)} for the adapter and its states",
        ]

    def above(self, settings: TrainSettings) -> str | None:
        """Why it is too much for MEMORY_LIMIT, or None."""
        return too_much(settings, self.estimate.peak)


def make(settings: TrainSettings, dataset: dict[str, Any]) -> Forecast:
    """The forecast of a run on the dataset with this manifest.

    UserError as `plan.of`, and where the disk has no room.
    """
    tensors = shards.read_checkpoint(settings.base_dir)
    planned, place = plan.of(settings, tensors), room.place()
    counted = dataset["counts"].get("tokens", {}).get("train")
    if not counted:
        raise UserError(f"{settings.data_dir}/dataset does not say how many tokens it has: make dataset")
    per_step = settings.batch_size * settings.accumulate
    steps = math.ceil(round(settings.epochs * counted["samples"]) / per_step)
    capped = min(steps, settings.max_steps or steps)
    longest = settings.max_length if settings.packing else counted["longest"]
    disk = planned.parameters * memory.FLOAT * (1 + STATES * STATE_FLOATS)
    _check_disk(settings.out_dir, disk)
    return Forecast(
        plan=planned,
        place=place,
        estimate=memory.estimate(
            settings,
            tensors,
            memory.read_config(settings.base_dir),
            planned,
            tokens=order.tokens_at_once(longest, settings.batch_size, memory.AT_ONCE[place]),
            place=place,
        ),
        steps=capped,
        tokens=round(settings.epochs * counted["all"] * capped / steps),
        rate=known_rate(settings.out_dir),
        disk=disk,
    )


def too_much(settings: TrainSettings, peak: int) -> str | None:
    """Why a peak of so many bytes is too much for MEMORY_LIMIT, or None."""
    if not settings.memory_limit or peak <= settings.memory_limit * 1e9:
        return None
    return (
        f"{size(peak)} of memory at the peak, MEMORY_LIMIT={settings.memory_limit:g} GB: lower BATCH_SIZE, "
        f"MAX_LENGTH or LORA_RANK, or raise MEMORY_LIMIT"
    )


def known_rate(out: Path) -> float | None:
    """Tokens a second of the run's last dry run, else of its adapter's training."""
    try:
        return json.loads((out / RATE).read_text(encoding="utf-8"))["tokens_per_second"]
    except (OSError, ValueError, KeyError):
        there = artifacts.read_manifest(out / "adapter")
        return there["counts"].get("tokens_per_second") if there else None


def _check_disk(out: Path, needed: int) -> None:
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise UserError(f"{out}: {size(free)} free, adapter and states take {size(needed)}: free some")
