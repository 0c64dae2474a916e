"""The proof of a merge by its output: PEFT's own forward with the adapter active against the merged weights.

Each adapted module is built alone, with the base's weights, and handed to PEFT under its own name, so that
PEFT decides on rank, scaling, layout and formula again, independently of our plan. It sees inputs in the span
of lora_A, where the adapter speaks loudest. What differs may only be the rounding of the merged weights to
their dtype, and its size is known: a number x of p bits is off by its ulp / sqrt(12) (rms).
"""

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import shards
from core.errors import UserError
from core.shards import TensorInfo
from quant import lora
from quant.lora import Adapter
from quant.merging import plan, skeleton
from quant.merging.ops import Op
from quant.merging.skeleton import Adapted

if TYPE_CHECKING:
    import torch

STACKS = 3
"""Layers whose stacked experts are probed: first, middle, last; one needs three times its size in memory."""
SLACK, ADAPTER_ROUNDING, PRODUCT_ROUNDING = 1.5, 1e-2, 1e-5
"""Of the expected rounding; of the adapter's output (its delta may be rounded to 16 bits); of all output."""


@dataclass(frozen=True)
class Reading:
    """One module's outputs: base, base + adapter (PEFT), merged."""

    name: str
    change: float
    """||adapter's output|| / ||base's output||."""
    kept: float
    """How much of the adapter's output the merged weight gives: its projection; 1 is all."""
    error: float
    """||merged - PEFT|| / ||adapter's output||; 0 where that is 0."""
    explained: bool
    """Whether rounding explains that error."""


def check(base: Path, adapter: Path, merged: Path) -> dict[str, Any]:
    """Probe a merge, print a line a family of layers with the change in each; what to record of it.

    UserError naming the family whose output differs from PEFT's by more than rounding. A family whose
    change is mostly lost in rounding is named as a warning.
    """
    families: dict[str, list[Reading]] = {}
    for reading in _readings(base, adapter, merged):
        families.setdefault(re.sub(r"\.\d+(?=\.)", ".*", reading.name), []).append(reading)
    for family, readings in families.items():
        kept = sum(r.kept for r in readings) / len(readings)
        worst = max(r.error for r in readings)
        changes = " ".join(f"{reading.change:.2g}" for reading in readings)
        print(f"parity: {family}: kept {kept:.1%}, error {worst:.2g}; change by layer {changes}")
        broken = [reading for reading in readings if not reading.explained]
        if broken:
            raise UserError(
                f"parity breaks in {family}: merged, {broken[0].name} gives another output than with the"
                f" adapter active (error {broken[0].error:.2g} of the change, kept {broken[0].kept:.1%})"
            )
        if kept < 0.5 and any(reading.change for reading in readings):
            print(f"parity: warning: {family}: rounding to the base's dtype loses most of its change")
    return {
        family: {
            "kept": sum(r.kept for r in readings) / len(readings),
            "change": {reading.name: reading.change for reading in readings},
        }
        for family, readings in families.items()
    }


def _readings(base: Path, adapter: Path, merged: Path) -> list[Reading]:
    """As `probe`; in a process of its own where PEFT is not loaded: it takes 400 MB more than the merge."""
    if "peft" in sys.modules:
        return probe(base, adapter, merged)
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=_end_with_parent) as pool:
        return pool.submit(probe, base, adapter, merged).result()


def _end_with_parent() -> None:
    """A worker holds its own queue open, so that it would wait for work forever once its parent is killed."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def probe(base_dir: Path, adapter_dir: Path, merged_dir: Path) -> list[Reading]:
    """Compare every adapted module of a merged checkpoint; of the experts' stacks, those of three layers."""
    adapter = lora.read(adapter_dir)
    base, merged = shards.read_checkpoint(base_dir), shards.read_checkpoint(merged_dir)
    ops = plan.make(adapter, base)
    grouped = {op.parts["B"].name: op.experts for op in ops if op.grouped}
    found = []
    for group in _layers(_adapted(adapter, ops)):
        found += _probe_layer(adapter, group, base, merged, grouped)
    return found


def _adapted(adapter: Adapter, ops: Sequence[Op]) -> list[Adapted]:
    """The modules that the adapter changes, each with its parts, innermost wrapped parameter first."""
    leaves = {op.parts["A"].name: op.name.rpartition(".")[2] for op in ops if op.kind == "parameter"}
    modules: dict[str, dict[str, dict[str, TensorInfo]]] = {}
    for key in sorted(adapter.modules, key=len, reverse=True):
        parts = adapter.modules[key]
        leaf = leaves.get(parts["A"].name, "") if "A" in parts else ""
        modules.setdefault(lora.WRAPPERS.sub("", key), {})[leaf] = parts
    return [Adapted(name, modules[name]) for name in sorted(modules, key=_by_number)]


def _by_number(name: str) -> list[str | int]:
    """A key that puts layer 2 before layer 10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _layers(modules: Sequence[Adapted]) -> Iterator[list[Adapted]]:
    """The modules layer by layer: those of one are in memory at once."""
    layers: dict[str, list[Adapted]] = {}
    for module in modules:
        layer = re.match(r".+?\.\d+\.", module.name)
        layers.setdefault(layer[0] if layer else module.name, []).append(module)
    stacked = [layer for layer, found in layers.items() if any(module.wrapped for module in found)]
    shown = {stacked[i * (len(stacked) - 1) // (STACKS - 1)] for i in range(STACKS) if stacked}
    for layer, found in layers.items():
        if chosen := [module for module in found if layer in shown or not module.wrapped]:
            yield chosen


def _probe_layer(
    adapter: Adapter,
    modules: Sequence[Adapted],
    base: Mapping[str, TensorInfo],
    merged: Mapping[str, TensorInfo],
    grouped: Mapping[str, int],
) -> Iterator[Reading]:
    """Build the modules with the base's weights, let PEFT adapt them, and read each one's outputs."""
    import torch

    generator = torch.Generator().manual_seed(0)
    root = torch.nn.Module()
    for module in modules:
        skeleton.place(root, module.name, skeleton.build(module, base))
    inputs = {module.name: skeleton.inputs(module, generator) for module in modules}
    plain = {name: skeleton.run(root.get_submodule(name), x) for name, x in inputs.items()}
    _adapt(root, adapter, modules, grouped)
    for module in modules:
        x = inputs[module.name]
        adapted = skeleton.run(root.get_submodule(module.name), x)
        ours = skeleton.run(skeleton.build(module, merged), x)
        variance = skeleton.run(skeleton.build(module, merged, skeleton.rounding_variance), _squared(x))
        for leaf, before in plain[module.name].items():
            name = f"{module.name}.{leaf}".rstrip(".")
            slack = skeleton.half_ulp(module, merged) * before.norm().item() if module.scaled else 0.0
            yield _read(name, before, adapted[leaf], ours[leaf], variance[leaf], slack)


def _adapt(root: Any, adapter: Adapter, modules: Sequence[Adapted], grouped: Mapping[str, int]) -> None:
    """Wrap the modules in `root` by PEFT and load the adapter's tensors for them."""
    from peft import LoraConfig, inject_adapter_in_model, set_peft_model_state_dict

    fields = {k: v for k, v in adapter.config.items() if k in LoraConfig.__dataclass_fields__}
    fields |= {
        "target_modules": [module.name for module in modules if not module.wrapped],
        "target_parameters": [f"{m.name}.{leaf}" for m in modules if m.wrapped for leaf in m.parts] or None,
        "modules_to_save": None,
        "layers_to_transform": None,
        "layers_pattern": None,
        "exclude_modules": None,
        "bias": "none",
        "init_lora_weights": True,
    }
    inject_adapter_in_model(LoraConfig(**fields), root)
    root.eval()
    state = {}
    for info in (info for m in modules for parts in m.parts.values() for info in parts.values()):
        tensor = lora.load(info)
        state[info.name.removeprefix(lora.PREFIX)] = (
            _interleaved(tensor, grouped[info.name]) if info.name in grouped else tensor
        )
    loaded = set_peft_model_state_dict(root, state)
    assert not loaded.unexpected_keys, f"PEFT knows no {loaded.unexpected_keys[0]}"


def _interleaved(b: "torch.Tensor", experts: int) -> "torch.Tensor":
    """A lora_B [O, E * R] that keeps each expert's columns together, in PEFT's layout."""
    return b.view(len(b), experts, -1).transpose(1, 2).reshape(b.shape)


def _squared(x: Any) -> Any:
    """What a variance module is fed: squares of the inputs; token ids as they are."""
    if isinstance(x, dict):
        return {leaf: values.square() for leaf, values in x.items()}
    return x.square() if x.is_floating_point() else x


def _read(
    name: str,
    before: "torch.Tensor",
    adapted: "torch.Tensor",
    ours: "torch.Tensor",
    variance: "torch.Tensor",
    slack: float,
) -> Reading:
    """`slack`: what rounding may do beyond its expected size, where it hits all of a row alike."""
    added, error = adapted - before, ours - adapted
    loud, off = added.norm().item(), error.norm().item()
    rounding = variance.sum().clamp_min(0).sqrt().item()
    allowed = slack + SLACK * rounding + ADAPTER_ROUNDING * loud + PRODUCT_ROUNDING * ours.norm().item()
    return Reading(
        name=name,
        change=loud / (before.norm().item() or 1.0),
        kept=((ours - before) * added).sum().item() / loud**2 if loud else 1.0,
        error=off / loud if loud else 0.0,
        explained=off <= allowed,
    )
