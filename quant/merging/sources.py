"""Which base, adapter and target a merge works on, and how it knows them again."""

import hashlib
from pathlib import Path
from typing import Any

from core import artifacts
from core.errors import UserError
from core.settings import MergeSettings
from quant.merging.plan import OTHER_BASE

Inputs = dict[str, dict[str, str]]


def places(settings: MergeSettings) -> tuple[Path, Path, Path]:
    """Base, adapter and target: the run's, or those that BASE, ADAPTER and MERGED name, all three together.

    UserError where only some are named, where the target is no place for a checkpoint.
    """
    named = {name: getattr(settings, name.lower()) for name in ("BASE", "ADAPTER", "MERGED")}
    if not any(named.values()):
        return settings.base_dir, settings.out_dir / "adapter", settings.merged_dir
    missing = [name for name, value in named.items() if not value]
    if missing:
        raise UserError(
            f"{missing[0]} is blank: to merge an adapter of your own name BASE, ADAPTER and MERGED"
        )
    base, adapter, target = (Path(value).expanduser() for value in named.values())
    for what, path in (("BASE", base), ("ADAPTER", adapter)):
        if not path.is_dir():
            raise UserError(f"{what}={path}: no such directory")
        if (
            target.resolve() in (path.resolve(), *path.resolve().parents)
            or path.resolve() in target.resolve().parents
        ):
            raise UserError(
                f"MERGED={target}: would overwrite or lie inside {what}={path}; name a new directory"
            )
    if target.exists() and not (target / artifacts.MANIFEST).exists():
        raise UserError(f"MERGED={target}: exists and was not made by a merge; name a new directory")
    return base, adapter, target


def inputs(settings: MergeSettings) -> Inputs:
    """The digests of adapter and base for the merged checkpoint's manifest.

    With CHECK_BASE both are read and compared with their manifests. UserError where the run's are missing,
    where the adapter was trained on another base, and where a file is not what its manifest says.
    """
    base_dir, adapter_dir, _ = places(settings)
    base, adapter = artifacts.read_manifest(base_dir), artifacts.read_manifest(adapter_dir)
    if not settings.base:
        base = artifacts.require(base_dir, "base")
        adapter = artifacts.require(adapter_dir, "train")
    if settings.check_base:
        for path, manifest in ((base_dir, base), (adapter_dir, adapter)):
            _check(path, manifest)
    found = {"adapter": _as_input(adapter_dir, adapter), "base": _as_input(base_dir, base)}
    trained_on = (adapter or {"inputs": {}})["inputs"].get("base", found["base"])
    if base and trained_on["sha256"] != found["base"]["sha256"]:
        raise UserError(
            f"{adapter_dir}: trained on another base than {base_dir} is today; {OTHER_BASE}:"
            " check PROFILE and RUN, or make train RETRAIN=1"
        )
    return found


def _as_input(path: Path, manifest: dict[str, Any] | None) -> dict[str, str]:
    """By the manifest; without one, files are known by size and modification time."""
    if manifest:
        return artifacts.as_input(path, manifest)
    seen = hashlib.sha256()
    for name, file in artifacts.payload(path).items():
        stat = file.stat()
        seen.update(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return {"path": str(path), "sha256": seen.hexdigest()}


def _check(path: Path, manifest: dict[str, Any] | None) -> None:
    """Read every file and compare its digest with the manifest's."""
    if manifest is None:
        raise UserError(
            f"{path}: no manifest to check it against; CHECK_BASE needs what make base or train made"
        )
    for name, entry in manifest["files"].items():
        if artifacts.file_sha256(path / name) != entry["sha256"]:
            raise UserError(
                f"{path / name}: not the bytes that its manifest names: damaged, fetch or make it again"
            )
