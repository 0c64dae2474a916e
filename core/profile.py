"""A profile: all that is specific to one model and its task. A new model is a file in profiles/."""

import importlib
from dataclasses import dataclass, field
from pathlib import Path

from core.chat import Tool, tool
from core.errors import UserError, did_you_mean
from core.packages import Package

PROFILES = Path(__file__).parent / "profiles"


@dataclass(frozen=True, kw_only=True)
class Lora:
    rank: int
    alpha: int
    dropout: float
    targets: tuple[str, ...]
    """Names of `Profile.families` that receive an adapter."""
    experts: bool = False
    """Whether the fused 3-D experts are trained too (PEFT `target_parameters`); needs dropout 0."""
    rslora: bool = False
    """Whether the update is scaled by alpha / sqrt(rank) instead (arXiv 2312.03732)."""
    layers: str = ""
    """Decoder layers that receive an adapter, as `last 8` or `0-3 20`; blank for all."""


@dataclass(frozen=True, kw_only=True)
class Train:
    lr: float
    schedule: str
    epochs: float
    max_length: int
    """Tokens; longer rows are dropped and counted, never cut."""
    batch: int
    """Rows a device step."""
    max_steps: int = 0
    """Optimiser steps after which training ends all the same; 0 for none."""
    accumulate: int = 1
    """Device steps an optimiser step."""
    warmup: float = 0.03
    """Fraction of the steps, or their number from 1 on."""
    optimizer: str = "adamw_torch_fused"
    """`adamw_torch_fused`, `adamw_torch`, or `adamw_8bit`, which needs bitsandbytes and CUDA."""
    dtype: str = "bfloat16"
    gradient_checkpointing: bool = True
    save_steps: int = 50
    """Optimiser steps between two states that an interrupted run resumes from."""
    eval_steps: int = 100
    """Optimiser steps between two looks at the loss on held-out rows; 0 = none."""
    adam_beta2: float = 0.999
    memory_limit: float = 0.0
    """GB that a training may take at its peak; 0 sets no limit."""
    memory_reserve: float = 0.1
    """Share of the memory that must stay free; below it a training saves and stops (memory_guard.py)."""


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
    general: Path
    """Questions of another kind, with answers: how much of what the base knew is lost by training."""
    requests: str = ""
    """File with users' wordings for tools; blank where rows are made from the schemas alone."""
    skill_prompt: str
    """What of a skill stands in the prompt: `body` (as Claude Code loads it) or `description`."""
    answer_tokens: int
    """The most tokens that the model may write in one turn, thinking included."""


@dataclass(frozen=True, kw_only=True)
class Conversations:
    """Data that are there as conversations, where `Data` are made from servers, skills and plans."""

    source: Path
    """Conversations to train on, which DATA replaces: one JSON object a line."""
    held_out: Path
    """Those to judge by, of other wordings; of the user's DATA a tenth is held out instead."""
    general: Path
    """Conversations of another kind: how much of what the base knew is lost by training."""
    answer_tokens: int
    """The most tokens that the model may write in one turn."""


@dataclass(frozen=True, kw_only=True)
class Quant:
    scheme: str
    ignore: tuple[str, ...]
    fused: tuple[tuple[str, ...], ...]
    """Modules that share one global scale."""
    way: str = "delta"
    """QUANT where it is blank. delta keeps production's bytes but for what was tuned, has full's weights and
    takes minutes instead of hours; the scales of the activations are production's, not measured anew."""
    calibration_rows: int
    """Training rows that set the activations' scales."""
    calibration_length: int
    """Tokens of each of these rows, its last ones."""
    kv_cache_scheme: str | None = None
    """Refused where it is set (`quant.nvfp4` says why)."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    threshold: float
    """The goal: the least rate, or the greatest loss in nats a token. Reported; it decides nothing."""
    delta: float
    """How much worse than the base is allowed: a share for rates, nats a token for the loss."""


WEATHER: Tool = tool(
    "mcp__weather__get_weather",
    "Tells the weather of a city now",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@dataclass(frozen=True, kw_only=True)
class Health:
    """What `make deploy` asks of the server that it has started."""

    question: str = "¿Cuánto es 17 + 25? Responde solo con el número."
    """What needs no tool, and is shown none."""
    answer: str = "42"
    """What the answer contains, in whatever case; blank where the model knows nothing for certain."""
    request: str = "¿Qué tiempo hace ahora en Sevilla? Consúltalo con la herramienta."
    """What needs the tool."""
    tool: Tool = field(default_factory=lambda: WEATHER)
    tokens: int = 4096
    """The most that an answer takes, thinking included."""
    acceptance: float | None = 0.4
    """The least share of drafted tokens that the model keeps; None where the server drafts none."""
    slower: float = 0.2
    """A loss of tokens a second against the last deploy that is reported."""
    minutes: float = 20
    """How long the server may take to come up."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    name: str
    base: str
    """Hub name of the BF16 base, or the name of an embedded one; its directory is the last part."""
    revision: str = "main"
    """Commit, tag or branch of the base on the hub; the commit found is written down and kept."""
    embedded: bool = False
    """Whether `make base` makes the base itself instead of expecting a download."""
    package: Package | None = None
    """What `make base` makes an embedded base from, where it is not shipped: a wheel with a GGUF file."""
    production: str
    chat_template: str
    """sha256 of the chat template that the production server renders with."""
    template_source: str = ""
    """File in trl's chat_templates that an embedded base copies."""
    template_file: str = ""
    """File beside the profile with the template for a base that is published without one."""
    backends: tuple[str, ...]
    lora: Lora
    train: Train
    data: Data | Conversations | None
    families: dict[str, tuple[str, ...]]
    """Module paths inside a decoder layer, by family."""
    experts: tuple[str, ...] = ()
    """Paths of the stacked expert weights inside a decoder layer, which LORA_EXPERTS=1 trains."""
    layers_prefix: str
    """Where the decoder layers live in the checkpoint, e.g. `model.language_model.layers`."""
    vision_prefix: str | None
    mtp_prefix: str | None
    quant: Quant | None
    gguf_type: str = "f16"
    """What `make gguf` writes where GGUF_TYPE is blank."""
    gates: dict[str, Gate] = field(default_factory=dict)
    held_out_skills: tuple[str, ...] = ()
    stop_cmd: str = ""
    """Shell command that makes production free its memory."""
    start_cmd: str = ""
    """Shell command that starts it again."""
    health: Health = Health()

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
