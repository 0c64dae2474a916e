"""What vLLM would refuse of a checkpoint, or serve with wrong values, found without serving it.

Every rule stands for a failure that was seen or reported; sources by the rules. vLLM is 0.32.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quant.deploying import preflight
from quant.inspecting import scales
from quant.inspecting.fault import Fault
from quant.inspecting.ignored import Ignored
from quant.inspecting.modules import Module, fused, some
from quant.inspecting.scales import Values
from quant.merging.weights import ONE_EXPERT

IGNORE = "quantization_config.ignore of config.json"


def find(
    checkpoint: Path, config: Mapping[str, Any], modules: Mapping[str, Module], values: Values
) -> list[Fault]:
    """All faults of a checkpoint with this config.json, these modules and global scales."""
    ignored = Ignored(config.get("quantization_config") or {})
    return [
        *_files(checkpoint, config),
        *_names(modules),
        *_layers(config, modules),
        *_mtp(config, modules),
        *_config(ignored, modules),
        *_ignore_list(ignored, modules),
        *_halves(ignored, modules),
        *scales.find(ignored.config, modules, values),
    ]


def _files(checkpoint: Path, config: Mapping[str, Any]) -> Iterator[Fault]:
    """Without the processors vLLM dies at its start: "Can't load image processor"."""
    for role, (names, key) in preflight.ROLES.items():
        if (not key or key in config) and not any((checkpoint / name).is_file() for name in names):
            yield Fault(f"no {role} ({' or '.join(names)})", "copy it from the base")


def _names(modules: Mapping[str, Module]) -> Iterator[Fault]:
    """llm-compressor#2568: saved with a prefix twice, KeyError at the load."""
    if odd := [name for name in modules if "language_model.language_model." in name]:
        yield Fault(f"{some(odd)} carry the prefix language_model twice")


def _layers(config: Mapping[str, Any], modules: Mapping[str, Module]) -> Iterator[Fault]:
    """A weight that is not there is not initialised, and vLLM says so."""
    text = config.get("text_config", config)
    found: dict[str, set[int]] = defaultdict(set)
    experts: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for name in modules:
        if match := re.match(r"(?!mtp\.)(?:.*\.)?layers\.(\d+)\.", name):
            found["layers"].add(int(match[1]))
        if match := ONE_EXPERT.fullmatch(name):
            experts[match["experts"]].add((int(match["number"]), match["matrix"]))
    if lost := sorted(set(range(text.get("num_hidden_layers") or 0)) - found["layers"]):
        yield Fault(f"no tensors of layer {', '.join(map(str, lost))} of {text['num_hidden_layers']}")
    for name, there in experts.items():
        count = text.get("num_experts") or 1 + max(number for number, _ in there)
        wanted = {(n, f"{matrix}_proj") for n in range(count) for matrix in ("gate", "up", "down")}
        if lost := sorted(wanted - there):
            yield Fault(some([f"{name}.{n}.{matrix}" for n, matrix in lost]) + " missing")
    if "lm_head" not in modules and not (
        config.get("tie_word_embeddings") or text.get("tie_word_embeddings")
    ):
        yield Fault("lm_head missing, and config.json does not tie it to the embeddings")


def _mtp(config: Mapping[str, Any], modules: Mapping[str, Module]) -> Iterator[Fault]:
    """Served with --speculative-config: "Following weights were not initialized from checkpoint"."""
    declared = config.get("text_config", config).get("mtp_num_hidden_layers") or 0
    lost = [n for n in range(declared) if not any(name.startswith(f"mtp.layers.{n}.") for name in modules)]
    if lost:
        yield Fault(
            f"config.json declares an MTP head (mtp_num_hidden_layers {declared}), but no tensor is under"
            f" mtp.layers.{lost[0]}.",
            "bring them from the base: python -m quant.mtp",
        )


def _config(ignored: Ignored, modules: Mapping[str, Module]) -> Iterator[Fault]:
    quantized = [name for name, module in modules.items() if module.quantized]
    if quantized and not ignored.config:
        yield Fault(f"{some(quantized)} quantised, but config.json has no quantization_config")
    if found := ignored.config.get("kv_cache_scheme"):
        what = f"quantization_config has a kv_cache_scheme ({found.get('num_bits', '?')} bits)"
        yield Fault(what + ", which corrupts NVFP4 scales while calibrating", served=True)


def _ignore_list(ignored: Ignored, modules: Mapping[str, Module]) -> Iterator[Fault]:
    """KeyError at the load, of weight_packed or of w2_weight (vllm#41994, the experts of MTP)."""
    both = [name for name, module in modules.items() if module.quantized and name in ignored]
    if both:
        yield Fault(f"{some(both)} quantised although on the ignore list", f"take them off {IGNORE}")
    plain = [n for n, m in modules.items() if _linear(m) and not m.quantized and ignored.expects_scales(n)]
    plain += [n for n, m in modules.items() if _stack(m) and ignored.expects_scales(_first_expert(n))]
    if plain:
        yield Fault(
            f"{some(plain)} not quantised, but not on the ignore list either", f"add them to {IGNORE}"
        )


def _halves(ignored: Ignored, modules: Mapping[str, Module]) -> Iterator[Fault]:
    """vLLM: "Found different quantization schemes for the shards of …qkv_proj"."""
    for members in fused(modules):
        kinds = {(module.quantized, module.name in ignored) for module in members}
        if len(kinds) > 1 and ignored.config:
            held = ", ".join(f"{m.name.rpartition('.')[2]} {_kind(m, ignored)}" for m in members)
            yield Fault(
                f"half a fused group, {members[0].name.rpartition('.')[0]}: {held}",
                "quantise all of it or none: make quantize",
            )
    layers: dict[str, dict[str, str]] = defaultdict(dict)
    for name, module in modules.items():
        if match := ONE_EXPERT.fullmatch(name):
            layers[match["experts"]].setdefault(module.scheme, name)
    for experts, found in layers.items():
        if len(found) > 1:
            held = ", ".join(f"{name.removeprefix(experts + '.')} {kind}" for kind, name in found.items())
            yield Fault(f"{experts} in more than one scheme: {held}")


def _kind(module: Module, ignored: Ignored) -> str:
    return module.scheme + (" (on the ignore list)" if module.name in ignored else "")


def _linear(module: Module) -> bool:
    weight = module.tensors.get("weight")
    return weight is not None and len(weight.shape) == 2


def _stack(module: Module) -> bool:
    """Whether it is a stack of experts, which vLLM asks for by the name of its first expert."""
    whole = module.tensors.get("")
    return whole is not None and len(whole.shape) == 3 and ".experts." in module.name


def _first_expert(stack: str) -> str:
    return f"{stack.rpartition('.')[0]}.0.down_proj"
