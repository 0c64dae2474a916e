"""Write a merged shard: the base's bytes by the kernel, the adapted rows computed, all of it hashed once.

Layout of the output = layout of the input. Memory: a block of rows and the parts of one operation a worker.
The page cache holds two windows a worker: finished ones are flushed and dropped, on both sides, so that a
host whose GPU shares the memory is not flooded.
"""

import ctypes
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from core.shards import TensorInfo
from quant import formulas, lora
from quant.ops import Op
from quant.weights import Region

if TYPE_CHECKING:
    import torch

WINDOW = 16 << 20  # bytes flushed and dropped together; a reflink needs aligned ranges
READ = 1 << 20  # bytes hashed at once: they stay in the processor's cache
TRAIN_AGAIN = "train the adapter again, at a lower learning rate"
BLOCK = 1 << 18  # elements of W merged at once; the C library keeps a few blocks more for each worker
SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)  # Linux; not in Python's os
WAIT_BEFORE, WRITE, WAIT_AFTER = 1, 2, 4

Progress = Callable[[int], None]
"""Called with the number of bytes that were written since the last call."""


@dataclass
class Change:
    """What an operation did, as sums over the rows that one shard holds."""

    weight: float = 0.0
    """Sum of the squares of W."""
    added: float = 0.0
    """Sum of the squares of what was added, before the sum was rounded."""
    changed: bool = False
    """Whether any byte differs."""


@dataclass
class Written:
    """A shard that is on disk."""

    sha256: str
    changes: dict[str, Change] = field(default_factory=dict)
    """By `Op.name`."""


def write_shard(source: Path, target: Path, ops: Sequence[Op], progress: Progress) -> Written:
    """Write `source` to `target`, the same but for the regions of `ops` that lie in it; synced.

    UserError on a change that is not finite, and where the source ends early.
    """
    regions = [(region, op) for op in ops for region in op.regions if region.at.file == source]
    regions.sort(key=lambda found: found[0].at.start)
    last = {op.name: region for region, op in regions}
    loaded: dict[str, formulas.Parts] = {}
    with _Copy(source, target, progress) as copy:
        position = 0
        for region, op in regions:
            copy.through(position, region.at.start)
            if op.name not in loaded:
                loaded[op.name] = {part: lora.load(info) for part, info in op.parts.items()}
            _merge(op, loaded[op.name], region, copy)
            if last[op.name] is region:
                del loaded[op.name]
            position = region.at.stop
        copy.through(position, copy.size)
    return copy.written


def _merge(op: Op, parts: formulas.Parts, region: Region, copy: "_Copy") -> None:
    change = copy.written.changes.setdefault(op.name, Change())
    for start, rows in _blocks(op, region):
        original = copy.read(rows.start, rows.stop)
        raw = bytearray(original)
        weight = lora.as_tensor(rows, raw)
        change.weight += _square(weight)
        added = _square(formulas.merge_rows(op, parts, weight, region, start))
        if not math.isfinite(added) or not weight.isfinite().all():
            file = next(iter(op.parts.values())).file
            raise UserError(f"{file}: the change of {op.name} is not finite: {TRAIN_AGAIN}")
        change.added += added
        change.changed |= raw != original
        copy.write(rows.start, raw)


def _blocks(op: Op, region: Region) -> Iterator[tuple[int, TensorInfo]]:
    """A region cut into blocks of rows; the first row of each and where it lies."""
    at = region.at
    count = at.shape[0]
    step = max(1, BLOCK // math.prod(at.shape[1:])) if formulas.row_by_row(op) else count
    size = (at.stop - at.start) // count
    for start in range(0, count, step):
        rows = min(step, count - start)
        first = at.start + start * size
        yield start, replace(at, shape=(rows, *at.shape[1:]), start=first, stop=first + rows * size)


def _square(tensor: "torch.Tensor") -> float:
    import torch

    return torch.linalg.vector_norm(tensor, dtype=torch.float32).item() ** 2


class _Copy:
    """One shard on its way: positions only grow."""

    def __init__(self, source: Path, target: Path, progress: Progress) -> None:
        self.source, self.target, self.progress = source, target, progress
        self.size = source.stat().st_size
        self.written = Written("")
        self._hash = hashlib.sha256()
        self._buffer = memoryview(bytearray(READ))
        self._window = self._flushing = 0  # where the open window starts, and the one being flushed

    def __enter__(self) -> "_Copy":
        self._in = os.open(self.source, os.O_RDONLY)
        self._out = os.open(self.target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            os.fchmod(self._out, 0o644)
            os.fsync(self._out)
            _drop(self._in, 0, self.size)
            _drop(self._out, 0, self.size)
            self.progress(self.size - self._window)
            self.written.sha256 = self._hash.hexdigest()
        os.close(self._in)
        os.close(self._out)

    def through(self, start: int, stop: int) -> None:
        """Copy the bytes `[start, stop)` and hash them; inside the kernel where it can."""
        while start < stop:
            end = min(stop, start - start % WINDOW + WINDOW)
            self._hash_range(start, end)
            while start < end:
                start += self._copy_some(start, end)
            self._passed(end)

    def read(self, start: int, stop: int) -> bytes:
        """The source's bytes `[start, stop)`."""
        found = os.pread(self._in, stop - start, start)
        while len(found) < stop - start:
            more = os.pread(self._in, stop - start - len(found), start + len(found))
            if not more:
                raise self._ended(start + len(found))
            found += more
        return found

    def write(self, start: int, raw: bytearray) -> None:
        """Write and hash what takes the place of the source's bytes."""
        self._hash.update(raw)
        view = memoryview(raw)
        while view:
            done = os.pwrite(self._out, view, start)
            view, start = view[done:], start + done
        self._passed(start)

    def _hash_range(self, start: int, stop: int) -> None:
        while start < stop:
            count = os.preadv(self._in, [self._buffer[: min(READ, stop - start)]], start)
            if not count:
                raise self._ended(start)
            self._hash.update(self._buffer[:count])
            start += count

    def _copy_some(self, start: int, stop: int) -> int:
        try:
            return os.copy_file_range(self._in, self._out, stop - start, start, start) or self._by_hand(
                start, stop
            )
        except (AttributeError, OSError):  # not on macOS, nor between some file systems
            return self._by_hand(start, stop)

    def _by_hand(self, start: int, stop: int) -> int:
        data = os.pread(self._in, min(READ, stop - start), start)
        if not data:
            raise self._ended(start)
        return os.pwrite(self._out, data, start)

    def _passed(self, position: int) -> None:
        """Start flushing the window that ends here, and drop the one before it."""
        if position - self._window < WINDOW:
            return
        _flush(self._out, self._window, position, WRITE)
        if self._window > self._flushing:
            _flush(self._out, self._flushing, self._window, WAIT_BEFORE | WRITE | WAIT_AFTER)
            _drop(self._out, self._flushing, self._window)
            _drop(self._in, self._flushing, self._window)
        self.progress(position - self._window)
        self._flushing, self._window = self._window, position

    def _ended(self, at: int) -> UserError:
        return UserError(f"{self.source}: ended at byte {at} of {self.size}: fetch or make it again")


def _flush(fd: int, start: int, stop: int, flags: int) -> None:
    """sync_file_range(2) where there is one; elsewhere the file's fsync at its end does all."""
    if SYNC_FILE_RANGE:
        SYNC_FILE_RANGE(fd, ctypes.c_int64(start), ctypes.c_int64(stop - start), flags)


def _drop(fd: int, start: int, stop: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, start, stop - start, os.POSIX_FADV_DONTNEED)
