"""Where a checkpoint keeps a parameter of the model in memory: its name, experts stacked or single."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from core.shards import ITEM_BYTES, TensorInfo

FUSED = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
"""The experts' stacked parameters, and the matrices of one expert that make its [O, I], row after row."""
ONE_EXPERT = re.compile(r"(?P<experts>.+\.experts)\.(?P<number>\d+)\.(?P<matrix>(?:gate|up|down)_proj)")


@dataclass(frozen=True)
class Region:
    """Rows of one matrix of a parameter that lie together in one file."""

    at: TensorInfo
    """[rows, columns], or the whole tensor in its shape; `name` is the tensor's in the checkpoint."""
    expert: int = 0
    row: int = 0
    """The first row's place within the expert's matrix."""


@dataclass(frozen=True)
class Weight:
    """A parameter as the model holds it, and where the checkpoint keeps its values."""

    name: str
    shape: tuple[int, ...]
    regions: tuple[Region, ...]


def find(base: Mapping[str, TensorInfo], module: str, leaf: str) -> Weight | None:
    """The parameter `module.leaf` of the model in memory, wherever and however the checkpoint keeps it.

    The text-only class says `model.layers` where the multimodal one says `model.language_model.layers`;
    experts are stacked, or one by one, on either side.
    """
    for name in spellings(module):
        if info := base.get(f"{name}.{leaf}"):
            return _whole(info)
        if found := _unstacked(base, name, leaf) or _slice(base, name, leaf):
            return found
    return None


def stacks(base: Mapping[str, TensorInfo]) -> Iterator[str]:
    """The names of the stacks whose experts the checkpoint keeps one by one."""
    for name in base:
        match = ONE_EXPERT.fullmatch(name.removesuffix(".weight"))
        if match and match["number"] == "0" and match["matrix"] != "up_proj":
            leaf = next(stack for stack, matrices in FUSED.items() if match["matrix"] in matrices)
            yield f"{match['experts']}.{leaf}"


def spellings(module: str) -> list[str]:
    """The names that a module or parameter has in the multimodal and in the text-only class."""
    longer = re.sub(r"^model\.(?!language_model\.)", "model.language_model.", module)
    return [module, longer, re.sub(r"^model\.language_model\.", "model.", module)]


def _whole(info: TensorInfo) -> Weight:
    """A tensor on its own, cut into its experts where it is a stack."""
    if len(info.shape) != 3:
        return Weight(info.name, info.shape, (Region(info),))
    size = (info.stop - info.start) // max(1, info.shape[0])
    cut = (replace(info, shape=info.shape[1:], start=s, stop=s + size) for s in _steps(info, size))
    return Weight(info.name, info.shape, tuple(Region(at, expert) for expert, at in enumerate(cut)))


def _steps(info: TensorInfo, size: int) -> Iterator[int]:
    return iter(range(info.start, info.stop, size) if size else ())


def _unstacked(base: Mapping[str, TensorInfo], module: str, leaf: str) -> Weight | None:
    """A stack [E, O, I] that the checkpoint keeps expert by expert."""
    if leaf not in FUSED:
        return None
    regions: list[Region] = []
    rows = experts = 0
    while found := [base.get(f"{module}.{experts}.{m}.weight") for m in FUSED[leaf]]:
        if None in found:
            break
        rows = 0
        for info in found:
            assert info is not None
            regions.append(Region(info, experts, rows))
            rows += info.shape[0]
        experts += 1
    if not regions or len({r.at.shape for r in regions}) != 1:
        return None
    return Weight(f"{module}.{leaf}", (experts, rows, regions[0].at.shape[-1]), tuple(regions))


def _slice(base: Mapping[str, TensorInfo], module: str, leaf: str) -> Weight | None:
    """One expert's matrix inside a stack of the checkpoint."""
    match = ONE_EXPERT.fullmatch(module)
    if not match or leaf != "weight":
        return None
    stack = next(s for s, matrices in FUSED.items() if match["matrix"] in matrices)
    info = base.get(f"{match['experts']}.{stack}")
    if info is None or len(info.shape) != 3 or int(match["number"]) >= info.shape[0]:
        return None
    rows, columns = info.shape[1] // len(FUSED[stack]), info.shape[2]
    size = rows * columns * ITEM_BYTES[info.dtype]
    place = int(match["number"]) * len(FUSED[stack]) + FUSED[stack].index(match["matrix"])
    start = info.start + place * size
    at = replace(info, shape=(rows, columns), start=start, stop=start + size)
    return Weight(f"{module}.{leaf}", at.shape, (Region(at),))
