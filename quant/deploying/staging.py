"""Copy a checkpoint beside the served one: each file verified, durable, readable by all, before any downtime.

The payload is copied, never linked: a hard link would let a later write to MODELS_DIR's file, or a
change of its mode, reach the file that is being served, and cannot cross file systems.
"""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

from core import artifacts
from core.errors import UserError
from core.progress import Progress
from quant.deploying import preflight, swap


def copy(source: Path, target: Path, manifest: dict[str, Any]) -> None:
    """Copy a payload to a new directory, its manifest last.

    UserError where a copy has not the sha256 that the manifest says, or others may not read it.
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
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    artifacts.write_atomically(target / artifacts.MANIFEST, text)
    for path in (*target.rglob("*"), target):
        path.chmod(0o755 if path.is_dir() else 0o644)
        if path.is_dir():
            swap.sync(path)
    swap.sync(target.parent)
    preflight.require_readable(target)
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
