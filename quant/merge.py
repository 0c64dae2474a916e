"""Adapter + base checkpoint -> merged checkpoint, byte for byte the base but for the tensors it changes."""

import math
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from core import artifacts, config, errors, shards
from core.errors import UserError
from core.progress import Progress
from core.settings import MergeSettings
from core.shards import TensorInfo
from quant import lora
from quant.lora import MergeOp

CHUNK = 1 << 26


def main(words: list[str]) -> int:
    """Merge the run's adapter into its base: plan, validate, stream, verify."""
    settings = config.parse(MergeSettings, words)
    adapter_dir, target = settings.out_dir / "adapter", settings.merged_dir
    base = base_manifest(settings)
    inputs = {
        "adapter": artifacts.as_input(adapter_dir, artifacts.require(adapter_dir, "train")),
        "base": artifacts.as_input(settings.base_dir, base),
    }
    recorded = config.recorded(settings)
    reasons = artifacts.differences(artifacts.read_manifest(target), recorded, inputs)
    if not reasons:
        print(f"merge: up to date ({target})")
        return errors.DONE
    print(f"merge: {target}: {'; '.join(reasons)}")

    start = time.monotonic()
    size = sum(entry["bytes"] for entry in base["files"].values())
    tensors = shards.read_checkpoint(settings.base_dir)
    ops = lora.plan(adapter_dir, tensors)
    with artifacts.create(
        target,
        kind="checkpoint",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        require_space(draft.path, size)
        copy_other_files(settings.base_dir, draft.path)
        changes = stream(settings.base_dir, draft.path, ops)
        kept = tuple(p for p in (settings.profile.mtp_prefix, settings.profile.vision_prefix) if p)
        verify(tensors, shards.read_checkpoint(draft.path), changes, kept)
        low, high = min(changes.values()), max(changes.values())
        mean = sum(changes.values()) / len(changes)
        draft.counts = {
            "tensors": len(tensors),
            "merged": len(ops),
            "copied": len(tensors) - len(ops),
            "relative_change": {"min": low, "mean": mean, "max": high},
        }
    print(
        f"merge: {len(ops)} modules merged, relative change {low:.2g} to {high:.2g},"
        f" {time.monotonic() - start:.1f} s, {size / 1e6:,.0f} MB in {target}"
    )
    return errors.DONE


def base_manifest(settings: MergeSettings) -> dict[str, Any]:
    """The manifest of the base: its own where we made it, else the one kept beside a download.

    A download is hashed when first seen, and later only where its files changed.
    """
    profile = settings.profile
    if profile.embedded:
        return artifacts.require(settings.base_dir, "base")
    if not settings.base_dir.is_dir():
        raise UserError(f"{settings.base_dir} is not there yet: make base")
    recorded = settings.models_dir / ".manifests" / f"{profile.base_name}.json"
    return artifacts.record(settings.base_dir, recorded, kind="checkpoint", profile=profile.name)


def require_space(directory: Path, needed: int) -> None:
    """UserError where the disk of `directory` has not `needed` bytes free."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise UserError(
            f"{directory.parent}: the merged checkpoint needs {needed / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are"
            " free: free some, or point MODELS_DIR elsewhere"
        )


def copy_other_files(base: Path, target: Path) -> None:
    """Copy config, tokenizer and index: all but the manifest, hidden files and weights.

    Hidden is what a download tool leaves (`.cache/`); safetensors files outside the index would bring the
    unmerged weights along.
    """
    for name, file in artifacts.payload(base).items():
        if file.suffix == ".safetensors" or any(part.startswith(".") for part in Path(name).parts):
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target / name)
        (target / name).chmod(0o644)


def stream(base: Path, target: Path, ops: list[MergeOp]) -> dict[str, float]:
    """Write every shard of `base` to `target`, the same but for the tensors of `ops`.

    Holds one pair of adapter matrices and one piece of a tensor in memory. Returns ||D|| / ||W|| (D before
    its sum with W is rounded) by tensor name. Raises UserError on a delta that is not finite.
    """
    files = shards.shard_files(base)
    progress = Progress("merge: shards", len(files))
    changes: dict[str, float] = {}
    for file in files:
        own = sorted((op for op in ops if op.base.file == file), key=lambda op: op.base.start)
        with file.open("rb") as source, (target / file.name).open("wb") as out:
            position = 0
            for op in own:
                copy_range(source, out, position, op.base.start)
                changes[op.base.name] = write_merged(op, out)
                position = op.base.stop
            copy_range(source, out, position, file.stat().st_size)
        (target / file.name).chmod(0o644)
        progress.step(note=file.name)
    progress.close()
    return changes


def write_merged(op: MergeOp, out: IO[bytes]) -> float:
    """Write W + D where W lies, and return ||D|| / ||W||."""
    a, b = lora.load(op.a), lora.load(op.b)
    weight_square = delta_square = 0.0
    for expert, piece in enumerate(op.pieces):
        raw = bytearray(shards.read_bytes(piece))
        weight, delta = lora.as_tensor(piece, raw), lora.delta(op, a, b, expert)
        weight_square += weight.float().norm().item() ** 2
        delta_square += delta.float().norm().item() ** 2
        if delta.any():  # adding +0 would turn a weight of -0 into +0
            weight += delta  # in place as in PEFT, so that the sum with an fp32 delta is rounded once
        out.seek(piece.start)
        out.write(raw)
    change = math.sqrt(delta_square / (weight_square or 1.0))
    if not math.isfinite(change):
        raise UserError(f"{op.b.file}: the delta of {op.base.name} is not finite: make train RETRAIN=1, at a lower LEARNING_RATE")
    return change


def copy_range(source: IO[bytes], out: IO[bytes], start: int, stop: int) -> None:
    """Copy the bytes `[start, stop)` to the same place in `out`, inside the kernel where it can."""
    out.flush()
    while start < stop:
        count = min(CHUNK, stop - start)
        try:
            copied = os.copy_file_range(source.fileno(), out.fileno(), count, start, start)
        except (AttributeError, OSError):  # not on macOS, nor between some file systems
            copied = 0
        copied = copied or os.pwrite(out.fileno(), os.pread(source.fileno(), count, start), start)
        if not copied:
            raise UserError(f"{source.name}: shorter than a moment ago; run again when nothing writes to it")
        start += copied


def verify(
    base: Mapping[str, TensorInfo],
    merged: Mapping[str, TensorInfo],
    changes: Mapping[str, float],
    kept: tuple[str, ...],
) -> None:
    """Check a finished merge from its files.

    Names, dtypes, shapes and byte ranges equal the base's; a tensor's bytes differ exactly where its delta is
    not zero (UserError where rounding ate all of it); the bytes of tensors under the prefixes `kept` (MTP,
    vision) that no delta touches are compared with the base's. The rest is copied range by range and not read
    again.
    """
    assert _layout(merged) == _layout(base), "the merged checkpoint has another layout than its base"
    for name, info in base.items():
        if name in changes:
            same, change = same_bytes(info, merged[name]), changes[name]
            assert same or change, f"{name} changed although its delta is zero"
            if same and change:
                raise UserError(
                    f"{name}: its delta (relative {change:.1g}) is lost in rounding to {info.dtype}:"
                    " make train RETRAIN=1, for longer or at a higher LEARNING_RATE"
                )
        elif name.startswith(kept):
            assert same_bytes(info, merged[name]), f"{name} is not the base's"


def same_bytes(one: TensorInfo, other: TensorInfo) -> bool:
    """Whether two tensors of equal size hold the same bytes."""
    with one.file.open("rb") as left, other.file.open("rb") as right:
        left.seek(one.start)
        right.seek(other.start)
        for start in range(one.start, one.stop, CHUNK):
            count = min(CHUNK, one.stop - start)
            if left.read(count) != right.read(count):
                return False
    return True


def _layout(tensors: Mapping[str, TensorInfo]) -> dict[str, tuple[Any, ...]]:
    return {t.name: (t.file.name, t.dtype, t.shape, t.start, t.stop) for t in tensors.values()}


if __name__ == "__main__":
    errors.run(main)
