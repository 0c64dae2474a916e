"""Adapter + base checkpoint -> merged checkpoint: the base's bytes but for the tensors adapted."""

import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core import artifacts, config, errors, shards
from core.artifacts import Draft
from core.errors import UserError
from core.progress import Progress
from core.settings import MergeSettings
from core.shards import TensorInfo
from quant import lora, parity
from quant.merging import plan, rows, sources
from quant.merging.ops import Op
from quant.merging.stream import Passed, Piece, patched, write_shard
from quant.merging.weights import Region

WORKERS = 3
"""Shards written at once, the largest first; more would only add memory."""
SAMPLE = 4096  # bytes


@dataclass
class Change:
    """What an operation did, as sums over the rows that one shard holds."""

    weight: float = 0.0
    """Sum of the squares of W."""
    added: float = 0.0
    """Sum of the squares of what was added, before the sum was rounded."""
    changed: bool = False
    """Whether any byte differs."""


def main(words: list[str]) -> int:
    """Merge an adapter into its base: plan, validate, stream, verify; exit code 0.

    The run's own, or those that BASE, ADAPTER and MERGED name. Raises UserError before a byte is written
    on a missing or damaged input and on an adapter that does not fit the base; after, leaving nothing, on
    a change that is not finite or too small to be kept, and on a family of layers whose output differs
    from that with the adapter active.
    """
    settings = config.parse(MergeSettings, words)
    base_dir, adapter_dir, target = sources.places(settings)
    inputs = sources.inputs(settings)
    recorded = config.recorded(settings)
    if not artifacts.differences(artifacts.read_manifest(target), recorded, inputs):
        print(f"merge: up to date ({target})")
        return errors.DONE

    start = time.monotonic()
    base = shards.read_checkpoint(base_dir)
    adapter = lora.read(adapter_dir)
    ops = plan.make(adapter, base)
    lora.check_finite(adapter)
    size = sum(file.stat().st_size for file in shards.shard_files(base_dir))
    with artifacts.create(
        target,
        kind="checkpoint",
        profile=settings.profile.name if not settings.base else "none",
        run=settings.run if not settings.base else "none",
        settings=recorded,
        inputs=inputs,
        resume=True,
    ) as draft:
        changes = write(base_dir, base, ops, draft)
        draft.counts["parity"] = parity.check(base_dir, adapter_dir, draft.path)
    low, high = min(changes.values()), max(changes.values())
    print(
        f"merge: {len(ops)} tensors merged, relative change {low:.2g} to {high:.2g},"
        f" {time.monotonic() - start:.1f} s, {size / 1e6:,.0f} MB in {target}"
    )
    return errors.DONE


def write(
    base_dir: Path, base: Mapping[str, TensorInfo], ops: Sequence[Op], draft: Draft
) -> dict[str, float]:
    """Write and verify the merged checkpoint into `draft`; ||D|| / ||W|| by parameter.

    Goes on from the shards that an interrupted merge finished. D is the change before it is rounded.
    """
    files = [file for file in shards.shard_files(base_dir) if file.name not in draft.finished]
    require_space(draft.path, sum(file.stat().st_size for file in files))
    if draft.finished:
        print(f"merge: going on, {len(draft.finished)} shards are finished")
    copy_other_files(base_dir, draft.path)
    stream("merge", files, lambda file, passed: _write(file, ops, draft, passed), draft)
    sums = _sums(draft)
    verify(base, shards.read_checkpoint(draft.path), ops)
    changes = {op.name: _relative(op, sums[op.name]) for op in ops}
    touched = {region.at.name for op in ops for region in op.regions}
    draft.counts |= {
        "tensors": len(base),
        "merged": len(ops),
        "copied": len(base) - len(touched),
        "relative_change": {
            "min": min(changes.values()),
            "mean": sum(changes.values()) / len(changes),
            "max": max(changes.values()),
        },
    }
    return changes


class Stopped(Exception):
    """Ends the other workers when one has failed or the user has interrupted."""


Write = Callable[[Path, Passed], tuple[str, dict[str, Any]]]
"""Writes what becomes of one shard; its sha256, and notes for the journal."""


def stream(what: str, files: Sequence[Path], write: Write, draft: Draft) -> None:
    """Write the shards `files`, several at a time, each recorded as finished once it is on disk."""
    total = sum(file.stat().st_size for file in files)
    progress = Progress(f"{what}: MB", round(total / 1e6))
    lock, stopped, start, done = threading.Lock(), threading.Event(), time.monotonic(), 0

    def passed(count: int) -> None:
        nonlocal done
        with lock:
            if stopped.is_set():
                raise Stopped
            before, done = round(done / 1e6), done + count
            rate = done / 1e9 / max(time.monotonic() - start, 1e-9)
            progress.step(round(done / 1e6) - before, note=f"{rate:.2f} GB/s")

    def one(file: Path) -> None:
        sha256, notes = write(file, passed)
        with lock:
            draft.finish(file.name, sha256, **notes)

    largest_first = sorted(files, key=lambda file: file.stat().st_size, reverse=True)
    with workers() as pool:
        try:
            for job in [pool.submit(one, file) for file in largest_first]:
                job.result()
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise
    progress.close()


def _write(file: Path, ops: Sequence[Op], draft: Draft, passed: Passed) -> tuple[str, dict[str, Any]]:
    """The shard `file` of the base with the regions of `ops` that lie in it merged."""
    changes: dict[str, Change] = {}
    loaded = rows.Loaded()

    def merged(op: Op, region: Region) -> Iterator[bytearray]:
        change = changes.setdefault(op.name, Change())
        for block in rows.merge(op, loaded.of(op), region):
            change.weight += rows.square(block.before())
            change.added += rows.square(block.added)
            change.changed |= block.merged != block.original
            yield block.merged

    patches = {
        region.at: Piece(file, region.at.start, region.at.stop, partial(merged, op, region))
        for op in ops
        for region in op.regions
        if region.at.file == file
    }
    sha256 = write_shard(draft.path / file.name, patched(file, patches), passed)
    return sha256, {"changes": {name: asdict(change) for name, change in changes.items()}}


@contextmanager
def workers() -> Iterator[ThreadPoolExecutor]:
    """A pool of WORKERS threads, torch's products on one thread in each."""
    with one_thread_each(), ThreadPoolExecutor(WORKERS) as pool:
        yield pool


@contextmanager
def one_thread_each() -> Iterator[None]:
    """torch's products on one thread: the work is many small ones, or the workers are many."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _sums(draft: Draft) -> dict[str, Change]:
    """The changes of all shards, added up in the order of their names: the same on every machine."""
    sums: dict[str, Change] = {}
    for _, entry in sorted(draft.finished.items()):
        for name, change in entry["changes"].items():
            whole = sums.setdefault(name, Change())
            whole.weight += change["weight"]
            whole.added += change["added"]
            whole.changed |= change["changed"]
    return sums


def _relative(op: Op, change: Change) -> float:
    relative = math.sqrt(change.added / (change.weight or 1.0))
    # DoRA's magnitudes start as 16-bit norms: a module that did not train changes by less than rounding.
    if relative and not change.changed and "magnitude" not in op.parts:
        raise UserError(
            f"{op.name}: its change, {relative:.1g} of the weight, is lost in rounding to"
            f" {op.regions[0].at.dtype}: train it again, at a higher learning rate"
        )
    return relative


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


def verify(base: Mapping[str, TensorInfo], merged: Mapping[str, TensorInfo], ops: Sequence[Op]) -> None:
    """Check a finished merge by reading it: its headers, and pages of every tensor without a change.

    Names, dtypes, shapes and byte ranges equal the base's; an unchanged tensor begins, goes on in the
    middle and ends with the base's bytes. What the changed ones hold is for `parity` to see.
    """
    assert _layout(merged) == _layout(base), "the merged checkpoint is laid out anew"
    touched = {region.at.name for op in ops for region in op.regions}
    for name in base.keys() - touched:
        assert sampled(base[name]) == sampled(merged[name]), f"{name} is not the base's"


def sampled(info: TensorInfo) -> list[bytes]:
    """Where a tensor begins, goes on in the middle and ends: enough to tell it from another."""
    middle, last = (info.start + info.stop) // 2, max(info.start, info.stop - SAMPLE)
    with info.file.open("rb") as file:
        return [os.pread(file.fileno(), min(SAMPLE, info.stop - at), at) for at in (info.start, middle, last)]


def same_bytes(one: TensorInfo, other: TensorInfo) -> bool:
    """Whether two tensors of equal size hold the same bytes."""
    with one.file.open("rb") as left, other.file.open("rb") as right:
        left.seek(one.start)
        right.seek(other.start)
        for start in range(one.start, one.stop, 1 << 26):
            count = min(1 << 26, one.stop - start)
            if left.read(count) != right.read(count):
                return False
    return True


def _layout(tensors: Mapping[str, TensorInfo]) -> dict[str, tuple[Any, ...]]:
    return {t.name: (t.file.name, t.dtype, t.shape, t.start, t.stop) for t in tensors.values()}


if __name__ == "__main__":
    errors.run(main)
