"""The lab's cells: one adapter each, by method, rank and seed; where they live and which are still to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import artifacts, config
from core.errors import UserError, did_you_mean
from core.settings import AblationSettings

METHODS = ("lora", "no-replay", "qlora")
"""LoRA with replay; the same without, to show what is forgotten; LoRA with replay on an NF4 base."""
SWEPT = ("lora", "no-replay")
"""The methods of the rank ablation."""


@dataclass(frozen=True)
class Cell:
    """One adapter: how, at what rank, on which seed's base."""

    settings: AblationSettings
    method: str
    rank: int
    seed: int

    @property
    def adapter_dir(self) -> Path:
        """The adapter. Every artefact has a parent of its own, so that cells may be built side by side."""
        return self._dir / "adapter"

    @property
    def scores_dir(self) -> Path:
        """What was measured of base and adapter."""
        return self._dir / "scores"

    @property
    def base_dir(self) -> Path:
        """The seed's base."""
        return base_dir(self.settings, self.seed)

    @property
    def _dir(self) -> Path:
        return self.settings.out_dir / self.method / f"rank-{self.rank}" / f"seed-{self.seed}"

    def words(self) -> dict[str, Any]:
        """The settings that name this cell alone."""
        return {"METHODS": self.method, "LORA_RANK": self.rank, "SEEDS": self.seed}

    def recorded(self) -> dict[str, Any]:
        """What decides the adapter, for its manifest."""
        return config.recorded(self.settings) | {
            "METHOD": self.method,
            "LORA_RANK": self.rank,
            "SEED": self.seed,
        }

    def differences(self) -> list[str]:
        """Why the adapter there is not this cell's; empty where it is."""
        inputs = {"base": artifacts.as_input(self.base_dir, artifacts.require(self.base_dir, "base"))}
        return artifacts.differences(artifacts.read_manifest(self.adapter_dir), self.recorded(), inputs)


def parse(words: Sequence[str]) -> AblationSettings:
    """The lab's settings; UserError where the profile is another's."""
    name = config.split_words(words).get("PROFILE", "")
    if name != "minigpt":
        raise UserError(f"PROFILE={name}: only the lab has this stage: add PROFILE=minigpt")
    return config.parse(AblationSettings, words)


def base_dir(settings: AblationSettings, seed: int) -> Path:
    """The base of one seed."""
    return settings.base_dir / f"seed-{seed}" / "base"


def seeds(settings: AblationSettings) -> list[int]:
    """SEEDS as numbers."""
    return _numbers("SEEDS", settings.seeds, least=0)


def ranks(settings: AblationSettings) -> list[int]:
    """RANKS as numbers."""
    return _numbers("RANKS", settings.ranks, least=1)


def methods(settings: AblationSettings) -> list[str]:
    """METHODS as known names."""
    for name in settings.methods.split():
        if name not in METHODS:
            hint = did_you_mean(name, METHODS)
            raise UserError(f"METHODS={name}: no such method{hint}; have {', '.join(METHODS)}")
    return list(dict.fromkeys(settings.methods.split()))


def cells(settings: AblationSettings) -> list[Cell]:
    """What `make train` and `make eval` are about: every method and seed at LORA_RANK."""
    return [
        Cell(settings, method, settings.lora_rank, seed)
        for seed in seeds(settings)
        for method in methods(settings)
    ]


def swept_cells(settings: AblationSettings) -> list[Cell]:
    """What `make ablation` is about: every rank and seed, with and without replay."""
    return [
        Cell(settings, method, rank, seed)
        for seed in seeds(settings)
        for rank in ranks(settings)
        for method in SWEPT
    ]


def untrained(wanted: list[Cell]) -> list[Cell]:
    """The cells whose adapter is not there.

    UserError where one is there of other settings, unless RETRAIN=1: training never overwrites.
    """
    todo = []
    for cell in wanted:
        changed = cell.differences()
        exists = artifacts.read_manifest(cell.adapter_dir) is not None
        if changed and exists and not cell.settings.retrain:
            raise UserError(
                f"{cell.adapter_dir} was trained otherwise: {', '.join(changed)}. Repeat those settings, or "
                f"keep both with RUN=<new name>, or train anew over it with RETRAIN=1"
            )
        if changed:
            todo.append(cell)
    return todo


def unscored(wanted: list[Cell]) -> list[Cell]:
    """The cells whose adapter has not been measured; UserError where there is none."""
    return [
        cell
        for cell in wanted
        if artifacts.differences(artifacts.read_manifest(cell.scores_dir), {}, scored_inputs(cell))
    ]


def scored_inputs(cell: Cell) -> dict[str, dict[str, str]]:
    """What a cell's scores were measured on."""
    base, adapter = cell.base_dir, cell.adapter_dir
    return {
        "base": artifacts.as_input(base, artifacts.require(base, "base PROFILE=minigpt")),
        "adapter": artifacts.as_input(adapter, artifacts.require(adapter, "train PROFILE=minigpt")),
    }


def _numbers(name: str, text: str, *, least: int) -> list[int]:
    words = text.split()
    if not words or any(not w.isdecimal() or int(w) < least for w in words):
        raise UserError(f"{name}={text}: expected whole numbers from {least}, separated by spaces")
    return list(dict.fromkeys(map(int, words)))
