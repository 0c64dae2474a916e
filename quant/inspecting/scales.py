"""The scales of NVFP4 matrices: whether they are all there, fit, and are shared where a server takes one.

The global scales are 4 bytes each and are read; of all other tensors only the header is.
"""

import math
import os
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from core.shards import TensorInfo
from quant.inspecting.fault import Fault
from quant.inspecting.modules import Module, family, fused, some
from quant.quantising.pack import GROUP

GLOBAL = ("weight_global_scale", "input_global_scale")
MATRIX = ("weight_packed", "weight_scale", "weight_global_scale")
"""What a matrix in NVFP4 consists of, the scale of its input apart."""
LAYER = re.compile(r".*?layers\.\d+(?=\.)")

Values = Mapping[str, float]
"""Global scales by the names of their tensors."""


def read(modules: Mapping[str, Module]) -> dict[str, float]:
    """The global scales of a checkpoint's modules by tensor name: those that are one float32."""
    infos = [m.tensors[leaf] for m in modules.values() for leaf in GLOBAL if leaf in m.tensors]
    found = {}
    with ExitStack() as stack:
        opened = {file: stack.enter_context(file.open("rb")) for file in sorted({i.file for i in infos})}
        for info in infos:
            if info.dtype == "F32" and math.prod(info.shape) == 1:
                raw = os.pread(opened[info.file].fileno(), 4, info.start)
                found[info.name] = struct.unpack("<f", raw)[0]
    return found


def find(config: Mapping[str, Any], modules: Mapping[str, Module], values: Values) -> Iterator[Fault]:
    """Scales that are missing, of another shape, no divisors, or differ within what is loaded as one."""
    nvfp4 = [m for m in modules.values() if m.tensors.keys() & {"weight_packed", "weight_global_scale"}]
    nvfp4 = [m for m in nvfp4 if m.scheme not in ("INT4", "MXFP4")]
    groups = (config.get("config_groups") or {}).values()
    wanted = MATRIX + (("input_global_scale",) if any(g.get("input_activations") for g in groups) else ())
    if lost := [f"{m.name}.{leaf}" for m in nvfp4 for leaf in wanted if leaf not in m.tensors]:
        yield Fault(f"{some(lost)} missing")
    fp8 = [m.name for m in modules.values() if m.scheme == "FP8" and not m.quantized]
    if fp8:
        yield Fault(f"{some(fp8)} in FP8 without weight_scale")
    whole = [m for m in nvfp4 if set(MATRIX) <= m.tensors.keys()]
    if odd := [m for m in whole if 2 * m.tensors["weight_packed"].shape[-1] % GROUP]:
        width = 2 * odd[0].tensors["weight_packed"].shape[-1]
        yield Fault(f"{some([m.name for m in odd])} {width} wide, which {GROUP} does not divide")
    elif odd := [m for m in whole if not _fits(m.tensors["weight_packed"], m.tensors["weight_scale"])]:
        shape = list(odd[0].tensors["weight_scale"].shape)
        yield Fault(f"{some([m.name for m in odd])}: weight_scale is {shape}, not one a {GROUP} columns")
    names = [info.name for m in nvfp4 for leaf in GLOBAL if (info := m.tensors.get(leaf))]
    if odd := [name for name in names if not 0 < values.get(name, math.nan) < math.inf]:
        yield Fault(
            f"{some(odd)} is {values.get(odd[0], 'no single float32')}, expected a divisor", served=True
        )
    yield from _apart(modules, values)


def shared(modules: Mapping[str, Module], values: Values) -> dict[str, str]:
    """By family in NVFP4: who shares its weight_global_scale, how many scales of inputs a layer has."""
    partners: dict[str, str] = {}
    for members in fused(modules):
        if len(_weights(members, values)) == 1:
            for member in members:
                others = [m.name.rpartition(".")[2] for m in members if m is not member]
                partners.setdefault(family(member.name), "with " + ", ".join(others))
    inputs: dict[str, dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))
    for module in modules.values():
        info, layer = module.tensors.get("input_global_scale"), LAYER.match(module.name)
        if info and info.name in values:
            inputs[family(module.name)][layer[0] if layer else ""].add(values[info.name])
    most = {name: max(map(len, layers.values())) for name, layers in inputs.items()}
    families = dict.fromkeys(family(m.name) for m in modules.values() if m.scheme.startswith("NVFP4"))
    return {name: f"{partners.get(name, 'own')}; input: {most.get(name, 0)} a layer" for name in families}


def _apart(modules: Mapping[str, Module], values: Values) -> Iterator[Fault]:
    """vLLM takes the largest of q/k/v, the gate's of an expert (vllm#54974): the others come out wrong."""
    odd = [members for members in fused(modules) if len(_weights(members, values)) > 1]
    if odd:
        first, parents = odd[0], [members[0].name.rpartition(".")[0] for members in odd]
        held = (
            f"{m.name.rpartition('.')[2]} {values[m.tensors[GLOBAL[0]].name]:.6g}"
            for m in first
            if GLOBAL[0] in m.tensors
        )
        what = f"weight_global_scale differs within a fused group, {some(parents)}: {', '.join(held)}"
        yield Fault(what, "quantise the group with one scale: make quantize", served=True)


def _weights(members: list[Module], values: Values) -> set[float]:
    found = {values.get(m.tensors[GLOBAL[0]].name, math.nan) for m in members if GLOBAL[0] in m.tensors}
    return {value for value in found if not math.isnan(value)}


def _fits(packed: TensorInfo, scale: TensorInfo) -> bool:
    return scale.shape == (*packed.shape[:-1], 2 * packed.shape[-1] // GROUP)
