"""`make deployments`: what was deployed when, what is served now, which backups there are."""

import shlex
import shutil
from pathlib import Path

from core import config, errors
from core.settings import DeploymentsSettings
from quant.deploying import handover, preflight, swap
from quant.deploying.handover import Server
from quant.deploying.health import Measured
from quant.deploying.journal import BEFORE, DONE, Entry, Journal


def main(words: list[str]) -> int:
    """Print the history of DEPLOY_DIR, after bringing to its end what was interrupted; exit code 0."""
    settings = config.parse(DeploymentsSettings, words)
    with swap.hold(settings.deploy_dir) as served:
        journal = Journal(served)
        handover.carry_on(journal, Server.of(settings))
        journal.sweep()
        if not served.is_dir():
            raise swap.missing(served)
        for entry in journal.entries:
            print(line(entry))
        print(f"served now, at {served}: {_served(journal)}")
        _print_backups(served, {e.outgoing.name: e for e in journal.entries if e.state == DONE})
    return errors.DONE


def line(entry: Entry) -> str:
    """One deploy or rollback: when, what, how long the server was down, its health."""
    healthy = str(Measured(**entry.health)) if entry.health else "health not checked"
    came = f"undone: {entry.fault}" if entry.state != DONE else healthy
    what = entry.brings.what if entry.brings else BEFORE
    return (
        f"{entry.time}  {entry.command:<8}  {what}; down {entry.down_seconds or 0:.1f} s, of which swapping"
        f" {entry.swap_seconds or 0:.3f}; {came}"
    )


def _served(journal: Journal) -> str:
    if journal.last and not swap.stands(journal.served, journal.last.incoming):
        return "put there by hand since the last entry"
    return str(journal.serving or BEFORE)


def _print_backups(served: Path, kept: dict[str, Entry]) -> None:
    found = swap.backups(served)
    sizes = [preflight.tree_bytes(path) for path in found]
    for path, size in zip(found, sizes, strict=True):
        what = (kept[path.name].replaces or BEFORE) if path.name in kept else "not made by a deploy"
        print(f"backup {path.name}, {preflight.megabytes(size)}: {what}")
    if found:
        free = preflight.megabytes(shutil.disk_usage(served.parent).free)
        print(
            f"backups take {preflight.megabytes(sum(sizes))}, {free} are free; none is ever removed for you:"
            f" rm -r {shlex.quote(str(found[0]))}"
        )


if __name__ == "__main__":
    errors.run(main)
