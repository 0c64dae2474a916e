"""What a run trains, read off the base's own tensors before any weight is loaded."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.errors import UserError
from core.profile import Profile
from core.settings import TrainSettings
from core.shards import TensorInfo, match_names

EXPERTS = "experts"


@dataclass(frozen=True)
class Family:
    """A line of the plan's table."""

    name: str
    layers: int
    modules: int
    parameters: int


@dataclass(frozen=True)
class Plan:
    modules: tuple[str, ...]
    """Names of the linear layers that receive an adapter, as in the checkpoint."""
    target_parameters: tuple[str, ...]
    """Names of the stacked experts that do, as PEFT's `target_parameters` takes them; mostly none."""
    parameters: int
    """Trainable parameters."""
    share: float
    """Trainable parameters over the checkpoint's."""
    pattern: str
    """Regular expression that matches exactly these modules in the loaded model (target_modules)."""
    families: tuple[Family, ...]
    sizes: Mapping[str, int]
    """Trainable parameters by module path from `layers.` on; stacked experts of a layer together."""


def of(settings: TrainSettings, tensors: Mapping[str, TensorInfo]) -> Plan:
    """The plan of a run; UserError as `make_plan`."""
    return make_plan(
        settings.profile,
        tensors,
        settings.lora_rank,
        experts=settings.lora_experts,
        layers=settings.lora_layers,
        dropout=settings.lora_dropout,
    )


def make_plan(
    profile: Profile,
    tensors: Mapping[str, TensorInfo],
    rank: int,
    *,
    experts: bool = False,
    layers: str = "",
    dropout: float = 0.0,
) -> Plan:
    """The plan for a base with these tensors.

    A linear layer [out, in] costs r * (in + out) parameters; stacked experts [E, out, in] cost
    r * E * (in + out), for PEFT gives each expert the whole rank (peft, tuners/lora/layer.py, ParamWrapper).
    `layers` is LORA_LAYERS. UserError where a target is not among the tensors, where the pattern would match
    anything but the targets, and for experts with dropout, which PEFT cannot do.
    """
    prefix, sizes, families = profile.layers_prefix, defaultdict[str, int](int), []
    chosen = choose_layers(layers, _layers_of(tensors, prefix))
    modules, stacked = [], []
    for family in profile.lora.targets:
        names = [
            name
            for path in profile.families[family]
            for name in _found(match_names(tensors, prefix, path), profile, f"{path}.weight")
            if _layer(name, prefix) in chosen
        ]
        found = {name: rank * sum(tensors[name].shape) for name in names}
        modules += [name.removesuffix(".weight") for name in names]
        families.append(_family(family, found, prefix))
        for name, size in found.items():
            sizes[_from_layers(name.removesuffix(".weight"), prefix)] += size
    if experts:
        _check_experts(profile, dropout)
        names = [
            name
            for path in profile.experts
            for name in _found(_stacked(tensors, prefix, path), profile, path)
            if _layer(name, prefix) in chosen
        ]
        found = {name: rank * tensors[name].shape[0] * sum(tensors[name].shape[1:]) for name in names}
        stacked = [_from_layers(name, prefix) for name in names]
        families.append(_family(EXPERTS, found, prefix))
        for name, size in found.items():
            sizes[_from_layers(name, prefix).rsplit(".", 1)[0]] += size
    if not modules:
        raise UserError(f"LORA_LAYERS={layers}: none of these layers has a module that the profile trains")
    plan = Plan(
        modules=tuple(sorted(modules)),
        target_parameters=tuple(stacked),
        parameters=sum(sizes.values()),
        share=sum(sizes.values()) / sum(math.prod(info.shape) for info in tensors.values()),
        pattern=_pattern(profile, chosen),
        families=tuple(families),
        sizes=dict(sizes),
    )
    _check_pattern(plan, tensors)
    return plan


def choose_layers(text: str, there: Iterable[int]) -> set[int]:
    """The layers that LORA_LAYERS names: `last 8`, or numbers and ranges as `0-3 20`; all where blank.

    UserError where it cannot be read, or names a layer that is not `there`.
    """
    numbers = sorted(there)
    if not text:
        return set(numbers)
    chosen: set[int] = set()
    if last := re.fullmatch(r"last (\d+)", text):
        chosen = set(numbers[len(numbers) - min(int(last[1]), len(numbers)) :])
    else:
        for word in text.split():
            bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
            if not bounds:
                raise UserError(f"LORA_LAYERS={text}: expected `last 8`, or numbers and ranges as `0-3 20`")
            chosen |= set(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
    if not chosen or chosen - set(numbers):
        raise UserError(f"LORA_LAYERS={text}: the base has the layers {numbers[0]}-{numbers[-1]}")
    return chosen


def table(plan: Plan, rank: int) -> str:
    """The plan for the user: a line a family with its layers, modules and parameters."""
    lines = [f"{f'adapter, rank {rank}':<20}{'layers':>8}{'modules':>9}{'parameters':>15}"]
    for family in plan.families:
        lines.append(f"  {family.name:<18}{family.layers:>8}{family.modules:>9}{family.parameters:>15,}")
    count = len(plan.modules) + len(plan.target_parameters)
    lines.append(f"  {'together':<26}{count:>9}{plan.parameters:>15,}  {plan.share:.2%} of the base")
    return "\n".join(lines)


def check_trained(trainable: Mapping[str, int], plan: Plan) -> None:
    """Compare a prepared model with the plan.

    `trainable` maps the names of the parameters that require gradients to their sizes. Raises
    AssertionError naming the first module that differs: silently training too little (or the router, or
    the vision tower) is the costliest mistake there is.
    """
    found = defaultdict[str, int](int)
    for name, size in trainable.items():
        found[_layer_path(name)] += size
    missing, odd = plan.sizes.keys() - found.keys(), found.keys() - plan.sizes.keys()
    assert not missing, f"not trained: {sorted(missing)[0]} and {len(missing) - 1} more"
    assert not odd, f"trained but not planned: {sorted(odd)[0]}"
    for path, size in plan.sizes.items():
        assert found[path] == size, f"{path} has {found[path]} trainable parameters, planned {size}"


def _layer_path(name: str) -> str:
    """`….layers.3.mlp.x.lora_A.default.weight` -> `layers.3.mlp.x`; other names stay whole.

    PEFT nests the second of two parameters of one module under `base_layer`.
    """
    match = re.search(r"\b(layers\.\d+\..+?)(?:\.base_layer)?\.lora_[AB]\b", name)
    return match.group(1) if match and "visual" not in name and "mtp." not in name else name


def _pattern(profile: Profile, chosen: set[int]) -> str:
    layers = "|".join(map(str, sorted(chosen)))
    paths = "|".join(re.escape(path) for path in profile.target_paths)
    return rf"(.*\.)?{re.escape(profile.layers_prefix)}\.({layers})\.({paths})"


def _check_pattern(plan: Plan, tensors: Mapping[str, TensorInfo]) -> None:
    names = (name.removesuffix(".weight") for name in tensors)
    odd = {name for name in names if re.fullmatch(plan.pattern, name)} ^ set(plan.modules)
    if odd:
        raise UserError(f"the targets would also match {min(odd)}: correct `families` in the profile")


def _check_experts(profile: Profile, dropout: float) -> None:
    if not profile.experts:
        raise UserError(f"LORA_EXPERTS=1: PROFILE={profile.name} names no stacked experts")
    if dropout:
        raise UserError(f"LORA_EXPERTS=1 needs LORA_DROPOUT=0 (it is {dropout}): PEFT drops nothing there")


def _found(names: list[str], profile: Profile, path: str) -> list[str]:
    if not names:
        raise UserError(
            f"PROFILE={profile.name}: no tensor {profile.layers_prefix}.N.{path} in the base: make verify"
        )
    return names


def _stacked(tensors: Mapping[str, TensorInfo], prefix: str, path: str) -> list[str]:
    pattern = re.compile(rf"{re.escape(prefix)}\.\d+\.{re.escape(path)}")
    return sorted(name for name, info in tensors.items() if pattern.fullmatch(name) and len(info.shape) == 3)


def _family(name: str, found: Mapping[str, int], prefix: str) -> Family:
    return Family(name, len({_layer(n, prefix) for n in found}), len(found), sum(found.values()))


def _layers_of(tensors: Mapping[str, TensorInfo], prefix: str) -> set[int]:
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.")
    return {int(match[1]) for name in tensors if (match := pattern.match(name))}


def _layer(name: str, prefix: str) -> int:
    return int(name.removeprefix(prefix + ".").split(".", 1)[0])


def _from_layers(name: str, prefix: str) -> str:
    """`model.language_model.layers.3.x` -> `layers.3.x`."""
    return f"{prefix.rsplit('.', 1)[-1]}.{name.removeprefix(prefix + '.')}"
