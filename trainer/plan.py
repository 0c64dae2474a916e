"""What a run trains, read off the base's own tensors before any weight is loaded."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.errors import UserError
from core.profile import Profile
from core.shards import TensorInfo, match_names


@dataclass(frozen=True)
class Plan:
    modules: tuple[str, ...]
    """Names of the linear layers that receive an adapter, as in the checkpoint."""
    parameters: int
    """Trainable parameters: r * (in + out) for each module."""
    share: float
    """Trainable parameters over the checkpoint's."""
    pattern: str
    """Regular expression that matches exactly these modules in the loaded model (target_modules)."""


def make_plan(profile: Profile, tensors: Mapping[str, TensorInfo], rank: int) -> Plan:
    """The plan for a base with these tensors; UserError where a target of the profile is not among them."""
    weights = []
    for path in profile.target_paths:
        found = match_names(tensors, profile.layers_prefix, path)
        if not found:
            raise UserError(
                f"PROFILE={profile.name}: no tensor {profile.layers_prefix}.N.{path}.weight in the base: "
                f"make verify"
            )
        weights += found
    parameters = sum(rank * sum(tensors[name].shape) for name in weights)
    total = sum(math.prod(info.shape) for info in tensors.values())
    paths = "|".join(re.escape(path) for path in profile.target_paths)
    return Plan(
        modules=tuple(sorted(name.removesuffix(".weight") for name in weights)),
        parameters=parameters,
        share=parameters / total,
        pattern=rf".*\blayers\.\d+\.({paths})",
    )


def check_trained(trainable: Mapping[str, int], plan: Plan) -> None:
    """Compare a prepared model with the plan.

    `trainable` maps the names of the parameters that require gradients to their sizes. Raises
    AssertionError naming the first module that differs: silently training too little (or the router, or
    the vision tower) is the costliest mistake there is.
    """
    found = {_layer_path(name) for name in trainable}
    wanted = {_layer_path(name + ".lora_A") for name in plan.modules}
    assert not wanted - found, f"not trained: {sorted(wanted - found)[0]} and {len(wanted - found) - 1} more"
    assert not found - wanted, f"trained but not planned: {sorted(found - wanted)[0]}"
    size = sum(trainable.values())
    assert size == plan.parameters, f"{size} trainable parameters, planned {plan.parameters}"


def _layer_path(name: str) -> str:
    """`….layers.3.mlp.x.lora_A.default.weight` -> `layers.3.mlp.x`; other names stay whole."""
    match = re.search(r"(layers\.\d+\..+?)\.lora_[AB]\b", name)
    return match.group(1) if match and "visual" not in name else name
