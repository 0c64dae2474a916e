"""How two checkpoints differ: names, shapes, dtypes, schemes and bytes by module family; what lies beside.

What one stacks and the other keeps expert by expert is compared under the stack's name.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core import artifacts, shards
from core.progress import Progress
from core.shards import TensorInfo
from quant import merge
from quant.inspecting.modules import Module, family, in_order, stacked

IDENTICAL = "identical"
MOST_SHOWN = 60  # characters of a value of config.json


def families(new: Mapping[str, Module], old: Mapping[str, Module]) -> list[tuple[str, str, int, int]]:
    """`(family, what, how many, bytes)` of the modules of two checkpoints, in the order of the families.

    What is `identical`, `changed`, `added`, `missing`, `BF16 -> NVFP4` where the scheme is another,
    `stored in other tensors`, or `[8, 4] -> [8, 6]` for the shape. A stack of experts counts as one; the
    bytes are the new one's, of what is missing the old one's.
    """
    ours, theirs = _stacked(new), _stacked(old)
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    shared = [name for name in ours if name in theirs and _alike(ours[name], theirs[name])]
    total = sum(module.size for name in shared for module in ours[name])
    progress, done = Progress("inspect: MB compared", round(total / 1e6)), 0
    for name in sorted(ours.keys() | theirs.keys(), key=in_order):
        left, right = ours.get(name), theirs.get(name)
        size = sum(module.size for module in left or right or ())
        found = counts[family(name), _difference(left, right)]
        found[0] += 1
        found[1] += size
        if left and right and _alike(left, right):
            done += size
            progress.step(round(done / 1e6) - progress.done, note=family(name))
    progress.close()
    return [(name, what, count, size) for (name, what), (count, size) in counts.items()]


def settings(new: Any, old: Any, path: str = "config.json") -> Iterator[str]:
    """A line for each value of config.json that is not the same, by its dotted path."""
    if isinstance(new, dict) and isinstance(old, dict):
        for key in sorted(new.keys() | old.keys()):
            yield from settings(
                new.get(key), old.get(key), f"{path} {key}" if path == "config.json" else f"{path}.{key}"
            )
    elif isinstance(new, list) and isinstance(old, list) and new != old:
        ours, theirs = (Counter(json.dumps(entry) for entry in one) for one in (new, old))
        more, less = list((ours - theirs).elements()), list((theirs - ours).elements())
        changes = [
            f"{sign} {_short(', '.join(one))}" for sign, one in (("with", more), ("without", less)) if one
        ]
        yield f"{path}: {' and '.join(changes) or 'in another order'}"
    elif new != old:
        yield f"{path}: {_short(json.dumps(new))} (there {_short(json.dumps(old))})"


def files(new: Path, old: Path) -> Iterator[str]:
    """A line for each file beside the weights that only one has, or that differs; config.json apart."""
    ours, theirs = _beside(new), _beside(old)
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs or name not in ours:
            yield f"{name}: only in {new if name in ours else old}"
        elif ours[name].read_bytes() != theirs[name].read_bytes():
            yield f"{name}: differs"


def _stacked(modules: Mapping[str, Module]) -> dict[str, list[Module]]:
    found: dict[str, list[Module]] = defaultdict(list)
    for name, module in modules.items():
        found[stacked(name)].append(module)
    return found


def _tensors(modules: list[Module]) -> dict[str, TensorInfo]:
    return {info.name: info for module in modules for info in module.tensors.values()}


def _alike(left: list[Module], right: list[Module]) -> bool:
    """Whether they are the same tensors but for their bytes."""
    ours, theirs = _tensors(left), _tensors(right)
    return ours.keys() == theirs.keys() and all(
        (info.dtype, info.shape) == (theirs[name].dtype, theirs[name].shape) for name, info in ours.items()
    )


def _difference(left: list[Module] | None, right: list[Module] | None) -> str:
    if left is None or right is None:
        return "added" if left else "missing"
    if _alike(left, right):
        theirs = _tensors(right)
        same = all(merge.same_bytes(info, theirs[name]) for name, info in _tensors(left).items())
        return IDENTICAL if same else "changed"
    schemes = ["+".join(sorted({module.scheme for module in side})) for side in (right, left)]
    if schemes[0] != schemes[1]:
        return " -> ".join(schemes)
    ours, theirs = _tensors(left), _tensors(right)
    if ours.keys() != theirs.keys():
        return "stored in other tensors"
    name = next(name for name in ours if ours[name].shape != theirs[name].shape)
    return f"{list(theirs[name].shape)} -> {list(ours[name].shape)}"


def _beside(checkpoint: Path) -> dict[str, Path]:
    skipped = ("config.json", shards.INDEX)
    return {
        name: file
        for name, file in artifacts.payload(checkpoint).items()
        if file.suffix != ".safetensors" and name not in skipped
    }


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"
