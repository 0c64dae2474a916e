"""`make inspect`: what a checkpoint holds, what vLLM would refuse of it, and how it differs from another.

Reads headers and single scales, so that 72 GB take seconds; AGAINST reads what both have.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import config, errors, shards
from core.errors import UserError
from core.settings import InspectSettings
from quant.inspecting import compare, refusals, scales
from quant.inspecting.fault import Fault
from quant.inspecting.ignored import Ignored
from quant.inspecting.modules import Module, family, group
from quant.inspecting.scales import Values

HEADER = ("family", "scheme", "modules", "MB", "dtypes", "weight_global_scale")


@dataclass(frozen=True)
class Checkpoint:
    """A directory as far as its headers tell."""

    path: Path
    config: Mapping[str, Any]
    modules: Mapping[str, Module]
    values: Values


def main(words: list[str]) -> int:
    """Print what CHECKPOINT holds, or its differences from AGAINST; exit code 1 where vLLM would refuse it.

    UserError on a directory that is no readable checkpoint.
    """
    settings = config.parse(InspectSettings, words)
    if not settings.checkpoint:
        raise UserError(f"CHECKPOINT is blank: make inspect CHECKPOINT={settings.production_dir}")
    checkpoint = read(Path(settings.checkpoint).expanduser())
    found = refusals.find(checkpoint.path, checkpoint.config, checkpoint.modules, checkpoint.values)
    print("\n".join(describe(checkpoint)))
    if settings.against:
        other = read(Path(settings.against).expanduser())
        print("\n".join(differences(checkpoint, other)))
    for fault in found:
        print(fault)
    if not found:
        print("vLLM: nothing found that it would refuse")
    return errors.NEGATIVE if found else errors.DONE


def faults(path: Path) -> list[Fault]:
    """What vLLM would refuse of the checkpoint at `path`, or serve with wrong values."""
    checkpoint = read(path)
    return refusals.find(path, checkpoint.config, checkpoint.modules, checkpoint.values)


def read(path: Path) -> Checkpoint:
    """The checkpoint at `path`; UserError where it is none, or damaged."""
    if not path.is_dir():
        raise UserError(f"{path}: no such directory; name a checkpoint's, as models/<RUN>/nvfp4")
    modules = group(shards.read_checkpoint(path))
    try:
        settings: Any = json.loads((path / "config.json").read_text(encoding="utf-8"))
        assert isinstance(settings, dict)
    except (FileNotFoundError, ValueError, AssertionError):
        raise UserError(
            f"{path / 'config.json'}: missing or broken; fetch or make the checkpoint again"
        ) from None
    return Checkpoint(path, settings, modules, scales.read(modules))


def describe(checkpoint: Checkpoint) -> list[str]:
    """The lines on one checkpoint: families, sums by scheme, MTP, ignore list."""
    modules = checkpoint.modules.values()
    tensors = sum(len(module.tensors) for module in modules)
    files = len({info.file for module in modules for info in module.tensors.values()})
    kind = checkpoint.config.get("model_type", "unknown model_type")
    lines = [f"{checkpoint.path}: {kind}, {_mb(modules)} MB, {tensors} tensors in {files} files", ""]
    rows = _rows(checkpoint)
    lines += table([HEADER, *rows])
    lines += ["", *_sums(modules), _mtp(checkpoint), _ignore_list(checkpoint)]
    return lines


def differences(checkpoint: Checkpoint, other: Checkpoint) -> list[str]:
    """The lines on what sets a checkpoint apart from another; of what is identical the sum alone."""
    rows = compare.families(checkpoint.modules, other.modules)
    same = [row for row in rows if row[1] == compare.IDENTICAL]
    apart = [
        (f, what, f"{count:,}", f"{size / 1e6:,.2f}")
        for f, what, count, size in rows
        if what != compare.IDENTICAL
    ]
    lines = ["", f"against {other.path}:"]
    lines += table([("family", "is", "modules", "MB"), *apart]) if apart else []
    count, size = sum(row[2] for row in same), sum(row[3] for row in same)
    lines.append(f"identical: {count:,} modules, {size / 1e6:,.2f} MB")
    lines += [
        *compare.settings(checkpoint.config, other.config),
        *compare.files(checkpoint.path, other.path),
        "",
    ]
    return lines


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows in columns as wide as their widest cell, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [
        all(cell.replace(".", "").replace(",", "").isdigit() for cell in c[1:])
        for c in zip(*rows, strict=True)
    ]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def _rows(checkpoint: Checkpoint) -> list[tuple[str, ...]]:
    """One row for each family and scheme in it, in the order of the names."""
    shared = scales.shared(checkpoint.modules, checkpoint.values)
    found: dict[tuple[str, str], list[Module]] = defaultdict(list)
    for module in checkpoint.modules.values():
        found[family(module.name), module.scheme].append(module)
    return [
        (
            name,
            scheme,
            f"{len(modules):,}",
            _mb(modules),
            " ".join(sorted({dtype for module in modules for dtype in module.dtypes})),
            shared.get(name, "") if scheme.startswith("NVFP4") else "",
        )
        for (name, scheme), modules in found.items()
    ]


def _sums(modules: Any) -> list[str]:
    found: dict[str, list[Module]] = defaultdict(list)
    for module in modules:
        found[module.scheme].append(module)
    largest = sorted(found.items(), key=lambda item: -sum(module.size for module in item[1]))
    return [f"{scheme}: {len(members):,} modules, {_mb(members)} MB" for scheme, members in largest]


def _mtp(checkpoint: Checkpoint) -> str:
    declared = checkpoint.config.get("text_config", checkpoint.config).get("mtp_num_hidden_layers") or 0
    found = [module for module in checkpoint.modules.values() if module.name.startswith("mtp.")]
    layers = f"{declared} layer{'s' * (declared != 1)} declared"
    if not found:
        return f"MTP: {layers}, no tensors" if declared else "MTP: none"
    schemes = " ".join(sorted({module.scheme for module in found}))
    ignored = Ignored(checkpoint.config.get("quantization_config") or {})
    listed = sum(module.name in ignored for module in found)
    where = f", {listed} of {len(found)} modules on the ignore list" if ignored.config else ""
    return f"MTP: {layers}, {len(found)} modules in {schemes}, {_mb(found)} MB{where}"


def _ignore_list(checkpoint: Checkpoint) -> str:
    ignored = Ignored(checkpoint.config.get("quantization_config") or {})
    if not ignored.config:
        return "ignore list: none, not quantised"
    listed = sum(name in ignored for name in checkpoint.modules)
    return (
        f"ignore list: {len(ignored.names)} names and {len(ignored.patterns)} patterns,"
        f" which {listed} modules of the checkpoint match"
    )


def _mb(modules: Any) -> str:
    return f"{sum(module.size for module in modules) / 1e6:,.2f}"


if __name__ == "__main__":
    errors.run(main)
