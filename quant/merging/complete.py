"""Whether an adapter holds all that its configuration promises: PEFT itself only warns of missing tensors."""

import re
from collections.abc import Iterable, Iterator, Mapping

from core.errors import UserError
from core.shards import TensorInfo
from quant.lora import CONFIG, WEIGHTS, Adapter
from quant.merging.weights import ONE_EXPERT, spellings, stacks


def check(adapter: Adapter, trained: Iterable[str], base: Mapping[str, TensorInfo]) -> None:
    """Compare the parameters `trained`, by the base's names, with those that the configuration targets.

    UserError where a target is trained in some layers and lacks others, and where one is not trained at
    all although the base has it. Parts of the model without any trained parameter are left out: the
    text-only class has no vision tower, no class has the MTP head.
    """
    config, trained = adapter.config, set(trained)
    if config.get("exclude_modules") or config.get("layers_to_transform") is not None:
        return
    parts, families = {_part(name) for name in trained}, {_family(name) for name in trained}
    one_by_one = any(ONE_EXPERT.fullmatch(name.removesuffix(".weight")) for name in trained)
    known = [name for name in _parameters(base, one_by_one) if _part(name) in parts]
    modules, parameters = config.get("target_modules") or [], config.get("target_parameters") or []
    single = [modules] if isinstance(modules, str) else list(modules)
    for target, promised in [*((m, _by_module) for m in single), *((p, _by_parameter) for p in parameters)]:
        pattern = target if isinstance(modules, str) and promised is _by_module else _ending(target)
        wanted = [name for name in known if promised(pattern, name)]
        if wanted and trained.isdisjoint(wanted):
            raise _missing(adapter, target, wanted)
        lacking = [name for name in wanted if name not in trained and _family(name) in families]
        if lacking:
            raise _missing(adapter, target, lacking)


def _missing(adapter: Adapter, target: str, names: list[str]) -> UserError:
    more = f" and {len(names) - 1} more" if names[1:] else ""
    return UserError(
        f"{adapter.path / WEIGHTS}: nothing for {names[0]}{more}, which {CONFIG} targets by {target!r}:"
        " the file is incomplete, save the adapter again"
    )


def _by_module(pattern: str, name: str) -> bool:
    module, _, leaf = name.rpartition(".")
    return leaf == "weight" and any(re.fullmatch(pattern, spelt) for spelt in spellings(module))


def _by_parameter(pattern: str, name: str) -> bool:
    return any(re.fullmatch(pattern, spelt) for spelt in spellings(name))


def _ending(target: str) -> str:
    return rf"(.*\.)?{re.escape(target)}"


def _parameters(base: Mapping[str, TensorInfo], one_by_one: bool) -> Iterator[str]:
    """Matrices and stacks as the model in memory holds them: experts one by one only where trained so."""
    for name, info in base.items():
        if len(info.shape) in (2, 3) and (
            one_by_one or not ONE_EXPERT.fullmatch(name.removesuffix(".weight"))
        ):
            yield name
    yield from stacks(base)


def _part(name: str) -> str:
    return "mtp" if name.startswith("mtp.") else "vision" if ".visual." in name else "text"


def _family(name: str) -> str:
    return re.sub(r"\.\d+(?=\.)", ".N", name)
