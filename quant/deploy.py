"""`make deploy`: put the run's NVFP4 checkpoint where the server looks; back at once if it is not healthy."""

import shlex
import time
from pathlib import Path
from typing import Any

from core import artifacts, config, errors, verdicts
from core.errors import UserError
from core.settings import DeploySettings, ServerSettings
from core.verdicts import Verdict
from quant.deploying import handover, health, preflight, staging, swap
from quant.deploying.handover import Server
from quant.deploying.journal import BEFORE, DONE, Entry, Facts, Journal
from quant.deploying.swap import Place


def main(words: list[str]) -> int:
    """Deploy the run's NVFP4 checkpoint; exit code 1 where its verdict or the server's health forbids it.

    What an earlier command left half done is brought to its end first. Raises UserError before anything is
    touched on a checkpoint that cannot replace the one served.
    """
    settings = config.parse(DeploySettings, words)
    server = Server.of(settings)
    if settings.profile.embedded:
        settings.deploy_dir.parent.mkdir(parents=True, exist_ok=True)
    with swap.hold(settings.deploy_dir) as served:
        journal = Journal(served)
        handover.carry_on(journal, server)
        journal.sweep()
        refuse_own(served, settings)
        manifest = artifacts.require(settings.nvfp4_dir, "quantize")
        if is_served(served, manifest):
            print(f"deploy: up to date ({served}: {journal.serving or BEFORE})")
            return errors.DONE
        verdict = verdicts.read(settings.out_dir, "nvfp4", settings.nvfp4_dir)
        if not verdict.passes and not settings.force:
            print(f"deploy: {settings.nvfp4_dir} is not deployed: {verdict}; FORCE=1 deploys it all the same")
            return errors.NEGATIVE
        try:
            start(served, settings)
            check(served, settings, manifest)
            entry = stage(journal, settings.nvfp4_dir, manifest, verdict)
        except BaseException:
            journal.sweep()
            raise
        handover.carry_on(journal, server)
        return report(served, entry, settings)


def refuse_own(served: Path, settings: DeploySettings) -> None:
    """UserError where DEPLOY_DIR is one of the checkpoints that the run's own stages read."""
    for own in (settings.base_dir, settings.production_dir, settings.merged_dir, settings.nvfp4_dir):
        if served == own.resolve():
            raise UserError(f"{served}: the stages build on it; {swap.IS}: serve a copy of it")


def is_served(served: Path, manifest: dict[str, Any]) -> bool:
    """Whether the payload of a manifest stands at `served`; UserError where it stands there damaged."""
    current = artifacts.read_manifest(served)
    if current is None or artifacts.digest(current) != artifacts.digest(manifest):
        return False
    if not artifacts.complete(served, current):
        raise UserError(f"{served}: files are missing or cut short: make rollback, then make deploy")
    return True


def start(served: Path, settings: DeploySettings) -> None:
    """Where nothing is served yet: put an embedded profile's production there, as if it had been.

    UserError for another profile.
    """
    if served.is_dir():
        return
    if not settings.profile.embedded:
        raise swap.missing(served)
    manifest = artifacts.require(settings.production_dir, "base")
    preflight.require_complete(settings.production_dir, manifest, "base")
    preflight.require_space(served, manifest)
    partial = swap.beside(served, swap.PARTIAL)
    staging.copy(settings.production_dir, partial, manifest)
    partial.rename(served)
    print(f"deploy: {served} was not there yet: it starts as {settings.production_dir}")


def check(served: Path, settings: DeploySettings, manifest: dict[str, Any]) -> None:
    """UserError where the checkpoint cannot take the place of `served`, or SERVER is no address.

    With FORCE, what differs from production is printed instead, and the server's health decides.
    """
    new = settings.nvfp4_dir
    preflight.require_complete(new, manifest, "quantize")
    preflight.require_files(new, settings.profile.mtp_prefix)
    for reference in (served, settings.production_dir):
        found = preflight.difference(new, reference)
        if found and not settings.force:
            raise UserError(f"{found}; check PROFILE and DEPLOY_DIR, or let the server decide: FORCE=1")
        if found:
            print(f"deploy: forced although {found}")
    preflight.require_space(served, manifest)
    if settings.server:
        health.require_address(settings.server)


def stage(journal: Journal, new: Path, manifest: dict[str, Any], verdict: Verdict) -> Entry:
    """Copy the checkpoint beside the served one, and open the journal's entry that brings it in."""
    served = journal.served
    partial, now = swap.beside(served, swap.PARTIAL), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    staging.copy(new, partial, manifest)
    entry = Entry(
        command="deploy",
        time=now,
        incoming=Place(partial.name, partial.stat().st_ino),
        outgoing=swap.new_backup(served),
        brings=Facts(
            run=manifest["run"],
            payload=artifacts.digest(manifest),
            verdict=str(verdict),
            forced=not verdict.passes,
            deployed=now,
        ),
        replaces=journal.serving,
    )
    journal.begin(entry)
    return entry


def report(served: Path, entry: Entry, settings: ServerSettings) -> int:
    """Say what came of a deploy or rollback, and the way back; its exit code."""
    command = entry.command
    if entry.state != DONE:
        print(f"{command}: undone, {served} is again {entry.replaces or BEFORE}: {entry.fault}")
        return errors.NEGATIVE
    backup = served.with_name(entry.outgoing.name)
    size = preflight.megabytes(preflight.tree_bytes(backup))
    print(f"{command}: {served} is now {entry.brings or BEFORE}")
    print(f"{command}: what was served is kept as {backup} ({size})")
    onwards = "to go back" if command == "deploy" else "to go forward again"
    print(f"{command}: {onwards}: {rollback_command(settings)}")
    return errors.DONE


def rollback_command(settings: ServerSettings) -> str:
    """The command that brings back what was served before."""
    given = {
        "PROFILE": settings.profile.name,
        "DEPLOY_DIR": str(settings.deploy_dir),
        "SERVER": settings.server,
    }
    return "make rollback " + " ".join(
        f"{name}={shlex.quote(value)}" for name, value in given.items() if value
    )


if __name__ == "__main__":
    errors.run(main)
