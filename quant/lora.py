"""A LoRA adapter by its header: which tensor of the base each pair of matrices changes, and how."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.shards import TensorInfo, read_bytes, read_header

if TYPE_CHECKING:
    import torch

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}

MEND = "a plain LoRA comes from: make train RETRAIN=1"
OTHER_BASE = "an adapter merges into the base it was trained on: check PROFILE and RUN"

PAIR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<half>[AB])\.weight")
WRAPPERS = re.compile(r"(\.base_layer)+$")

PLAIN_INIT = (None, True, False, "gaussian")
"""The others (PiSSA, OLoRA, CorDA, LoftQ, ...) train beside a changed base, not the one on disk."""

SPECIAL = (
    "use_dora",
    "lora_bias",
    "modules_to_save",
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
"""Fields of PEFT's LoraConfig that add tensors or change the formula."""

KINDS = {
    ".lora_magnitude_vector": "a DoRA magnitude",
    ".lora_embedding_": "the adapter of an embedding",
    ".lora_B.bias": "a lora_bias",
    ".base_layer.": "a copy of a base weight",
}


@dataclass(frozen=True, kw_only=True)
class MergeOp:
    """One tensor W of the base and the pair that changes it. O out, I in, R rank, E experts."""

    base: TensorInfo
    """W: [O, I], or fused experts [E, O, I]."""
    a: TensorInfo
    """lora_A: [R, I], or [E * R, I], the experts one after the other."""
    b: TensorInfo
    """lora_B: [O, R], or [O, R * E], the experts interleaved within each rank."""
    scaling: float
    parameter: bool
    """Whether PEFT wraps the parameter (`target_parameters`) and rounds its delta to W's dtype."""

    @property
    def experts(self) -> int:
        """E; 1 for a matrix."""
        return self.base.shape[0] if len(self.base.shape) == 3 else 1

    @property
    def pieces(self) -> list[TensorInfo]:
        """W cut into what one product changes: its experts [O, I], or W itself."""
        size = (self.base.stop - self.base.start) // self.experts
        starts = range(self.base.start, self.base.stop, size)
        shape = self.base.shape[-2:]
        return [replace(self.base, shape=shape, start=s, stop=s + size) for s in starts]


def plan(adapter: Path, base: Mapping[str, TensorInfo]) -> list[MergeOp]:
    """What merging the PEFT adapter in the directory `adapter` does to the tensors of `base`.

    Every tensor of the adapter belongs to exactly one operation, and its shapes fit. Raises
    UserError naming the first that does not, and on every kind of adapter but plain LoRA.
    """
    config = read_config(adapter)
    modules: dict[str, dict[str, TensorInfo]] = {}
    for name, info in base.items():
        module, _, leaf = name.rpartition(".")
        modules.setdefault(module, {})[leaf] = info
    ops: dict[str, MergeOp] = {}
    for module, (a, b) in _pairs(read_header(adapter / WEIGHTS)).items():
        op = _operation(config, WRAPPERS.sub("", module), a, b, modules)
        if op.base.name in ops:
            raise UserError(
                f"{a.file}: {a.name} and {ops[op.base.name].a.name} both change {op.base.name};"
                f" expected one pair a tensor; {MEND}"
            )
        ops[op.base.name] = op
    if not ops:
        raise UserError(f"{adapter / WEIGHTS}: no LoRA tensors, nothing to merge; {MEND}")
    return list(ops.values())


def read_config(adapter: Path) -> dict[str, Any]:
    """The adapter's PEFT configuration; UserError where it is not that of a plain LoRA."""
    path = adapter / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file: make train") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: broken JSON ({error.msg}); {MEND}") from None
    allowed = {
        "peft_type": ("LORA",),
        "bias": (None, "none"),
        "init_lora_weights": PLAIN_INIT,
        "lora_B_layout": (None, "rank_major"),  # a stamp of Unsloth's
    }
    for name, values in allowed.items():
        if config.get(name) not in values:
            wanted = " or ".join(repr(v) for v in values if v is not None)
            raise UserError(f"{path}: {name} is {config.get(name)!r}, expected {wanted}; {MEND}")
    for name in SPECIAL:
        if config.get(name):
            raise UserError(f"{path}: {name} is {config[name]!r}, expected none; {MEND}")
    return config


def load(info: TensorInfo) -> "torch.Tensor":
    """One tensor of a safetensors file, in its shape and dtype (fp32, bf16 or fp16)."""
    return as_tensor(info, bytearray(read_bytes(info)))


def as_tensor(info: TensorInfo, raw: bytearray) -> "torch.Tensor":
    """A tensor that shares the memory of `raw`, so that changing it in place changes `raw`."""
    import torch

    return torch.frombuffer(raw, dtype=getattr(torch, DTYPES[info.dtype])).view(info.shape)


def delta(op: MergeOp, a: "torch.Tensor", b: "torch.Tensor", expert: int) -> "torch.Tensor":
    """The change [O, I] of one piece of W: scaling * B @ A, rounded as PEFT rounds it on a CPU.

    `a` and `b` are the whole of lora_A and lora_B. The result has their dtype, or W's where PEFT
    wraps the parameter. Formulas: `Linear.get_delta_weight` and `ParamWrapper.get_delta_weight` in
    PEFT's tuners/lora/layer.py (0.21).
    """
    import torch

    if op.experts == 1:
        change = (b.float() @ a.float() * op.scaling).to(b.dtype)
    else:
        own_b = b.view(len(b), -1, op.experts)[:, :, expert]
        own_a = a.view(op.experts, -1, a.shape[-1])[expert]
        change = own_b @ own_a * op.scaling
    return change.to(getattr(torch, DTYPES[op.base.dtype])) if op.parameter else change


def _pairs(tensors: Mapping[str, TensorInfo]) -> dict[str, tuple[TensorInfo, TensorInfo]]:
    halves: dict[str, dict[str, TensorInfo]] = {}
    for name, info in tensors.items():
        match = PAIR.fullmatch(name)
        if match is None:
            kinds = [kind for part, kind in KINDS.items() if part in name]
            what = kinds[0] if kinds else "no part of a LoRA pair"
            raise UserError(f"{info.file}: {name} is {what}, expected lora_A and lora_B; {MEND}")
        halves.setdefault(match["module"], {})[match["half"]] = info
    for found in halves.values():
        if len(found) == 1:
            (half, info), *_ = found.items()
            other = "B" if half == "A" else "A"
            raise UserError(f"{info.file}: {info.name} has no lora_{other} beside it; {MEND}")
    return {module: (found["A"], found["B"]) for module, found in halves.items()}


def _operation(
    config: dict[str, Any],
    module: str,
    a: TensorInfo,
    b: TensorInfo,
    modules: Mapping[str, dict[str, TensorInfo]],
) -> MergeOp:
    # The text-only class says model.layers where the checkpoint says model.language_model.layers.
    long_name = re.sub(r"^model\.", "model.language_model.", module)
    found = modules.get(module) or modules.get(long_name, {})
    wrapped = {leaf: info for leaf, info in found.items() if _is_target(config, f"{module}.{leaf}")}
    candidates = wrapped or {leaf: info for leaf, info in found.items() if leaf == "weight"}
    if not candidates:
        raise UserError(f"{a.file}: {a.name} has no weight in the base; {OTHER_BASE}")
    ops = []
    for leaf, info in candidates.items():
        name = f"{module}.{leaf}" if wrapped else module
        rank = _by_pattern(config.get("rank_pattern"), name, config["r"])
        alpha = _by_pattern(config.get("alpha_pattern"), name, config["lora_alpha"])
        if _fits(info, a, b, rank):
            scaling = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
            ops.append(MergeOp(base=info, a=a, b=b, scaling=scaling, parameter=bool(wrapped)))
    if len(ops) != 1:
        seen = ", ".join(f"{info.name} {list(info.shape)}" for info in candidates.values())
        raise UserError(
            f"{a.file}: {a.name} {list(a.shape)} and lora_B {list(b.shape)} fit {len(ops)} of"
            f" {seen} at the rank that {CONFIG} says, expected one; {OTHER_BASE}"
        )
    for info in (a, b, ops[0].base):
        if info.dtype not in DTYPES:
            seen = f"{info.file}: {info.name} is {info.dtype}"
            raise UserError(f"{seen}, expected one of {', '.join(DTYPES)}; {OTHER_BASE}")
    if a.dtype != b.dtype:
        raise UserError(f"{a.file}: {a.name} is {a.dtype} and its lora_B {b.dtype}; {MEND}")
    return ops[0]


def _fits(base: TensorInfo, a: TensorInfo, b: TensorInfo, rank: int) -> bool:
    experts = base.shape[0] if len(base.shape) == 3 else 1
    inner, (*rows, columns) = rank * experts, base.shape[-2:]
    return inner > 0 and a.shape == (inner, columns) and b.shape == (*rows, inner)


def _is_target(config: dict[str, Any], name: str) -> bool:
    targets = config.get("target_parameters") or []
    return any(name == target or name.endswith(f".{target}") for target in targets)


def _by_pattern(pattern: Mapping[str, int] | None, name: str, default: int) -> int:
    """The value of the first key that matches the end of `name` (PEFT's `get_pattern_key`)."""
    for key, value in (pattern or {}).items():
        if re.match(rf"(.*\.)?({key})$", name):
            return value
    return default
