"""Write a shard piece by piece: bytes copied by the kernel or computed, all of it hashed once.

Memory: what one computed piece yields at a time. The page cache holds two windows a worker: finished ones are
flushed and dropped, on both sides, so that a host whose GPU shares the memory is not flooded.
"""

import ctypes
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from core.shards import TensorInfo

WINDOW = 16 << 20  # bytes flushed and dropped together; a reflink needs aligned ranges
READ = 1 << 20  # bytes hashed at once: they stay in the processor's cache
SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)  # Linux; not in Python's os
WAIT_BEFORE, WRITE, WAIT_AFTER = 1, 2, 4

Passed = Callable[[int], None]
"""Called with the number of bytes that were written since the last call."""
Made = Callable[[], Iterator[bytes | bytearray]]
"""Yields the bytes of a computed piece, block by block."""


@dataclass(frozen=True)
class Piece:
    """Bytes of a shard: `[start, stop)` of `file`, or what is `made` of them."""

    file: Path
    start: int
    stop: int
    made: Made | None = None


def patched(source: Path, patches: Mapping[TensorInfo, Piece]) -> list[Piece]:
    """The pieces of `source` with others of the same size in the place of some of its tensors or rows."""
    pieces, position = [], 0
    for at in sorted(patches, key=lambda at: at.start):
        pieces += [Piece(source, position, at.start), patches[at]]
        position = at.stop
    return [*pieces, Piece(source, position, source.stat().st_size)]


def write_shard(target: Path, pieces: Iterable[Piece], passed: Passed) -> str:
    """Write `pieces` one after the other, synced; sha256 of the file. UserError where a source ends early."""
    with _Shard(target, passed) as shard:
        for piece in pieces:
            if piece.made is None:
                shard.copy(piece)
            else:
                for raw in piece.made():
                    shard.write(raw)
                shard.drop(piece)
    return shard.sha256


class _Shard:
    """One shard on its way: positions only grow."""

    def __init__(self, target: Path, passed: Passed) -> None:
        self.target, self._tell = target, passed
        self.sha256 = ""
        self._at = 0
        self._in: dict[Path, int] = {}
        self._hash = hashlib.sha256()
        self._buffer = memoryview(bytearray(READ))
        self._window = self._flushing = 0  # where the open window starts, and the one being flushed

    def __enter__(self) -> "_Shard":
        self._out = os.open(self.target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            os.fchmod(self._out, 0o644)
            os.fsync(self._out)
            _drop(self._out, 0, self._at)
            self._tell(self._at - self._window)
            self.sha256 = self._hash.hexdigest()
        for handle in (self._out, *self._in.values()):
            os.close(handle)

    def copy(self, piece: Piece) -> None:
        """Copy and hash the piece; inside the kernel where it can."""
        source, start = self._opened(piece.file), piece.start
        while start < piece.stop:
            end = min(piece.stop, start + WINDOW - self._at % WINDOW)
            self._hash_range(piece, source, start, end)
            window = start
            while start < end:
                copied = self._copy_some(source, start, end)
                start, self._at = start + copied, self._at + copied
            _drop(source, window, end)
            self._passed()

    def write(self, raw: bytes | bytearray) -> None:
        """Write and hash computed bytes."""
        self._hash.update(raw)
        view = memoryview(raw)
        while view:
            done = os.pwrite(self._out, view, self._at)
            view, self._at = view[done:], self._at + done
        self._passed()

    def drop(self, piece: Piece) -> None:
        """Let the page cache forget what a piece was made of."""
        _drop(self._opened(piece.file), piece.start, piece.stop)

    def _opened(self, file: Path) -> int:
        if file not in self._in:
            self._in[file] = os.open(file, os.O_RDONLY)
        return self._in[file]

    def _hash_range(self, piece: Piece, source: int, start: int, stop: int) -> None:
        while start < stop:
            count = os.preadv(source, [self._buffer[: min(READ, stop - start)]], start)
            if not count:
                raise ended(piece.file, start)
            self._hash.update(self._buffer[:count])
            start += count

    def _copy_some(self, source: int, start: int, stop: int) -> int:
        try:
            copied = os.copy_file_range(source, self._out, stop - start, start, self._at)
        except (AttributeError, OSError):  # not on macOS, nor between some file systems
            copied = 0
        return copied or self._by_hand(source, start, stop)

    def _by_hand(self, source: int, start: int, stop: int) -> int:
        data = os.pread(source, min(READ, stop - start), start)
        assert data, "hashed a moment ago"
        return os.pwrite(self._out, data, self._at)

    def _passed(self) -> None:
        """Start flushing the window that ends here, and drop the one before it."""
        if self._at - self._window < WINDOW:
            return
        _flush(self._out, self._window, self._at, WRITE)
        if self._window > self._flushing:
            _flush(self._out, self._flushing, self._window, WAIT_BEFORE | WRITE | WAIT_AFTER)
            _drop(self._out, self._flushing, self._window)
        self._tell(self._at - self._window)
        self._flushing, self._window = self._window, self._at


def ended(file: Path, at: int) -> UserError:
    """The error of a file that is shorter than its header said."""
    return UserError(f"{file}: ended at byte {at}: fetch or make it again")


def _flush(fd: int, start: int, stop: int, flags: int) -> None:
    """sync_file_range(2) where there is one; elsewhere the file's fsync at its end does all."""
    if SYNC_FILE_RANGE:
        SYNC_FILE_RANGE(fd, ctypes.c_int64(start), ctypes.c_int64(stop - start), flags)


def _drop(fd: int, start: int, stop: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, start, stop - start, os.POSIX_FADV_DONTNEED)
