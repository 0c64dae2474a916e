"""What each way of training holds in memory, by formula and measured; activations apart."""

from typing import Any

from torch import nn

FLOAT = 4
ADAM_MOMENTS = 2
NF4_BLOCK = 64


def held(model: nn.Module, optimiser: Any) -> int:
    """Bytes of a model's tensors, their gradients and the optimiser's moments, as they are now."""
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    found = sum(t.numel() * t.element_size() for t in tensors.values())
    found += sum(p.grad.numel() * p.grad.element_size() for p in model.parameters() if p.grad is not None)
    moments = (t for state in optimiser.state.values() for name, t in state.items() if name != "step")
    return found + sum(t.numel() * t.element_size() for t in moments)


def full(parameters: int) -> int:
    """Full fine-tuning: each parameter as weight, gradient and Adam's two moments, in float32."""
    return parameters * FLOAT * (1 + 1 + ADAM_MOMENTS)


def lora(parameters: int, trained: int) -> int:
    """LoRA: the base once, frozen; only the adapter has gradients and moments."""
    return parameters * FLOAT + full(trained)


def qlora(parameters: int, trained: int, linear_weights: int) -> int:
    """QLoRA: as LoRA, but each weight of a linear layer is 4 bits and a 64th of a float32 scale."""
    return (parameters - linear_weights) * FLOAT + nf4(linear_weights) + full(trained)


def nf4(weights: int) -> int:
    """Bytes of that many weights in NF4: half a byte each, and one float32 scale a block."""
    return weights // 2 + weights // NF4_BLOCK * FLOAT


def adapter(rank: int, shapes: list[tuple[int, int]]) -> int:
    """Parameters of an adapter on linear layers of these (out, in) shapes: r * (in + out) each."""
    return sum(rank * (rows + columns) for rows, columns in shapes)


def linear_shapes(model: nn.Module) -> dict[str, tuple[int, int]]:
    """(out, in) of every linear layer by its path."""
    return {
        path: (module.out_features, module.in_features)
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }
