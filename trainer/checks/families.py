"""The profile's module names against the checkpoint's own: what can be trained, and what it costs."""

import difflib
import math
import re
from collections.abc import Mapping
from typing import Any

from core.errors import UserError
from core.profile import Profile
from core.shards import TensorInfo, match_names
from trainer.checks.check import Check
from trainer.checks.checkpoint import Checkpoint
from trainer.planning.plan import Plan, make_plan

LINEAR, FULL = "linear_attention", "full_attention"
FUSED = ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_ba")
"""How Qwen3-Next stores what Qwen3.5 splits into in_proj_qkv, in_proj_z, in_proj_b and in_proj_a."""
BYTES_A_PARAMETER = 16  # of the adapter, in FP32: weight, gradient, Adam's two moments


def check_family(profile: Profile, base: Checkpoint, family: str) -> Check:
    """Each module of a family in every layer that has its kind of block."""
    name, paths = f"family {family}", profile.families[family]
    wanted = {path: layers_with(path, base.text) for path in paths}
    found = {path: len(match_names(base.tensors, profile.layers_prefix, path)) for path in paths}
    short = [path for path in paths if not found[path] == wanted[path] > 0]
    if not short:
        split = ", in_proj_* split" if any("in_proj_" in path for path in paths) else ""
        layers = f"{min(found.values())} of {max(wanted.values())} layers"
        return Check(name, "ok", f"{layers}, {len(paths)} modules each{split}")
    absent = [path for path in short if not found[path]]
    fused = [path for path in FUSED if match_names(base.tensors, profile.layers_prefix, path)]
    if fused and any(path.startswith("linear_attn.in_proj_") for path in absent):
        expected = f"the profile expects split: {_leaves(absent)}"
        return Check(name, "fail", f"fused: {_leaves(fused)}", expected)
    counts = ", ".join(f"{_leaves([path])} in {found[path]} of {wanted[path]} layers" for path in short)
    mend = f"correct `families` in core/profiles/{profile.name}.py, or get the checkpoint that it is for"
    near = f"nearest to {absent[0]}: {nearest(profile, base.tensors, absent[0])}; " if absent else ""
    return Check(name, "fail", counts, near + mend)


def check_trainable(profile: Profile, base: Checkpoint) -> Check:
    """How many modules receive an adapter, and its parameters at the profile's rank."""
    plan, name = planned(profile, base.tensors), "trainable modules"
    wanted = sum(layers_with(path, base.text) for path in profile.target_paths)
    if plan is None:
        return Check(name, "fail", f"fewer than {wanted}", "a target is missing: see the families above")
    found, millions = len(plan.modules), plan.parameters / 1e6
    text = f"{found} of {wanted}, {millions:.2f} M parameters at rank {profile.lora.rank}"
    if found == wanted:
        return Check(name, "ok", text)
    return Check(name, "fail", text, "see the families above")


def planned(profile: Profile, tensors: Mapping[str, TensorInfo]) -> Plan | None:
    """What training at the profile's rank would train; None where a target is not among the tensors."""
    try:
        return make_plan(profile, tensors, profile.lora.rank)
    except UserError:
        return None


def training_bytes(profile: Profile, tensors: Mapping[str, TensorInfo]) -> int:
    """The least memory of training: base in the profile's dtype, adapter and optimizer, no activations.

    transformers does not load MTP tensors.
    """
    loaded = [info for name, info in tensors.items() if not _starts(name, profile.mtp_prefix)]
    weights = sum(math.prod(info.shape) for info in loaded) * (4 if profile.train.dtype == "float32" else 2)
    plan = planned(profile, tensors)
    return weights + (plan.parameters if plan else 0) * BYTES_A_PARAMETER


def layers_with(path: str, text: Mapping[str, Any]) -> int:
    """How many layers have the block that a module path begins with, by the language model's config."""
    interval = text.get("full_attention_interval", 1)
    types = text.get("layer_types") or [
        LINEAR if layer % interval else FULL for layer in range(1, text.get("num_hidden_layers", 0) + 1)
    ]
    linear = types.count(LINEAR)
    return {"linear_attn": linear, "self_attn": len(types) - linear}.get(path.split(".")[0], len(types))


def nearest(profile: Profile, tensors: Mapping[str, TensorInfo], path: str) -> str:
    """The name most like that of a module which is not there, among those that no family claims."""
    claimed = {_name(profile, path) for paths in profile.families.values() for path in paths}
    others = {
        re.sub(r"\.\d+\.", ".N.", name)
        for name in tensors
        if not _starts(name, profile.mtp_prefix) and not _starts(name, profile.vision_prefix)
    } - claimed
    close = difflib.get_close_matches(_name(profile, path), sorted(others), n=1, cutoff=0.6)
    return close[0] if close else "none"


def _name(profile: Profile, path: str) -> str:
    return f"{profile.layers_prefix}.N.{path}.weight"


def _starts(name: str, prefix: str | None) -> bool:
    return prefix is not None and name.startswith(prefix)


def _leaves(paths: list[str]) -> str:
    return ", ".join(path.rsplit(".", 1)[-1] for path in paths)
