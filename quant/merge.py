"""Adapter + base checkpoint -> merged checkpoint: the base's bytes but for the tensors adapted."""

import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from core import artifacts, config, errors, shards
from core.errors import UserError
from core.progress import Progress
from core.settings import MergeSettings
from core.shards import TensorInfo
from quant import lora
from quant.lora import MergeOp

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 26  # bytes a system call


def main(words: list[str]) -> int:
    """Merge the run's adapter into its base: plan, validate, stream, verify; exit code 0.

    Raises UserError before a byte is written on a missing or damaged input and on an adapter that
    is not a plain LoRA of this base; after, on a delta that is not finite or too small to be kept.
    """
    settings = config.parse(MergeSettings, words)
    profile, target = settings.profile, settings.merged_dir
    base = artifacts.require(settings.base_dir, "base")
    adapter_dir = settings.out_dir / "adapter"
    adapter = artifacts.require(adapter_dir, "train")
    inputs = {
        "adapter": artifacts.as_input(adapter_dir, adapter),
        "base": artifacts.as_input(settings.base_dir, base),
    }
    trained_on = adapter["inputs"].get("base", inputs["base"])
    if trained_on["sha256"] != inputs["base"]["sha256"]:
        raise UserError(
            f"{adapter_dir}: trained on another base than {settings.base_dir} is today;"
            f" {lora.OTHER_BASE}, or make train RETRAIN=1"
        )
    recorded = config.recorded(settings)
    if not artifacts.differences(artifacts.read_manifest(target), recorded, inputs):
        print(f"merge: up to date ({target})")
        return errors.DONE

    start = time.monotonic()
    tensors = shards.read_checkpoint(settings.base_dir)
    ops = lora.plan(adapter_dir, tensors)
    size = sum(entry["bytes"] for entry in base["files"].values())
    with artifacts.create(
        target,
        kind="checkpoint",
        profile=profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        require_space(draft.path, size)
        copy_other_files(settings.base_dir, draft.path)
        changes = stream(settings.base_dir, draft.path, ops)
        kept = tuple(prefix for prefix in (profile.mtp_prefix, profile.vision_prefix) if prefix)
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


def require_space(directory: Path, needed: int) -> None:
    """UserError where the disk of `directory` has not `needed` bytes free."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise UserError(
            f"{directory}: {free / 1e6:,.0f} MB free, the checkpoint takes"
            f" {needed / 1e6:,.0f}: free some, or point MODELS_DIR elsewhere"
        )


def copy_other_files(base: Path, target: Path) -> None:
    """Copy config, tokenizer and index: all but the manifest, hidden files and weights.

    Hidden is what a download tool leaves (`.cache/`). A safetensors file outside the index would
    bring unmerged weights along.
    """
    for name, file in artifacts.payload(base).items():
        hidden = any(part.startswith(".") for part in Path(name).parts)
        if not hidden and file.suffix != ".safetensors":
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / name)
            (target / name).chmod(0o644)


def stream(base: Path, target: Path, ops: Sequence[MergeOp]) -> dict[str, float]:
    """Write every shard of `base` to `target`, the same but for the tensors of `ops`.

    Holds one pair of adapter matrices and one piece of a tensor in memory. Returns ||D|| / ||W|| by
    tensor name, D as it is before the sum is rounded. UserError on a delta that is not finite.
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
    """Write W + D to where W lies in its shard, and return ||D|| / ||W||."""
    a, b = lora.load(op.a), lora.load(op.b)
    weight_square = delta_square = 0.0
    for expert, piece in enumerate(op.pieces):
        raw = bytearray(shards.read_bytes(piece))
        weight, delta = lora.as_tensor(piece, raw), lora.delta(op, a, b, expert)
        weight_square += _norm(weight) ** 2
        delta_square += _norm(delta) ** 2
        if delta.count_nonzero():  # adding +0 would turn a weight of -0 into +0
            weight += delta  # in place, as PEFT does: the sum with an fp32 delta is rounded once
        out.seek(piece.start)
        out.write(raw)
    change = math.sqrt(delta_square / (weight_square or 1.0))
    if not math.isfinite(change):
        raise UserError(
            f"{op.b.file}: the delta of {op.base.name} is not finite:"
            " make train RETRAIN=1, at a lower LEARNING_RATE"
        )
    return change


def copy_range(source: IO[bytes], out: IO[bytes], start: int, stop: int) -> None:
    """Copy the bytes `[start, stop)` to the same place in `out`, inside the kernel where it can."""
    while start < stop:
        count = min(CHUNK, stop - start)
        try:
            copied = os.copy_file_range(source.fileno(), out.fileno(), count, start, start)
        except (AttributeError, OSError):  # not on macOS, nor between some file systems
            copied = os.pwrite(out.fileno(), os.pread(source.fileno(), count, start), start)
        if not copied:
            raise UserError(f"{source.name}: ended at byte {start} of {stop}: make base merge")
        start += copied


def verify(
    base: Mapping[str, TensorInfo],
    merged: Mapping[str, TensorInfo],
    changes: Mapping[str, float],
    kept: tuple[str, ...],
) -> None:
    """Check a finished merge by reading it.

    Names, dtypes, shapes and byte ranges equal the base's. A tensor with a delta differs from the
    base's; UserError where rounding lost all of it. Tensors under the prefixes `kept` (MTP, vision)
    without a delta equal the base's. The others were copied range by range and are not read again.
    """
    assert _layout(merged) == _layout(base), "the merged checkpoint is laid out anew"
    for name, info in base.items():
        if changes.get(name) and same_bytes(info, merged[name]):
            raise UserError(
                f"{name}: its delta, {changes[name]:.1g} of the weight, is lost in rounding to"
                f" {info.dtype}: make train RETRAIN=1, at a higher LEARNING_RATE"
            )
        if name not in changes and name.startswith(kept):
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


def _norm(tensor: "torch.Tensor") -> float:
    import torch

    return torch.linalg.vector_norm(tensor.float()).item()


def _layout(tensors: Mapping[str, TensorInfo]) -> dict[str, tuple[Any, ...]]:
    return {t.name: (t.file.name, t.dtype, t.shape, t.start, t.stop) for t in tensors.values()}


if __name__ == "__main__":
    errors.run(main)
