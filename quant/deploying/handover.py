"""Stop the server, swap, start it, look at its health; and all the way back where it is not healthy.

Every step may be done twice, so after a crash the next command simply goes on (`carry_on`).
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from core import hooks
from core.errors import UserError
from core.profile import Health
from core.settings import ServerSettings
from quant.deploying import health, swap
from quant.deploying.health import Unhealthy
from quant.deploying.journal import DONE, UNDONE, Entry, Journal

NO_COMMAND = ("", "true")
"""What START_CMD says where nothing starts the server for us."""


@dataclass(frozen=True)
class Server:
    """The server of the deployed checkpoint: how to stop and start it, where to ask it."""

    stop_cmd: str
    start_cmd: str
    url: str
    health: Health

    @classmethod
    def of(cls, settings: ServerSettings) -> "Server":
        """The one that the settings name."""
        return cls(settings.stop_cmd, settings.start_cmd, settings.server, settings.profile.health)

    @property
    def unasked(self) -> str:
        """Why its health is not looked at; empty where it is."""
        if self.start_cmd in NO_COMMAND:
            return "START_CMD is blank: restart the server to load it; its health was not checked"
        return "" if self.url else "SERVER is blank: the server's health was not checked"


def carry_on(journal: Journal, server: Server) -> Entry | None:
    """Bring the journal's open entry to its end, whatever instant it was left at; None where there is none.

    The entry returned is done (its incoming checkpoint is served) or undone (the outgoing one is again).
    When anything else than the server's health ends it, a failing disk or STOP_CMD or Ctrl-C before the
    server was started, all is put back and the error goes on. Ctrl-C while the server is asked leaves the
    entry open.
    """
    entry = journal.open
    if entry is None:
        return None
    if entry.forward and swap.gone(journal.served, entry.incoming):
        entry.forward, entry.fault = False, "it was undone on a disk that could not say so"
    swap.find(journal.served, entry.wanted, entry.other)
    if entry.forward:
        try:
            fault = _bring(journal, entry, server)
        except BaseException as error:
            _turn_back(journal, entry, server, str(error) or type(error).__name__)
            raise
        fault = fault or _ask(journal, entry, server)
        if not fault:
            return entry
        print(f"{entry.command}: {fault}; going back", flush=True)
        entry.fault = fault
    _turn_back(journal, entry, server, entry.fault)
    return entry


def turn_back(journal: Journal, server: Server, why: str) -> None:
    """Undo the open entry instead of carrying it on; UserError as `carry_on` where all was replaced."""
    entry = journal.open
    assert entry
    swap.find(journal.served, entry.outgoing, entry.incoming)
    _turn_back(journal, entry, server, why)


def _bring(journal: Journal, entry: Entry, server: Server) -> str:
    """Stop, swap, start, unless that was done before; why the server did not start, if it did not."""
    # A full disk may have turned all back without a word in the journal: so where it stands counts as well.
    if entry.started and swap.stands(journal.served, entry.wanted):
        return ""
    hooks.run("STOP_CMD", server.stop_cmd)
    start = time.monotonic()
    if not server.unasked:
        health.require_silent(server.url)
    _swap(journal.served, entry, start)
    try:
        hooks.run("START_CMD", server.start_cmd)
    except UserError as error:
        return str(error)
    entry.started = True
    journal.save()
    return ""


def _swap(served: Path, entry: Entry, start: float) -> None:
    moves = not swap.stands(served, entry.wanted)
    swap.arrange(served, entry.wanted, entry.other)
    if moves:
        entry.swap_seconds = round(time.monotonic() - start, 4)
        print(f"{entry.command}: {served} swapped in {entry.swap_seconds:.3f} s", flush=True)


def _ask(journal: Journal, entry: Entry, server: Server) -> str:
    """Close the entry as done where the server is healthy or not asked; else why it is not."""
    if server.unasked:
        print(f"{entry.command}: {server.unasked}")
    else:
        try:
            measured = health.check(server.url, server.health, entry.command)
        except Unhealthy as fault:
            return str(fault)
        slower = _slower(journal, measured.tokens_per_second, server.health.slower)
        print(f"{entry.command}: {measured}{slower}")
        entry.health = asdict(measured)
    entry.down_seconds, entry.state = _down(entry), DONE
    journal.save()
    return ""


def _slower(journal: Journal, speed: float, share: float) -> str:
    """What to say of the speed beside that of the last healthy entry; empty where it kept its pace."""
    before = [entry.health["tokens_per_second"] for entry in journal.entries if entry.health]
    if not before or speed >= (1 - share) * before[-1]:
        return ""
    return f"; SLOWER than the last one, {before[-1]:.1f} tokens/s: make rollback if that is not wanted"


def _turn_back(journal: Journal, entry: Entry, server: Server, why: str) -> None:
    """Serve the outgoing one again, whatever else fails; the entry is undone."""
    entry.fault = entry.fault or " ".join(why.split())
    entry.forward = entry.started = False
    with contextlib.suppress(OSError):  # on a full disk: the renames need no space
        journal.save()
    with _telling(entry):
        hooks.run("STOP_CMD", server.stop_cmd)
    with _telling(entry):
        _swap(journal.served, entry, time.monotonic())
    back = swap.stands(journal.served, entry.wanted)
    if back:
        with _telling(entry):
            journal.sweep()  # at once: on a full disk the copy's space is what the journal needs
    if not journal.served.is_dir():  # the disk refused every rename: no server can start on nothing
        return
    with _telling(entry):
        hooks.run("START_CMD", server.start_cmd)
        if not server.unasked:
            print(f"{entry.command}: as before: {health.check(server.url, server.health, entry.command)}")
    entry.down_seconds = _down(entry)
    if back:
        entry.state = UNDONE
        with _telling(entry):
            journal.save()


@contextlib.contextmanager
def _telling(entry: Entry) -> Iterator[None]:
    """Say what fails on the way back, and go on."""
    try:
        yield
    except (UserError, Unhealthy, OSError) as fault:
        print(f"{entry.command}: going back: {fault}", flush=True)


def _down(entry: Entry) -> float:
    return round(time.time() - entry.stopped, 2)
