"""A LoRA adapter on an mlx model, under the names and in the layout of PEFT."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from trainer.backends import adapter
from trainer.job import Job

if TYPE_CHECKING:
    import mlx.nn as nn

LAYER = re.compile(r"layers\.\d+\..+")


@dataclass(frozen=True)
class Parameter:
    """What `check_trained` asks of a parameter."""

    size: int
    requires_grad: bool = True

    def numel(self) -> int:
        """Number of elements."""
        return self.size


@dataclass(frozen=True)
class Adapted:
    """An mlx model whose planned modules carry LoRA."""

    model: "nn.Module"
    modules: dict[str, Any]
    """`mlx_lm`'s LoRALinear by the checkpoint's name of its linear layer."""
    job: Job

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The trainable parameters by PEFT's names."""
        for name, array in self.arrays().items():
            yield name, Parameter(array.size)

    def arrays(self) -> dict[str, Any]:
        """The adapter by PEFT's names: lora_A is (r, in), lora_B is (out, r); mlx keeps both transposed."""
        arrays = {}
        for name, module in self.modules.items():
            arrays[f"base_model.model.{name}.lora_A.weight"] = module.lora_a.T
            arrays[f"base_model.model.{name}.lora_B.weight"] = module.lora_b.T
        return arrays

    def load(self, arrays: dict[str, Any]) -> None:
        """Put the values of an adapter in place; the names and shapes are those of `arrays()`."""
        for name, module in self.modules.items():
            module.lora_a = arrays[f"base_model.model.{name}.lora_A.weight"].T
            module.lora_b = arrays[f"base_model.model.{name}.lora_B.weight"].T

    def save_pretrained(self, directory: Path) -> None:
        """Write adapter_config.json and adapter_model.safetensors as PEFT does."""
        import mlx.core as mx
        from peft import LoraConfig

        base = str(self.job.settings.base_dir)
        config = LoraConfig(
            task_type="CAUSAL_LM",
            base_model_name_or_path=base,
            inference_mode=True,
            **adapter.options(self.job),
        )
        config.save_pretrained(str(directory))
        arrays = {name: mx.contiguous(array) for name, array in self.arrays().items()}
        mx.save_safetensors(str(directory / "adapter_model.safetensors"), arrays, metadata={"format": "pt"})


def adapt(model: "nn.Module", job: Job) -> Adapted:
    """Freeze the model and give every planned module a LoRA layer, started as in the other backends.

    UserError where mlx-lm's class lacks a planned module, and on stacked experts.
    """
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_unflatten
    from mlx_lm.tuner.lora import LoRALinear

    settings, rank = job.settings, job.settings.lora_rank
    if job.plan.target_parameters:
        raise UserError("LORA_EXPERTS=1: the mlx backend does not train stacked experts: BACKEND=plain")
    model.freeze()
    there = {
        match.group(): (path, module)
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and (match := LAYER.search(path))
    }
    modules, replaced, arrays = {}, [], {}
    for name in job.plan.modules:
        match = LAYER.search(name)
        if match is None or match.group() not in there:
            raise UserError(f"mlx-lm's {type(model).__bases__[0].__module__} has no {name}: BACKEND=plain")
        path, linear = there[match.group()]
        modules[name] = LoRALinear.from_base(
            linear,
            r=rank,
            dropout=settings.lora_dropout,
            scale=settings.lora_alpha / (rank**0.5 if settings.lora_rslora else rank),
        )
        replaced.append((path, modules[name]))
    model.update_modules(tree_unflatten(replaced))
    adapted = Adapted(model, modules, job)
    for name, array in adapted.arrays().items():
        arrays[name] = mx.zeros(array.shape)
        if ".lora_A." in name:
            stands = name.replace(".lora_A.", ".lora_A.default.")  # as PEFT calls it in memory
            arrays[name] = mx.array(adapter.first_lora_a(stands, array.shape, settings.train_seed).numpy())
    adapted.load(arrays)
    return adapted
