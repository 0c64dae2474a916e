"""LoRA by hand (Hu et al. 2021, arXiv 2106.09685): W x + b stays, B (A x) alpha / r is learnt.

Files have PEFT's layout and names, so that `PeftModel.from_pretrained` reads what this module wrote.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from trainer.minigpt.model import MiniGPT

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PEFT_PREFIX = "base_model.model."


class LoRALinear(nn.Module):
    """A frozen linear layer with a trainable low-rank update beside it.

    `lora_A` (r, in) starts by Kaiming's uniform rule, `lora_B` (out, r) at zero: at first the layer computes
    exactly what its base does. Both are float32. `base` is an `nn.Linear`, or what quacks like one.
    """

    def __init__(self, base: Any, r: int = 8, alpha: float = 16.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.base: nn.Module = base.requires_grad_(False)
        self.r, self.alpha, self.scaling = r, alpha, alpha / r
        self.dropout = nn.Dropout(dropout)
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return self.base(x) + self.dropout(x) @ self.lora_A.T @ self.lora_B.T * self.scaling

    def delta(self) -> Tensor:
        """The update as one matrix (out, in): B A alpha / r."""
        return self.lora_B @ self.lora_A * self.scaling

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """The base layer with the update added to its weight: nothing is left to compute beside it."""
        assert isinstance(self.base, nn.Linear), "a quantised base is not merged: dequantise it first"
        self.base.weight += self.delta()
        return self.base


def wrap(
    model: MiniGPT, targets: Iterable[str], r: int = 8, alpha: float = 16.0, dropout: float = 0.0
) -> list[nn.Parameter]:
    """Freeze the model and put a LoRALinear in the place of these layers of every block.

    `targets` are names within a block, e.g. `up`. Returns the trainable parameters.
    """
    model.requires_grad_(False)
    for block in model.blocks:
        for name in targets:
            setattr(block, name, LoRALinear(getattr(block, name), r, alpha, dropout))
    return [p for p in model.parameters() if p.requires_grad]


def layers(model: MiniGPT) -> dict[str, LoRALinear]:
    """The wrapped layers by their path, e.g. `blocks.0.up`."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoRALinear)}


def merge(model: MiniGPT) -> MiniGPT:
    """Put plain linear layers, updates added, in the place of the wrapped ones; in place."""
    for path, layer in layers(model).items():
        parent, name = path.rsplit(".", 1)
        setattr(model.get_submodule(parent), name, layer.merged())
    return model


def state(model: MiniGPT) -> dict[str, Tensor]:
    """The adapter alone, float32, under PEFT's names."""
    return {
        f"{PEFT_PREFIX}{path}.{matrix}.weight": getattr(layer, matrix).detach()
        for path, layer in layers(model).items()
        for matrix in ("lora_A", "lora_B")
    }


def save(model: MiniGPT, directory: Path) -> None:
    """Write the adapter: weights as float16, a half of what it was trained in, and PEFT's configuration."""
    wrapped = layers(model)
    first = next(iter(wrapped.values()))
    config = {
        "peft_type": "LORA",
        "r": first.r,
        "lora_alpha": first.alpha,
        "lora_dropout": first.dropout.p,
        "target_modules": sorted({path.rsplit(".", 1)[1] for path in wrapped}),
        "bias": "none",
    }
    (directory / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    halves = {name: tensor.half().contiguous() for name, tensor in state(model).items()}
    save_file(halves, directory / WEIGHTS)


def load(model: MiniGPT, directory: Path) -> None:
    """Wrap the model as the adapter in `directory` says and fill in its weights.

    Raises KeyError where a layer has no weights in the file; AssertionError where weights have no layer.
    """
    config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    wrap(model, config["target_modules"], config["r"], config["lora_alpha"], config["lora_dropout"])
    weights = load_file(directory / WEIGHTS)
    for name, place in state(model).items():
        place.copy_(weights.pop(name))
    assert not weights, f"left over in {directory}: {sorted(weights)[0]}"
