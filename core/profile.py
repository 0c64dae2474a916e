"""A profile: all that is specific to one model and its task. A new model is a file in profiles/."""

import importlib
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import UserError, did_you_mean

PROFILES = Path(__file__).parent / "profiles"


@dataclass(frozen=True, kw_only=True)
class Lora:
    rank: int
    alpha: int
    dropout: float
    targets: tuple[str, ...]
    """Names of `Profile.families` that receive an adapter."""
    experts: bool = False
    """Whether the fused 3-D experts are trained too (PEFT `target_parameters`)."""


@dataclass(frozen=True, kw_only=True)
class Train:
    lr: float
    schedule: str
    epochs: float
    max_length: int
    """Tokens; longer rows are dropped and counted, never cut."""
    batch: int
    """Rows a device step."""
    accumulate: int = 1
    """Device steps an optimiser step."""
    warmup: float = 0.03
    """Fraction of the steps."""
    dtype: str = "bfloat16"
    gradient_checkpointing: bool = True
    save_steps: int = 50
    """Optimiser steps between two states that an interrupted run resumes from."""
    adam_beta2: float = 0.999


@dataclass(frozen=True, kw_only=True)
class Data:
    tools_shown: int
    """Tools in a prompt: the right one and distractors."""
    rows: dict[str, int]
    """Training rows by bucket."""
    eval_rows: dict[str, int]
    """Held-out rows by bucket."""
    replay: Path
    """Prompts of what the model already does well."""
    requests: str = ""
    """File with users' wordings for tools; blank where rows are made from the schemas alone."""
    skill_prompt: str
    """What of a skill stands in the prompt: `body` (as Claude Code loads it) or `description`."""
    answer_tokens: int
    """The most tokens that the model may write in one turn, thinking included."""


@dataclass(frozen=True, kw_only=True)
class Quant:
    scheme: str
    ignore: tuple[str, ...]
    fused: tuple[tuple[str, ...], ...]
    """Modules that share one global scale."""
    calibration_rows: int
    """Training rows that set the activations' scales."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    threshold: float
    """The goal: the least rate, or the greatest loss in nats a token. Reported; it decides nothing."""
    delta: float
    """How much worse than the base is allowed: a share for rates, nats a token for the loss."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    name: str
    base: str
    """Hub name of the BF16 base, or the name of an embedded one; its directory is the last part."""
    embedded: bool = False
    """Whether `make base` makes the base itself instead of expecting a download."""
    production: str
    chat_template: str
    """sha256 of the chat template that the production server renders with."""
    template_source: str = ""
    """File in trl's chat_templates that an embedded base copies."""
    backends: tuple[str, ...]
    lora: Lora
    train: Train
    data: Data | None
    families: dict[str, tuple[str, ...]]
    """Module paths inside a decoder layer, by family."""
    layers_prefix: str
    """Where the decoder layers live in the checkpoint, e.g. `model.language_model.layers`."""
    vision_prefix: str | None
    mtp_prefix: str | None
    quant: Quant | None
    gates: dict[str, Gate] = field(default_factory=dict)
    held_out_skills: tuple[str, ...] = ()
    health: dict[str, float] = field(default_factory=dict)

    @property
    def target_paths(self) -> tuple[str, ...]:
        """Module paths inside a decoder layer that are trained, in the profile's order."""
        return tuple(path for family in self.lora.targets for path in self.families[family])

    @property
    def base_name(self) -> str:
        """Name of the base's directory under MODELS_DIR."""
        return self.base.rsplit("/", 1)[-1]


def names() -> list[str]:
    """The profiles that exist."""
    return sorted(path.stem for path in PROFILES.glob("*.py") if path.stem != "__init__")


def load(name: str) -> Profile:
    """The profile of `core/profiles/<name>.py`; UserError on an unknown name."""
    if name not in names():
        hint = did_you_mean(name, names())
        raise UserError(f"PROFILE={name}: no such profile{hint}; have {', '.join(names())}")
    return importlib.import_module(f"core.profiles.{name}").PROFILE
