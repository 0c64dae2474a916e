"""Two directories change places by renames; a crash at any instant leaves both whole, and says where.

Each is known by its inode, which follows it through every rename: from the disk alone `arrange` sees what is
left to do, after whatever crash and in either direction. Beside the served directory may stand `.partial` (a
copy under way), `.bak-<time>` (what was served before) and the journal (`quant/deploying/journal.py`).
"""

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core import artifacts
from core.errors import UserError

PARTIAL, BACKUP, JOURNAL = ".partial", ".bak-", ".deployments.json"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # fcntl.h, linux/fs.h
UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
IS = "DEPLOY_DIR is the directory that your server serves"


@dataclass(frozen=True)
class Place:
    """A directory, and the name that it has beside the served one while it is not served itself."""

    name: str
    inode: int


def beside(served: Path, suffix: str) -> Path:
    """`/srv/model` and `.partial` -> `/srv/model.partial`."""
    return served.with_name(served.name + suffix)


def backups(served: Path) -> list[Path]:
    """The directories that deploys kept, oldest first."""
    return sorted(path for path in served.parent.glob(f"{served.name}{BACKUP}*") if path.is_dir())


def new_backup(served: Path) -> Place:
    """What is served now, under a name for it that nothing has yet."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name, number = f"{served.name}{BACKUP}{stamp}", 1
    while os.path.lexists(served.with_name(name)):
        number += 1
        name = f"{served.name}{BACKUP}{stamp}-{number}"
    return Place(name, served.stat().st_ino)


@contextlib.contextmanager
def hold(deploy_dir: Path) -> Iterator[Path]:
    """Hold DEPLOY_DIR, links resolved, against other processes.

    UserError where its parent does not exist or cannot be written, where it cannot be renamed, or while
    another process holds it.
    """
    served = deploy_dir.resolve()
    if os.path.ismount(served):
        raise _mounted(served)
    if not served.parent.is_dir():
        raise missing(served)
    if not os.access(served.parent, os.W_OK | os.X_OK):
        raise UserError(f"{served.parent}: cannot be written; check its owner and mode")
    with artifacts.locked(served.parent):
        yield served


def missing(served: Path) -> UserError:
    """What to say where DEPLOY_DIR is not there."""
    return UserError(
        f"{served}: no such directory; {IS}: first copy or download production's checkpoint there"
    )


def arrange(served: Path, wanted: Place, other: Place) -> None:
    """Let `wanted` be served and `other` stand beside it under its name, from wherever they stand now.

    At once where kernel and file system can exchange two names; else by renames between which nothing is
    served for an instant. Durable when it returns. UserError where something else took a place of theirs.
    """
    folder, source = served.parent, find(served, wanted, other)
    if source != served and not (served.exists() and exchange(served, source)):
        if served.exists():
            _rename(served, folder / other.name)
        _rename(source, served)
    out = folder / wanted.name  # where an exchange leaves the other one
    if stands(out, other) and out.name != other.name:
        _rename(out, folder / other.name)
    sync(folder)


def stands(path: Path, place: Place) -> bool:
    """Whether the directory is the one at `path`."""
    return path.is_dir() and path.stat().st_ino == place.inode


def gone(served: Path, place: Place) -> bool:
    """Whether the directory was removed: nothing has its name, and it is not served."""
    return not os.path.lexists(served.with_name(place.name)) and not stands(served, place)


def find(served: Path, wanted: Place, other: Place) -> Path:
    """Where `wanted` stands; UserError where that is none of the places that a crash can have left it at."""
    places = (served, served.with_name(wanted.name), served.with_name(other.name))
    found = next((path for path in places if stands(path, wanted)), None)
    if found is None or (served.exists() and not (stands(served, wanted) or stands(served, other))):
        raise UserError(
            f"{served} and {places[1]} were replaced since the journal was written; put the one to serve at"
            f" {served}, then remove {beside(served, JOURNAL)}"
        )
    return found


def exchange(one: Path, another: Path) -> bool:
    """Give two directories each other's names at once; False where kernel or file system cannot."""
    try:
        rename_exchange(one, another)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise _mounted(one) from None
        if error.errno not in UNSUPPORTED:
            raise
        return False
    return True


def rename_exchange(one: Path, another: Path) -> None:
    """renameat2(2) with RENAME_EXCHANGE; OSError with ENOSYS where the C library has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one))
    if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(another), RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(one))


def sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _rename(path: Path, to: Path) -> None:
    if os.path.lexists(to):
        raise UserError(f"{to}: in the way; move it away, then run the same command again")
    path.rename(to)


def _mounted(served: Path) -> UserError:
    return UserError(
        f"{served}: a mount point, which cannot be exchanged; point DEPLOY_DIR at a directory below it, or at"
        " what is mounted there"
    )
