"""A checkpoint by its modules: the tensors of each, and the scheme that they are stored in."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from core.shards import TensorInfo
from quant.merging.weights import FUSED, ONE_EXPERT

LEAF = re.compile(
    r"(?P<module>.+)\.(?P<leaf>weight|bias|weight_(?:packed|scale|scale_inv|global_scale|zero_point|shape|g_idx)"
    r"|input_(?:global_)?scale|[kv]_scale)"
)
"""What a module's parameters are called, by torch and by compressed-tensors."""
TOGETHER = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("in_proj_qkv", "in_proj_z"),
    ("in_proj_b", "in_proj_a"),
)
"""Matrices that vLLM loads as one, in one scheme (0.32, `packed_modules_mapping` of its qwen3_5.py)."""
STORED = {"F8_E4M3": "FP8", "F8_E5M2": "FP8", "I8": "INT8"}


@dataclass(frozen=True)
class Module:
    """One module, or one parameter that belongs to no Linear, with its tensors by leaf name."""

    name: str
    tensors: Mapping[str, TensorInfo]

    @property
    def scheme(self) -> str:
        """`NVFP4`, `NVFP4A16` (its input has no scale), `FP8`, `INT4`, `MXFP4`, or the dtype: `BF16`."""
        packed, scale = self.tensors.get("weight_packed"), self.tensors.get("weight_scale")
        if packed is not None:
            if packed.dtype != "U8":
                return "INT4"
            if scale is not None and scale.dtype != "F8_E4M3":
                return "MXFP4"
            return "NVFP4" if "input_global_scale" in self.tensors else "NVFP4A16"
        main = self.tensors.get("weight") or next(iter(self.tensors.values()))
        return STORED.get(main.dtype, main.dtype)

    @property
    def quantized(self) -> bool:
        """Whether it has scales, be it with or without what they scale."""
        return any(leaf not in ("weight", "bias", "") for leaf in self.tensors)

    @property
    def size(self) -> int:
        """Bytes of all its tensors."""
        return sum(info.stop - info.start for info in self.tensors.values())

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of its tensors, sorted."""
        return tuple(sorted({info.dtype for info in self.tensors.values()}))


def group(tensors: Mapping[str, TensorInfo]) -> dict[str, Module]:
    """The modules of a checkpoint by name, in the order of their names."""
    found: dict[str, dict[str, TensorInfo]] = defaultdict(dict)
    for name, info in tensors.items():
        match = LEAF.fullmatch(name)
        module, leaf = (match["module"], match["leaf"]) if match else (name, "")
        found[module][leaf] = info
    return {name: Module(name, found[name]) for name in sorted(found, key=in_order)}


def family(name: str) -> str:
    """A name with its numbers folded: `layers.3.experts.17.up_proj` -> `layers.N.experts.N.up_proj`."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "N", name)


def stacked(name: str) -> str:
    """The name under which a base that stacks its experts keeps it: `…experts.gate_up_proj`."""
    match = ONE_EXPERT.fullmatch(name.removesuffix(".weight"))
    if match is None:
        return name
    stack = next(stack for stack, matrices in FUSED.items() if match["matrix"] in matrices)
    return f"{match['experts']}.{stack}"


def fused(modules: Mapping[str, Module]) -> Iterator[list[Module]]:
    """The groups of matrices that are loaded as one, those of two members and more."""
    for name in modules:
        parent, _, last = name.rpartition(".")
        for group in TOGETHER:
            if last == group[0]:
                members = [modules[f"{parent}.{one}"] for one in group if f"{parent}.{one}" in modules]
                if members[1:]:
                    yield members


def in_order(name: str) -> list[tuple[int, str]]:
    """Sort key of names by their parts, numbers by their values: layer 2 before layer 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def some(names: list[str]) -> str:
    """The first of some names and how many more there are."""
    return names[0] + (f" and {len(names) - 1} more" if names[1:] else "")
