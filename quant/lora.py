"""A PEFT LoRA adapter by its files: what it holds for which module, and what cannot be merged."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.shards import TensorInfo, read_bytes, read_checkpoint

if TYPE_CHECKING:
    import torch

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
PREFIX = "base_model.model."
MEND = "README.md, 'Merge someone else's adapter', says what can be merged"

PART = re.compile(
    r"(?P<module>.+)\.(?:lora_(?P<half>[AB])\.weight|lora_(?P<embedding>embedding_[AB])"
    r"|lora_B\.(?P<bias>bias)|lora_(?P<magnitude>magnitude)_vector(?:\.weight)?)"
)
WRAPPERS = re.compile(r"(\.base_layer)+(?=\.|$)")
EMBEDDINGS = ("embed_tokens", "lm_head")

KEEPS_BASE = (None, True, False, "gaussian", "eva", "orthogonal")
"""Starting values of A and B; the others (PiSSA, OLoRA, CorDA, LoftQ, ...) train beside a changed base."""

LAYOUTS = ("rank_major", "grouped_by_expert")
"""`lora_B_layout`, a stamp of Unsloth's: how the experts share the columns of lora_B. PEFT's is the first."""

SPECIAL = (
    "trainable_token_indices",
    "fan_in_fan_out",
    "layer_replication",
    "use_qalora",
    "use_bdlora",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "velora_config",
)
"""Fields of PEFT's LoraConfig that add tensors or change the formula in ways that are not handled."""


@dataclass(frozen=True)
class Adapter:
    """What an adapter directory holds; names are those that the modules have in memory."""

    path: Path
    config: dict[str, Any]
    modules: dict[str, dict[str, TensorInfo]] = field(default_factory=dict)
    """LoRA parts by module: A [R, I] and B [O, R], or embedding_A [R, V] and embedding_B [H, R]; with
    them perhaps bias [O] (of lora_B) and magnitude (DoRA). A module whose parameters are wrapped one in
    the other appears with `.base_layer` as well."""
    whole: dict[str, TensorInfo] = field(default_factory=dict)
    """Trained tensors that replace the base's (modules_to_save, bias), by parameter."""
    copies: dict[str, TensorInfo] = field(default_factory=dict)
    """The base's own weights, which PEFT saves along for embeddings: not merged."""

    def rank(self, name: str) -> int:
        """r of a module, or of a parameter that is wrapped itself."""
        return _by_pattern(self.config.get("rank_pattern"), name, self.config["r"])

    def scaling(self, name: str) -> float:
        """alpha / r, or alpha / sqrt(r) (rsLoRA), of a module or wrapped parameter."""
        rank = self.rank(name)
        alpha = _by_pattern(self.config.get("alpha_pattern"), name, self.config["lora_alpha"])
        return alpha / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    def wrapped_parameters(self, module: str) -> list[str]:
        """The parameters of `module` that `target_parameters` names."""
        targets = [t.rpartition(".") for t in self.config.get("target_parameters") or []]
        return [leaf for owner, _, leaf in targets if not owner or f".{module}".endswith(f".{owner}")]


def read(path: Path) -> Adapter:
    """The adapter in the directory `path`, from its configuration and headers.

    Raises UserError on every kind of adapter that the merge does not handle, by name, and on every
    tensor that is no part of the kinds that it does.
    """
    adapter = Adapter(path, read_config(path))
    if not (path / WEIGHTS).exists() and (path / "adapter_model.bin").exists():
        raise UserError(f"{path}: adapter_model.bin is a pickle, expected {WEIGHTS}; {MEND}")
    for name, info in read_checkpoint(path, WEIGHTS).items():
        if not name.startswith(PREFIX):
            raise UserError(f"{info.file}: {name} does not start with {PREFIX}, as PEFT's do; {MEND}")
        _file_away(adapter, name.removeprefix(PREFIX), info)
    for module, parts in adapter.modules.items():
        _check_parts(adapter.config, module, parts)
    if not adapter.modules and not adapter.whole:
        raise UserError(f"{path / WEIGHTS}: no LoRA tensors, nothing to merge; {MEND}")
    return adapter


def read_config(path: Path) -> dict[str, Any]:
    """The adapter's PEFT configuration; UserError where it is not that of a LoRA that can be merged."""
    file = path / CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{file}: no such file; an adapter holds {CONFIG} and {WEIGHTS}") from None
    except ValueError as error:
        raise UserError(f"{file}: broken JSON ({error})") from None
    allowed = {
        "peft_type": ("LORA",),
        "bias": (None, "none", "all", "lora_only"),
        "init_lora_weights": KEEPS_BASE,
        "lora_B_layout": (None, *LAYOUTS),
    }
    for name, values in allowed.items():
        if config.get(name) not in values:
            wanted = " or ".join(repr(v) for v in values if v is not None)
            raise UserError(f"{file}: {name} is {config.get(name)!r}, expected {wanted}; {MEND}")
    for name in SPECIAL:
        if config.get(name):
            raise UserError(f"{file}: {name} is {config[name]!r}, expected none; {MEND}")
    for name in ("r", "lora_alpha"):
        if not isinstance(config.get(name), int | float) or config[name] <= 0:
            raise UserError(f"{file}: {name} is {config.get(name)!r}, expected a positive number")
    return config


def load(info: TensorInfo) -> "torch.Tensor":
    """One tensor of a safetensors file, in its shape and dtype (fp32, bf16 or fp16)."""
    return as_tensor(info, bytearray(read_bytes(info)))


def as_tensor(info: TensorInfo, raw: bytearray) -> "torch.Tensor":
    """A tensor that shares the memory of `raw`, so that changing it in place changes `raw`."""
    import torch

    return torch.frombuffer(raw, dtype=getattr(torch, DTYPES[info.dtype])).view(info.shape)


def check_finite(adapter: Adapter) -> None:
    """Read every trained tensor once; UserError naming the first that holds NaN or Inf."""
    parts = [info for parts in adapter.modules.values() for info in parts.values()]
    for info in [*parts, *adapter.whole.values()]:
        if info.dtype in DTYPES and not load(info).isfinite().all():
            raise UserError(
                f"{info.file}: {info.name} holds NaN or Inf: train it again, at a lower learning rate"
            )


def _file_away(adapter: Adapter, name: str, info: TensorInfo) -> None:
    """Sort one tensor into the adapter by its name; UserError where no kind has it."""
    if match := PART.fullmatch(name):
        half, part = match["half"], match["embedding"] or match["bias"] or match["magnitude"]
        parts = adapter.modules.setdefault(match["module"], {})
        parts[half or part] = info
        return
    parameter = WRAPPERS.sub("", name)
    module, _, leaf = parameter.rpartition(".")
    owner = module.rpartition(".")[2]
    announced = leaf == "bias" and adapter.config.get("bias") in ("all", "lora_only")
    announced |= any(_inside(module, listed) for listed in adapter.config.get("modules_to_save") or [])
    if parameter != name and leaf != "bias":
        adapter.copies[parameter] = info
    elif announced or owner in EMBEDDINGS:
        adapter.whole[parameter] = info
    else:
        raise UserError(
            f"{info.file}: {info.name} is no part of a LoRA, and neither modules_to_save nor bias in"
            f" {CONFIG} announces it; {MEND}"
        )


def _inside(module: str, listed: str) -> bool:
    """Whether a module is one that modules_to_save lists, or inside one."""
    return f".{module}.".find(f".{listed}.") >= 0


def _check_parts(config: Mapping[str, Any], module: str, parts: Mapping[str, TensorInfo]) -> None:
    kinds = {name.removesuffix("A").removesuffix("B") for name in parts} - {"bias", "magnitude"}
    some = next(iter(parts.values()))
    if len(kinds) > 1:
        raise UserError(f"{some.file}: {PREFIX}{module} is adapted as a matrix and as an embedding; {MEND}")
    kind = kinds.pop() if kinds else ""
    for half in "AB":
        if kind + half not in parts:
            raise UserError(f"{some.file}: {some.name} has no lora_{kind}{half} beside it; {MEND}")
    for part, name in (("magnitude", "use_dora"), ("bias", "lora_bias")):
        if (part in parts) != bool(config.get(name)):
            has = "has a" if part in parts else "has no"
            seen = f"{some.file}: {PREFIX}{module} {has} {part}"
            raise UserError(
                f"{seen}, but {CONFIG} says {name} is {config.get(name)!r}: files of two adapters?"
            )


def _by_pattern(pattern: Mapping[str, int] | None, name: str, default: int) -> int:
    """The value of the first key that matches the end of `name` (PEFT's `get_pattern_key`)."""
    for key, value in (pattern or {}).items():
        if re.match(rf"(.*\.)?({key})$", name):
            return value
    return default
