"""Exchange the served directory with another beside it; a kill at any instant costs nothing.

Beside `<served>` may stand `.bak` (what it was before), `.partial` (a copy under way; never looked
at without a journal), `.swap` (the journal) and `.aside` (see `exchange`). The journal is the commit:
it names the directory that is to be served by its inode, which follows it through every rename. From
then on `finish` knows from the disk alone what is left to do; the command that wrote the journal and
any later one go the same way.
"""

import contextlib
import ctypes
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from core import artifacts
from core.errors import UserError

BACKUP, PARTIAL, JOURNAL, ASIDE = ".bak", ".partial", ".swap", ".aside"
SOURCES = {"deploy": PARTIAL, "rollback": BACKUP}
"""Command -> where the directory stands that it brings in."""

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # fcntl.h, linux/fs.h
UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)

IS = "DEPLOY_DIR is the directory that your server serves"


def beside(served: Path, suffix: str) -> Path:
    """`/srv/model` and `.bak` -> `/srv/model.bak`."""
    return served.with_name(served.name + suffix)


@contextlib.contextmanager
def hold(deploy_dir: Path) -> Iterator[Path]:
    """Hold DEPLOY_DIR, links resolved, against other processes; leave no stray beside it.

    UserError where its parent does not exist, where it cannot be renamed, or while it is held.
    """
    served = deploy_dir.resolve()
    if os.path.ismount(served):
        raise _mounted(served)
    if not served.parent.is_dir():
        raise missing(served)
    with artifacts.locked(served.parent):
        _clear(served)
        try:
            yield served
        except BaseException:
            _clear(served)
            raise


def missing(served: Path) -> UserError:
    """What to say where DEPLOY_DIR is not there."""
    return UserError(
        f"{served}: no such directory; {IS}: first copy or download production's checkpoint there"
    )


def swap(served: Path, command: str) -> None:
    """Exchange `served` with the source of `command`; after a deploy what was served is the backup.

    The source is complete and durable by now. Raises what the disk raises; when nothing was moved
    yet, it is as if the command had never run.
    """
    source, journal = beside(served, SOURCES[command]), beside(served, JOURNAL)
    incoming = source.stat().st_ino
    artifacts.write_atomically(journal, json.dumps({"command": command, "incoming": incoming}) + "\n")
    try:
        sync(served.parent)
        finish(served)
    except BaseException:
        if served.exists() and _is(source, incoming):
            journal.unlink()
        raise


def finish(served: Path) -> str | None:
    """Do what the journal beside `served` still asks for; the command that it finished, if any.

    The backup before goes only when the exchange is done and durable; the journal goes last.
    """
    journal = beside(served, JOURNAL)
    if not journal.exists():
        return None
    facts = json.loads(journal.read_text(encoding="utf-8"))
    source, backup = beside(served, SOURCES[facts["command"]]), beside(served, BACKUP)
    if beside(served, ASIDE).exists():
        _rotate(served, source)
    if not _is(served, facts["incoming"]):
        if not _is(source, facts["incoming"]):
            raise UserError(
                f"{journal}: {served} and {source} were replaced since it was written;"
                f" put the one to serve at {served} and remove the journal"
            )
        exchange(served, source)
    sync(served.parent)
    if source != backup and source.exists():
        if backup.exists():
            shutil.rmtree(backup)
        source.rename(backup)
        sync(served.parent)
    journal.unlink()
    return facts["command"]


def exchange(one: Path, other: Path) -> None:
    """Give two directories of one parent each other's names.

    At once where kernel and file system can (Linux's renameat2, RENAME_EXCHANGE); else by three
    renames, between which `one` is missing for an instant and `finish` knows how to go on.
    """
    try:
        rename_exchange(one, other)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise _mounted(one) from None
        if error.errno not in UNSUPPORTED:
            raise
        _rotate(one, other)


def rename_exchange(one: Path, other: Path) -> None:
    """renameat2(2) with RENAME_EXCHANGE; OSError with ENOSYS where the C library has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one))
    if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(one))


def sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _rotate(one: Path, other: Path) -> None:
    """The exchange by three renames, from wherever it was left."""
    aside = beside(one, ASIDE)
    if not aside.exists():
        one.rename(aside)
    if not one.exists():
        try:
            other.rename(one)
        except BaseException:
            aside.rename(one)
            raise
    aside.rename(other)


def _is(path: Path, inode: int) -> bool:
    return path.exists() and path.stat().st_ino == inode


def _clear(served: Path) -> None:
    """Remove what a command left that never came to its journal."""
    if not beside(served, JOURNAL).exists():
        beside(served, JOURNAL + ".tmp").unlink(missing_ok=True)
        if beside(served, PARTIAL).exists():
            shutil.rmtree(beside(served, PARTIAL))


def _mounted(served: Path) -> UserError:
    return UserError(
        f"{served}: a mount point, which cannot be exchanged; point DEPLOY_DIR at a directory below it, or at"
        " what is mounted there"
    )
