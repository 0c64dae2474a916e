"""`make deploy`: put the run's NVFP4 checkpoint where the server looks, the old one kept as `.bak`.

The payload is copied, never linked: a hard link would let a later write to MODELS_DIR's file, or a
change of its mode, reach the file that is being served, and cannot cross file systems.
"""

import errno
import json
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

from core import artifacts, config, errors, verdicts
from core.errors import UserError
from core.progress import Progress
from core.settings import DeploySettings, RollbackSettings
from core.verdicts import Verdict
from quant import preflight, swap

DEPLOYED = "deployed"
"""Key of a manifest: verdict, whether forced, when. Only what deploy wrote has it."""


def main(words: list[str]) -> int:
    """Deploy the run's NVFP4 checkpoint; exit code 1 where its verdict does not pass and FORCE is blank.

    Raises UserError before anything is touched on a checkpoint that cannot replace the one served.
    """
    settings = config.parse(DeploySettings, words)
    new = settings.nvfp4_dir
    if settings.profile.embedded:
        settings.deploy_dir.parent.mkdir(parents=True, exist_ok=True)
    with swap.hold(settings.deploy_dir) as served:
        swap.finish(served)
        refuse_own(served, settings)
        manifest = artifacts.require(new, "quantize")
        if is_served(served, manifest):
            print(f"deploy: up to date ({served}: {describe(served)})")
            return errors.DONE
        verdict = verdicts.read(settings.out_dir, "nvfp4", new)
        if not verdict.passes and not settings.force:
            print(f"deploy: {new} is not deployed: {verdict}; FORCE=1 deploys it all the same")
            return errors.NEGATIVE
        start(served, settings)
        check(served, settings, manifest)
        stage(swap.beside(served, swap.PARTIAL), new, manifest, verdict)
        swap.swap(served, "deploy")
        print(f"deploy: {served} is now {describe(served)}")
        print(f"deploy: restart the server to load it; to go back: {rollback_command(settings)}")
    return errors.DONE


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
    preflight.require_space(served.parent, manifest)
    partial = swap.beside(served, swap.PARTIAL)
    copy(settings.production_dir, partial, manifest)
    partial.rename(served)
    print(f"deploy: {served} was not there yet: it starts as {settings.production_dir}")


def check(served: Path, settings: DeploySettings, manifest: dict[str, Any]) -> None:
    """UserError where the checkpoint cannot take the place of `served`, or `.bak` is not ours to remove."""
    backup, hint = swap.beside(served, swap.BACKUP), ""
    if backup.exists():
        if not any(DEPLOYED in (artifacts.read_manifest(one) or {}) for one in (served, backup)):
            raise UserError(f"{backup}: in the way, and no backup of an earlier deploy: move it away")
        hint = f", or remove {backup}: this deploy replaces it anyway"
    preflight.require_complete(settings.nvfp4_dir, manifest, "quantize")
    preflight.require_drop_in(settings.nvfp4_dir, served, settings.profile.mtp_prefix)
    preflight.require_space(served.parent, manifest, hint)


def stage(target: Path, new: Path, manifest: dict[str, Any], verdict: Verdict) -> None:
    """Copy the checkpoint to `target` with its provenance in the manifest."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    deployed = {"verdict": str(verdict), "forced": not verdict.passes, "time": now}
    copy(new, target, manifest | {DEPLOYED: deployed})


def copy(source: Path, target: Path, manifest: dict[str, Any]) -> None:
    """Copy a payload to a new directory, its manifest last: each file verified, durable, readable by all.

    UserError where a copy has not the sha256 that the manifest says.
    """
    progress, done = Progress("deploy: MB copied", preflight.payload_bytes(manifest) // 10**6), 0
    target.mkdir()
    for name, entry in manifest["files"].items():
        _copy_file(source / name, target / name)
        if artifacts.file_sha256(target / name) != entry["sha256"]:
            raise UserError(
                f"{source / name}: not the bytes that its manifest says; remove {source} and make it again"
            )
        done += entry["bytes"]
        progress.step(done // 10**6 - progress.done, note=name)
    artifacts.write_atomically(
        target / artifacts.MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    )
    for path in (*target.rglob("*"), target):
        path.chmod(0o755 if path.is_dir() else 0o644)
        if path.is_dir():
            swap.sync(path)
    progress.close()


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(source, target)
        with target.open("rb") as copied:
            os.fsync(copied.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # shutil names the source, whose disk is not full
            raise UserError(f"{target}: no space left on its disk: free some; nothing was changed") from None
        raise


def describe(checkpoint: Path) -> str:
    """What a served checkpoint is, from its manifest: run, payload, verdict, forced or not, since when."""
    manifest = artifacts.read_manifest(checkpoint) or {}
    if DEPLOYED not in manifest:
        return "the checkpoint from before the first deploy"
    facts = manifest[DEPLOYED]
    forced = ", forced" if facts["forced"] else ""
    payload = f"payload {artifacts.digest(manifest)[:12]}"
    return f"run {manifest['run']}, {payload}, verdict {facts['verdict']}{forced}, deployed {facts['time']}"


def rollback_command(settings: DeploySettings | RollbackSettings) -> str:
    """The command that exchanges the served checkpoint and its backup."""
    return f"make rollback PROFILE={settings.profile.name} DEPLOY_DIR={shlex.quote(str(settings.deploy_dir))}"


if __name__ == "__main__":
    errors.run(main)
