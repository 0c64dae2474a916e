"""`make rollback`: serve again what was served before; once more goes forward again."""

import time

from core import artifacts, config, errors, shards
from core.errors import UserError
from core.settings import RollbackSettings
from quant.deploy import report
from quant.deploying import handover, health, preflight, swap
from quant.deploying.handover import Server
from quant.deploying.journal import Entry, Journal
from quant.deploying.swap import Place


def main(words: list[str]) -> int:
    """Serve the last backup, and keep what was served as one; not a byte of either changes.

    Of a deploy that was interrupted the checkpoint before it is served again; a rollback that was
    interrupted is finished. Exit code 1 where the server is not healthy with the backup: all is as it was
    then. Raises UserError where there is no backup, or it is not a whole checkpoint.
    """
    settings = config.parse(RollbackSettings, words)
    server = Server.of(settings)
    with swap.hold(settings.deploy_dir) as served:
        journal = Journal(served)
        if journal.open and journal.open.command == "deploy":
            handover.turn_back(journal, server, "make rollback, after the deploy was interrupted")
            print(f"rollback: the interrupted deploy is undone, {served} is as it was before")
            return errors.DONE
        entry = handover.carry_on(journal, server)
        if entry is None:
            journal.sweep()
            if settings.server:
                health.require_address(settings.server)
            entry = begin(journal)
            handover.carry_on(journal, server)
        return report(served, entry, settings)


def begin(journal: Journal) -> Entry:
    """Open the entry that brings the last backup back."""
    served, last = journal.served, journal.last
    if not served.is_dir():
        raise swap.missing(served)
    if last is None:
        raise UserError(f"{served}: no backup to go back to; the first make deploy leaves one")
    backup = served.with_name(last.outgoing.name)
    if not backup.is_dir():
        raise UserError(f"{backup}: the backup to go back to is gone; make deployments lists those there are")
    shards.read_checkpoint(backup)
    manifest = artifacts.read_manifest(backup)
    if manifest:
        preflight.require_complete(backup, manifest, "deploy")
    preflight.require_readable(backup)
    entry = Entry(
        command="rollback",
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        incoming=Place(backup.name, backup.stat().st_ino),
        outgoing=swap.new_backup(served),
        brings=last.replaces,
        replaces=last.brings,
    )
    journal.begin(entry)
    return entry


if __name__ == "__main__":
    errors.run(main)
