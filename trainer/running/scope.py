"""A limit of the kernel's around the training, where the user's systemd can set one (systemd.scope)."""

import shutil
import subprocess

SECONDS = 20


def limited(command: list[str], gigabytes: float) -> list[str]:
    """The command in a scope of at most so many GB and no swap; itself for 0, or without such a systemd.

    A process that grows beyond is killed before the machine freezes. systemd-run replaces itself by the
    command, so signals and the death of the parent reach it as before.
    """
    if not gigabytes or shutil.which("systemd-run") is None:
        return command
    limits = {"MemoryMax": round(gigabytes * 1e9), "MemorySwapMax": 0}
    scope = [
        "systemd-run",
        "--user",
        "--scope",
        "--quiet",
        *(f"--property={n}={v}" for n, v in limits.items()),
    ]
    try:
        tried = subprocess.run(
            [*scope, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return command
    return command if tried.returncode else [*scope, *command]
