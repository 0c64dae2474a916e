"""What was deployed when, and what is under way: one small file beside the served directory.

Its last entry is open from before the server is stopped until what came of it is known. Every change replaces
the file at once and durably, so a crash leaves either the entry before or the one after; the next command
goes on from it.
"""

import contextlib
import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core import artifacts
from core.errors import UserError
from quant.deploying import swap
from quant.deploying.swap import Place

OPEN, DONE, UNDONE = "open", "done", "undone"
BEFORE = "the checkpoint from before the first deploy"


@dataclass(kw_only=True)
class Facts:
    """What a checkpoint is."""

    run: str
    payload: str
    """sha256 of its files."""
    verdict: str
    forced: bool
    deployed: str
    """When, in UTC."""

    @property
    def what(self) -> str:
        """All but the time."""
        forced = ", forced" if self.forced else ""
        return f"run {self.run}, payload {self.payload[:12]}, verdict {self.verdict}{forced}"

    def __str__(self) -> str:
        return f"{self.what}, deployed {self.deployed}"


@dataclass(kw_only=True)
class Entry:
    """One deploy or rollback."""

    command: str
    time: str
    """When it began, in UTC."""
    incoming: Place
    outgoing: Place
    brings: Facts | None
    """What comes in; None is the checkpoint from before the first deploy, as for the next."""
    replaces: Facts | None
    forward: bool = True
    """Whether the incoming one is to be served; False once it is being undone."""
    started: bool = False
    """Whether the one to be served was started; until then the server may be stopped."""
    stopped: float = 0.0
    """When the server was stopped, in seconds of the epoch."""
    state: str = OPEN
    swap_seconds: float | None = None
    """From the end of STOP_CMD to the start of START_CMD."""
    down_seconds: float | None = None
    """From then until the server had proven healthy, or START_CMD ended where nothing was asked."""
    health: dict[str, Any] | None = None
    """What was measured of the server (`health.Measured`); None where it was not asked."""
    fault: str = ""
    """Why it was undone."""

    @property
    def wanted(self) -> Place:
        """The directory to be served."""
        return self.incoming if self.forward else self.outgoing

    @property
    def other(self) -> Place:
        """The directory that stands beside it."""
        return self.outgoing if self.forward else self.incoming


class Journal:
    """The entries of one served directory, oldest first."""

    def __init__(self, served: Path) -> None:
        self.served, self.path = served, swap.beside(served, swap.JOURNAL)
        self.entries = _read(self.path)

    @property
    def open(self) -> Entry | None:
        """The entry under way."""
        return self.entries[-1] if self.entries and self.entries[-1].state == OPEN else None

    @property
    def last(self) -> Entry | None:
        """The entry that brought in what is served now; None before the first deploy."""
        return next((entry for entry in reversed(self.entries) if entry.state == DONE), None)

    @property
    def serving(self) -> Facts | None:
        """What is served now; None is the checkpoint from before the first deploy."""
        return self.last.brings if self.last else None

    def begin(self, entry: Entry) -> None:
        """Add an entry: the commit, from which the next command goes on after a crash."""
        assert self.open is None
        entry.stopped = time.time()
        self.entries.append(entry)
        try:
            self.save()
        except BaseException:
            self.entries.pop()
            with contextlib.suppress(OSError):  # it may have been replaced, but not been made durable
                self.save()
            raise

    def sweep(self) -> None:
        """Remove a copy that is not to be served: what was left before it came to its entry, or undone."""
        assert not self.open or not self.open.forward
        self.path.with_name(self.path.name + ".tmp").unlink(missing_ok=True)
        partial = swap.beside(self.served, swap.PARTIAL)
        if partial.exists():
            shutil.rmtree(partial)

    def save(self) -> None:
        """Write all entries, durably."""
        text = json.dumps([asdict(entry) for entry in self.entries], indent=1, ensure_ascii=False)
        artifacts.write_atomically(self.path, text + "\n")
        swap.sync(self.path.parent)


def _read(path: Path) -> list[Entry]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return [_entry(**one) for one in found]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError):
        raise UserError(
            f"{path}: damaged; see that the checkpoint to serve stands beside it, start the server, then"
            " move the file away"
        ) from None


def _entry(**fields: Any) -> Entry:
    places = {key: Place(**fields[key]) for key in ("incoming", "outgoing")}
    facts = {key: Facts(**fields[key]) if fields[key] else None for key in ("brings", "replaces")}
    return Entry(**{**fields, **places, **facts})
