"""The settings that each stage reads; `make settings` prints them with their values and origins.

The Makefile's settings block documents them, one comment a name; a test keeps the two in step.
"""

from dataclasses import dataclass
from pathlib import Path

from core import config, errors
from core import profile as profiles
from core.config import setting
from core.profile import Conversations, Profile


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What every stage reads, and the places that follow from it."""

    profile: Profile
    run: str = setting(recorded=False)
    models_dir: Path = setting(recorded=False)

    @property
    def base_dir(self) -> Path:
        """The base checkpoint."""
        return self.models_dir / self.profile.base_name

    @property
    def data_dir(self) -> Path:
        """Schemas and dataset of the profile."""
        return Path("data") / self.profile.name

    @property
    def out_dir(self) -> Path:
        """Adapter, evaluations and reports of the run."""
        return Path("out") / self.run

    @property
    def merged_dir(self) -> Path:
        """The merged BF16 checkpoint of the run."""
        return self.models_dir / self.run / "merged"

    @property
    def production_dir(self) -> Path:
        """Our copy of the checkpoint that production serves."""
        return self.models_dir / self.profile.production.rsplit("/", 1)[-1]

    @property
    def nvfp4_dir(self) -> Path:
        """The quantised checkpoint of the run."""
        return self.models_dir / self.run / "nvfp4"

    @property
    def dequantized_dir(self) -> Path:
        """The quantised checkpoint's values in BF16, for what cannot run NVFP4."""
        return self.models_dir / self.run / "nvfp4-bf16"


@dataclass(frozen=True, kw_only=True)
class BaseSettings(RunSettings):
    rebuild: bool = setting(False, recorded=False)


@dataclass(frozen=True, kw_only=True)
class VerifySettings(RunSettings):
    backend: str = setting("", recorded=False)


@dataclass(frozen=True, kw_only=True)
class SchemasSettings(RunSettings):
    mcp_config: Path = setting(recorded=False)
    refresh: bool = setting(False, recorded=False)


@dataclass(frozen=True, kw_only=True)
class RulesSettings(RunSettings):
    pass


@dataclass(frozen=True, kw_only=True)
class SourcesSettings(RunSettings):
    skills_dirs: tuple[Path, ...] = setting(recorded=False)
    agents_dirs: tuple[Path, ...] = setting((), recorded=False)
    plans_dirs: tuple[Path, ...] = setting((), recorded=False)
    transcripts_dirs: tuple[Path, ...] = setting((), recorded=False)
    mcp_config: Path = setting(recorded=False)
    secrets_file: str = setting("", recorded=False)
    hosts_file: str = setting("", recorded=False)


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(RunSettings):
    replay: Path = setting(profile="data.replay", recorded=False)
    endpoint: str = setting("")
    rows: dict[str, int] = setting(profile="data.rows", recorded=False)
    mcp_config: Path = setting(recorded=False)
    secrets_file: str = setting("", recorded=False)


@dataclass(frozen=True, kw_only=True)
class ConversationsSettings(RunSettings):
    """What `make dataset` reads for a profile whose data are conversations."""

    data: str = setting("", recorded=False)
    mcp_config: Path = setting(recorded=False)
    secrets_file: str = setting("", recorded=False)
    secrets_allowed: str = setting("", recorded=False)
    max_length: int = setting(profile="train.max_length", positive=True)
    data_seed: int = setting()


@dataclass(frozen=True, kw_only=True)
class DatasetSettings(ConversationsSettings):
    requests: str = setting(profile="data.requests", recorded=False)
    rows: dict[str, int] = setting(profile="data.rows")
    held_out_skills: tuple[str, ...] = setting(profile="held_out_skills")
    teacher: str = setting("")
    judge: bool = setting(False)
    tools_shown: int = setting(profile="data.tools_shown", positive=True)
    eval_seed: int = setting()


@dataclass(frozen=True, kw_only=True)
class ValidateSettings(RunSettings):
    held_out_skills: tuple[str, ...] = setting(profile="held_out_skills", recorded=False)
    mcp_config: Path = setting(recorded=False)
    secrets_file: str = setting("", recorded=False)
    secrets_allowed: str = setting("", recorded=False)


@dataclass(frozen=True, kw_only=True)
class TrainSettings(RunSettings):
    backend: str = setting("", recorded=True)
    lora_rank: int = setting(profile="lora.rank", positive=True)
    lora_alpha: int = setting(profile="lora.alpha", positive=True)
    lora_dropout: float = setting(profile="lora.dropout")
    lora_rslora: bool = setting(profile="lora.rslora")
    lora_experts: bool = setting(profile="lora.experts")
    lora_layers: str = setting(profile="lora.layers")
    learning_rate: float = setting(profile="train.lr", positive=True)
    schedule: str = setting(profile="train.schedule")
    warmup: float = setting(profile="train.warmup")
    optimizer: str = setting(profile="train.optimizer")
    epochs: float = setting(profile="train.epochs", positive=True)
    max_steps: int = setting(profile="train.max_steps")
    batch_size: int = setting(profile="train.batch", positive=True)
    accumulate: int = setting(profile="train.accumulate", positive=True)
    max_length: int = setting(profile="train.max_length", positive=True)
    packing: bool = setting(False)
    train_seed: int = setting()
    save_steps: int = setting(profile="train.save_steps", recorded=False, positive=True)
    eval_steps: int = setting(profile="train.eval_steps", recorded=False)
    early_stop: int = setting(0)
    tracker: str = setting("", recorded=False)
    retrain: bool = setting(False, recorded=False)
    stop_cmd: str = setting(profile="stop_cmd", recorded=False)
    start_cmd: str = setting(profile="start_cmd", recorded=False)
    memory_limit: float = setting(profile="train.memory_limit", recorded=False)
    nproc: int = setting(1, recorded=False, positive=True)
    nodes: int = setting(1, recorded=False, positive=True)
    node_rank: int = setting(0, recorded=False)
    master: str = setting("", recorded=False)


@dataclass(frozen=True, kw_only=True)
class MergeSettings(RunSettings):
    base: str = setting("", recorded=False)
    adapter: str = setting("", recorded=False)
    merged: str = setting("", recorded=False)
    check_base: bool = setting(False, recorded=False)


@dataclass(frozen=True, kw_only=True)
class EvalSettings(RunSettings):
    eval_limit: int = setting(0)
    held_out_skills: tuple[str, ...] = setting(profile="held_out_skills")
    endpoint: str = setting("")
    serve_cmd: str = setting("")
    teacher: str = setting("")
    live: Path = setting(Path("examples/live.yaml"), recorded=False)
    mcp_config: Path = setting(recorded=False)
    agent_cmd: str = setting("")
    force: bool = setting(False, recorded=False)
    checkpoint: str = setting("merged", recorded=False)


@dataclass(frozen=True, kw_only=True)
class QuantizeSettings(RunSettings):
    quant: str = setting(profile="quant.way")
    keep_tuned: str = setting("")
    production: str = setting("", recorded=False)
    calibration_rows: int = setting(profile="quant.calibration_rows", positive=True)
    calibration_length: int = setting(profile="quant.calibration_length", positive=True)
    force: bool = setting(False, recorded=False)

    @property
    def production_dir(self) -> Path:
        """PRODUCTION, or our copy of what production serves."""
        return Path(self.production).expanduser() if self.production else super().production_dir


@dataclass(frozen=True, kw_only=True)
class DequantizeSettings(RunSettings):
    pass


@dataclass(frozen=True, kw_only=True)
class ServerSettings(RunSettings):
    """What every stage reads that may stop, start and ask the server."""

    deploy_dir: Path = setting(recorded=False)
    server: str = setting("", recorded=False)
    stop_cmd: str = setting(profile="stop_cmd", recorded=False)
    start_cmd: str = setting(profile="start_cmd", recorded=False)


@dataclass(frozen=True, kw_only=True)
class DeploySettings(ServerSettings):
    force: bool = setting(False, recorded=False)


@dataclass(frozen=True, kw_only=True)
class RollbackSettings(ServerSettings):
    pass


@dataclass(frozen=True, kw_only=True)
class DeploymentsSettings(ServerSettings):
    pass


@dataclass(frozen=True, kw_only=True)
class GgufSettings(RunSettings):
    gguf_type: str = setting(profile="gguf_type")

    @property
    def gguf_file(self) -> Path:
        """The run's GGUF file of this type."""
        return self.out_dir / f"gguf-{self.gguf_type}" / f"{self.run}-{self.gguf_type}.gguf"


@dataclass(frozen=True, kw_only=True)
class ChatSettings(GgufSettings):
    checkpoint: str = setting("", recorded=False)
    prompt: str = setting("", recorded=False)


@dataclass(frozen=True, kw_only=True)
class InspectSettings(RunSettings):
    checkpoint: str = setting("", recorded=False)
    against: str = setting("", recorded=False)


@dataclass(frozen=True, kw_only=True)
class ReportSettings(RunSettings):
    pass


@dataclass(frozen=True, kw_only=True)
class AblationSettings(RunSettings):
    """What every stage of the MiniGPT lab reads; seed, rank and method are recorded a cell."""

    lora_rank: int = setting(profile="lora.rank", recorded=False, positive=True)
    lora_alpha: int = setting(profile="lora.alpha", positive=True)
    lora_dropout: float = setting(profile="lora.dropout")
    learning_rate: float = setting(profile="train.lr", positive=True)
    epochs: float = setting(profile="train.epochs", positive=True)
    batch_size: int = setting(profile="train.batch", positive=True)
    retrain: bool = setting(False, recorded=False)
    methods: str = setting("lora no-replay qlora", recorded=False)
    seeds: str = setting("0 1 2 3 4", recorded=False)
    ranks: str = setting("1 2 4 8 16 32", recorded=False)


STAGES: dict[str, type[RunSettings]] = {
    "base": BaseSettings,
    "verify": VerifySettings,
    "schemas": SchemasSettings,
    "rules": RulesSettings,
    "sources": SourcesSettings,
    "replay": ReplaySettings,
    "dataset": DatasetSettings,
    "validate": ValidateSettings,
    "train": TrainSettings,
    "merge": MergeSettings,
    "eval": EvalSettings,
    "quantize": QuantizeSettings,
    "dequantize": DequantizeSettings,
    "deploy": DeploySettings,
    "rollback": RollbackSettings,
    "deployments": DeploymentsSettings,
    "gguf": GgufSettings,
    "chat": ChatSettings,
    "inspect": InspectSettings,
    "report": ReportSettings,
    "ablation": AblationSettings,
}


NAMED_BY_RECIPES = {"eval": ("CHECKPOINT",)}
"""What the Makefile's recipes of a stage say themselves; no setting of the user's there."""


def all_names() -> list[str]:
    """Every setting that the user may give, in the order of the chain."""
    return list(dict.fromkeys(name for stage in STAGES for name in given_names(stage)))


def given_names(stage: str) -> list[str]:
    """The settings of one stage that the user may give."""
    return [n for n in config.setting_names(STAGES[stage]) if n not in NAMED_BY_RECIPES.get(stage, ())]


def show(words: list[str]) -> int:
    """Print every setting with its value and origin.

    `words` are all settings, and `COMMAND_LINE='A B'` with the names given on make's command line.
    """
    given = config.split_words(words)
    typed = given.pop("COMMAND_LINE", "").split()
    rows: dict[str, tuple[str, str]] = {}
    for stage, schema in STAGES.items():
        names = given_names(stage)
        own = [f"{k}={v}" for k, v in given.items() if k in names]
        for field, found in config.resolve(schema, own).items():
            name = field.upper()
            if name not in names:
                continue
            origin = "command line" if name in typed else "Makefile"
            rows[name] = (_text(found.value), origin if found.origin == "given" else found.origin)
    width = max(len(value) for value, _ in rows.values())
    for name, (value, origin) in rows.items():
        print(f"{name:<16} {value:<{width}}  {origin}")
    return errors.DONE


def _text(value: object) -> str:
    if isinstance(value, Profile):
        return value.name
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name}={number}" for name, number in value.items())
    return "-" if value is None else str(value)


def refuse(words: list[str]) -> int:
    """Say what was probably meant by the first unknown name among `words`."""
    raise errors.UserError(config.unknown_setting(words[0], all_names()))


def talks(words: list[str]) -> int:
    """Print 1 where the data of the profile so named are conversations; the Makefile asks."""
    if isinstance(profiles.load(words[0]).data, Conversations):
        print(1)
    return errors.DONE


if __name__ == "__main__":
    errors.run(lambda words: {"show": show, "refuse": refuse, "talks": talks}[words[0]](words[1:]))
