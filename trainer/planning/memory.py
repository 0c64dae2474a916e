"""How much memory a training takes at its peak, before it runs.

    peak = libraries + weights + adapter * (4 + 4 + moments) + slack * activations + loss

- weights: every tensor that transformers loads (MTP tensors it leaves on the disk), in the profile's dtype.
- adapter: weight and gradient in float32 (PEFT's autocast_adapter_dtype), AdamW's two moments of 4 bytes, or
  of 1 byte in bitsandbytes' 8-bit AdamW (arXiv 2110.02861).
- activations: `activations` for every layer from the first trained one on, below which no gradient flows;
  with gradient checkpointing only every layer's input and one layer's activations (arXiv 1604.06174), for the
  tokens of the largest device step. Norms and the gated delta rule compute in float32, so 4 bytes a number.
- loss: trl's chunked cross-entropy holds 256 rows of the vocabulary at a time, as logits, log-probabilities,
  their products and their gradient in float32 (trl, sft_trainer.py, _chunked_cross_entropy_loss).
- slack and libraries are measured (docs/training.md): what the backward pass and the allocator take beyond
  what is kept, and what torch, transformers, peft, trl and matplotlib take, the dataset's rows among it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.errors import UserError
from core.settings import TrainSettings
from core.shards import TensorInfo
from trainer.checks.check import size
from trainer.planning.activations import layer_floats
from trainer.planning.plan import Plan

Place = Literal["cpu", "unified", "gpu"]
"""Where the tensors live: the system's memory, one that a GPU shares with it, or a GPU's own."""
LIBRARIES: dict[Place, int] = {"cpu": 700_000_000, "unified": 2_500_000_000, "gpu": 600_000_000}
"""cpu measured; the others are what CUDA's libraries and context usually take, not measured on a GB10."""
SLACK: dict[Place, float] = {"cpu": 2.25, "unified": 1.1, "gpu": 1.1}
"""cpu: glibc's malloc, measured on both small models; else torch's caching allocator, expandable segments."""
AT_ONCE: dict[Place, int | None] = {"cpu": 2048, "unified": None, "gpu": None}
"""Tokens of a device step at the most: more take a CPU more memory and more time (docs/training.md)."""
FLOAT = 4
LOSS_CHUNK, LOSS_COPIES = 256, 4
MOMENTS = {"adamw_8bit": 2}
"""Bytes of the optimiser's state a parameter; AdamW's otherwise."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes at the peak, by what they are for."""

    libraries: int
    weights: int
    adapter: int
    activations: int
    loss: int

    @property
    def peak(self) -> int:
        """All of them."""
        return self.libraries + self.weights + self.adapter + self.activations + self.loss

    def __str__(self) -> str:
        parts = ("weights", "adapter", "activations", "loss", "libraries")
        return ", ".join(f"{name} {size(getattr(self, name))}" for name in parts)


def estimate(
    settings: TrainSettings,
    tensors: Mapping[str, TensorInfo],
    config: Mapping[str, Any],
    plan: Plan,
    *,
    tokens: int,
    place: Place,
) -> Estimate:
    """The peak of one process, for device steps of at most `tokens` tokens, padding included.

    `config` is the base's own. Several processes share the weights, and each gathers two layers (FSDP2).
    """
    profile, text = settings.profile, config.get("text_config") or config
    weight_bytes = 4 if profile.train.dtype == "float32" else 2
    mtp = profile.mtp_prefix
    loaded = [info for name, info in tensors.items() if not (mtp and name.startswith(mtp))]
    layers = [_layer_bytes(settings, tensors, text, plan, n) for n in range(text["num_hidden_layers"])]
    if profile.train.gradient_checkpointing:
        kept = len(layers) * text["hidden_size"] * weight_bytes + max(layers)
    else:
        kept = sum(layers[_first_trained(settings, plan) :])
    experts = _expert_copies(settings, tensors, plan, weight_bytes)
    weights = weight_bytes * sum(math.prod(info.shape) for info in loaded)
    processes = settings.nodes * settings.nproc
    if processes > 1:
        weights = weights // processes + 2 * weights // len(layers)
    return Estimate(
        libraries=LIBRARIES[place],
        weights=weights,
        adapter=plan.parameters * (2 * FLOAT + MOMENTS.get(settings.optimizer, 2 * FLOAT)),
        activations=round(SLACK[place] * tokens * kept) + experts,
        loss=LOSS_COPIES * FLOAT * LOSS_CHUNK * text["vocab_size"],
    )


def measured(peak: Mapping[str, int], place: Place) -> int:
    """What the prediction is about, in bytes, of a worker's `peak` ({"host_mb", "gpu_mb"})."""
    parts = {"cpu": ("host_mb",), "gpu": ("gpu_mb",), "unified": ("host_mb", "gpu_mb")}[place]
    return sum(peak[name] for name in parts) << 20


def read_config(base: Path) -> dict[str, Any]:
    """The base's config.json; UserError where it cannot be read."""
    try:
        return json.loads((base / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(f"{base}/config.json cannot be read: make verify") from None


def _layer_bytes(
    settings: TrainSettings,
    tensors: Mapping[str, TensorInfo],
    text: Mapping[str, Any],
    plan: Plan,
    number: int,
) -> float:
    """Bytes a token that one decoder layer keeps."""
    head = f"{settings.profile.layers_prefix}.{number}."
    inputs = {
        name.removeprefix(head): tensors[name + ".weight"].shape[1]
        for name in plan.modules
        if name.startswith(head)
    }
    types = text.get("layer_types")
    kind = types[number] if types else "full_attention"
    return FLOAT * layer_floats(text, kind, inputs, settings.lora_rank)


def _first_trained(settings: TrainSettings, plan: Plan) -> int:
    """The lowest decoder layer that is trained; those below it keep nothing."""
    head = f"{settings.profile.layers_prefix}."
    return min(int(name.removeprefix(head).partition(".")[0]) for name in plan.modules)


def _expert_copies(
    settings: TrainSettings, tensors: Mapping[str, TensorInfo], plan: Plan, weight_bytes: int
) -> int:
    """Trained experts are computed with a copy of their weights, the update added (peft, ParamWrapper)."""
    head = settings.profile.layers_prefix.rsplit(".", 1)[0]
    sizes = [math.prod(tensors[f"{head}.{name}"].shape) for name in plan.target_parameters]
    if not sizes:
        return 0
    at_once = (
        sum(sizes) / len(plan.target_parameters) * 2
        if settings.profile.train.gradient_checkpointing
        else sum(sizes)
    )
    return round(at_once) * weight_bytes
