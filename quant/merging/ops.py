"""One step of a merge: a parameter of the base and what changes it."""

from dataclasses import dataclass, field

from core.shards import TensorInfo
from quant.merging.weights import Region


@dataclass(frozen=True, kw_only=True)
class Op:
    """One parameter W that the merge changes, and by what. `quant/merging/formulas.py` says how."""

    kind: str
    """linear, embedding, conv, parameter (wrapped by `target_parameters`), bias, or whole (replaced)."""
    name: str
    """The parameter's name in the checkpoint; that of the stack where experts are kept one by one."""
    shape: tuple[int, ...]
    """[O, I]; experts [E, O, I]; convolutions [O, I, *kernel]; biases [O]."""
    regions: tuple[Region, ...]
    parts: dict[str, TensorInfo] = field(hash=False)
    """As `lora.Adapter.modules`; `value` of a whole one."""
    scaling: float = 1.0
    grouped: bool = False
    """Whether lora_B keeps each expert's columns together (Unsloth's old layout) instead of interleaved."""

    @property
    def experts(self) -> int:
        """E of a wrapped stack, else 1."""
        return self.shape[0] if self.kind == "parameter" and len(self.shape) == 3 else 1
