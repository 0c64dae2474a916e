"""What a recipe quantises of a BF16 checkpoint: every Linear but those on its ignore list."""

import re
from collections.abc import Iterator, Mapping, Sequence

from core.errors import UserError
from core.profile import Profile
from core.shards import TensorInfo
from quant.dequantize import GROUP
from quant.merging.ops import Op
from quant.quantising.touched import fused_with


def linears(tensors: Mapping[str, TensorInfo], profile: Profile) -> Iterator[tuple[str, TensorInfo]]:
    """The modules that are quantised, a stack of experts as one, with the tensors of their weights."""
    assert profile.quant is not None
    for name, info in tensors.items():
        module = name.removesuffix(".weight")
        stack = len(info.shape) == 3 and module.rpartition(".")[0].endswith(".experts")
        matrix = len(info.shape) == 2 and name.endswith(".weight")
        mtp = profile.mtp_prefix and name.startswith(profile.mtp_prefix)
        if (stack or matrix) and not mtp and not ignored(module, profile.quant.ignore):
            yield module, info


def ignored(module: str, ignore: Sequence[str]) -> bool:
    """Whether compressed-tensors leaves the module out: by its name, or where `re:` matches its beginning."""
    return any(re.match(e[3:], module) if e.startswith("re:") else e == module for e in ignore)


def check_widths(tensors: Mapping[str, TensorInfo], profile: Profile) -> None:
    """UserError naming the first matrix whose rows cannot be cut into groups of 16."""
    for module, info in linears(tensors, profile):
        if info.shape[-1] % GROUP:
            raise UserError(
                f"{info.file}: {module} has {info.shape[-1]} columns, NVFP4 needs a multiple of {GROUP}:"
                " put it on the ignore list, `quant` in the profile"
            )


def tuned(ops: Sequence[Op], tensors: Mapping[str, TensorInfo], profile: Profile) -> list[str]:
    """The modules of touched groups that KEEP_TUNED keeps in BF16: all that are quantised, experts apart."""
    assert profile.quant is not None
    quantised = {module for module, _ in linears(tensors, profile) if ".experts." not in f"{module}."}
    touched = {op.name.removesuffix(".weight") for op in ops} & quantised
    return sorted({name for module in touched for name in fused_with(module, profile.quant)} & quantised)
