"""The adapter, whoever trains it: what PEFT is asked for, its start, and how it is saved."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.job import Job

if TYPE_CHECKING:
    import torch

LAYOUT = "lora_B_layout"
"""Key of adapter_config.json by which quant/lora.py knows how stacked experts share lora_B's columns."""


def options(job: Job) -> dict[str, Any]:
    """What both PEFT's LoraConfig and Unsloth's get_peft_model take, by the same names."""
    return {
        "r": job.settings.lora_rank,
        "lora_alpha": job.settings.lora_alpha,
        "lora_dropout": job.settings.lora_dropout,
        "use_rslora": job.settings.lora_rslora,
        "target_modules": job.plan.pattern,
        # Never None: from that Unsloth makes its own choice, and trains the experts unasked.
        "target_parameters": list(job.plan.target_parameters),
    }


def first_lora_a(name: str, shape: tuple[int, ...], seed: int) -> "torch.Tensor":
    """What lora_A [r, in] starts with: uniform in +-1/sqrt(in), in float32.

    PEFT's own distribution (Kaiming's with a = sqrt(5)), but the values follow from the parameter's name and
    the seed alone: the same in every backend, for any number of processes and in whatever order.
    """
    import torch

    key = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "big", signed=True))
    return torch.empty(shape).uniform_(-1, 1, generator=generator) * shape[1] ** -0.5


def start(model: Any, seed: int) -> None:
    """Give the trainable parameters their first values: lora_B zero, lora_A by `first_lora_a`."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            if ".lora_A." not in name:
                parameter.zero_()
                continue
            parameter.copy_(first_lora_a(name, tuple(parameter.shape), seed))


def save(model: Any, directory: Path) -> None:
    """Write a PEFT model's adapter in PEFT's layout: safetensors in float32 and adapter_config.json.

    An adapter on stacked experts is stamped with the layout of its lora_B: Unsloth says which one it
    trained, PEFT's own is `rank_major`.
    """
    model.save_pretrained(directory)
    (directory / "README.md").unlink(missing_ok=True)
    file = directory / "adapter_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    if config.get("target_parameters") and LAYOUT not in config:
        config[LAYOUT] = "rank_major"
        file.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
