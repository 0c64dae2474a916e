"""How the experts share the columns of lora_B: by the stamp, else by what training left in the numbers.

PEFT interleaves the experts within each rank; Unsloth kept each expert's columns together until
unsloth-zoo#1269 and stamps `lora_B_layout` since #1232. Merged by the wrong one, the experts' changes have
the right norm and a cosine of 0.02. Without a stamp the columns themselves tell: an expert that saw more
tokens moved further, and one that saw none did not move, so columns of one expert resemble each other.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from quant.lora import CONFIG, LAYOUTS, Adapter, load
from quant.merging.ops import Op

if TYPE_CHECKING:
    import torch

CLEAR = 5.0
"""The least F, and its least ratio to the other layout's, at which the numbers are believed. Without any
difference between experts F is near 1; over the 40 layers of a real model it leaves 0.9-1.1 hardly ever."""


def settle(adapter: Adapter, ops: Sequence[Op]) -> list[Op]:
    """The operations with the layout of their lora_B filled in.

    Stamped adapters are believed. Unstamped ones of Unsloth are read by the layout that the numbers clearly
    show, all others as PEFT's; UserError where the numbers contradict that, or show nothing for Unsloth's.
    """
    stacks = [op for op in ops if op.experts > 1 and op.parts["B"].shape[1] > op.experts]
    layout = adapter.config.get("lora_B_layout") or _from_numbers(adapter, stacks)
    grouped = layout == LAYOUTS[1]
    return [replace(op, grouped=grouped and op in stacks) for op in ops]


def _from_numbers(adapter: Adapter, stacks: Sequence[Op]) -> str:
    seen = shown([(load(op.parts["B"]), op.experts) for op in stacks])
    file = adapter.path / CONFIG
    if stacks and not seen and _by_unsloth(adapter):
        raise UserError(
            f"{file}: written by Unsloth without lora_B_layout, and the numbers do not show which layout its"
            f" experts have; add lora_B_layout, {' or '.join(LAYOUTS)}: the latter before unsloth-zoo#1269"
        )
    if seen == LAYOUTS[1] and not _by_unsloth(adapter):
        raise UserError(
            f"{file}: the experts' lora_B looks {seen}, and PEFT's is {LAYOUTS[0]}; if its trainer groups"
            f" them, add lora_B_layout: {seen}"
        )
    return seen or LAYOUTS[0]


def shown(stacks: Sequence[tuple["torch.Tensor", int]]) -> str | None:
    """The layout that the columns of some lora_B [O, R * E], each with its E, clearly show; else None."""
    logs = [(_log_norms(b), experts) for b, experts in stacks if b.any()]
    if not logs:
        return None
    interleaved = _f_statistic([norms.view(-1, experts).T for norms, experts in logs])
    grouped = _f_statistic([norms.view(experts, -1) for norms, experts in logs])
    for layout, own, other in zip(LAYOUTS, (interleaved, grouped), (grouped, interleaved), strict=True):
        if own > CLEAR * max(1.0, other):
            return layout
    return None


def _log_norms(b: "torch.Tensor") -> "torch.Tensor":
    norms = b.float().norm(dim=0)
    return (norms / norms.max()).clamp_min(1e-4).log()


def _f_statistic(tables: Sequence["torch.Tensor"]) -> float:
    """Variance between groups over that within, of several tables [groups, members] pooled."""
    between = within = 1e-12
    free_between = free_within = 0
    for table in tables:
        groups, members = table.shape
        between += members * table.mean(1).var(correction=0).item() * groups
        within += table.var(1, correction=0).sum().item() * members
        free_between += groups - 1
        free_within += groups * (members - 1)
    return (between / free_between) / (within / free_within)


def _by_unsloth(adapter: Adapter) -> bool:
    """Whether configuration or model card name Unsloth."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in _described(adapter)]
    return any("unsloth" in text.lower() for text in texts)


def _described(adapter: Adapter) -> list[Path]:
    return [path for path in (adapter.path / CONFIG, adapter.path / "README.md") if path.exists()]
