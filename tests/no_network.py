"""Running a command with the network cut, and knowing what it asked for."""

import functools
import os
import subprocess
from pathlib import Path

GUARD = Path(__file__).parent / "data/no_network"


@functools.cache
def prefix() -> list[str]:
    """Words before a command that give it a network of its own, empty; none where the system forbids it."""
    try:
        done = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return ["unshare", "-rn"] if done.returncode == 0 else []


def environment(asked: Path) -> dict[str, str]:
    """Every Python process below refuses what is not local and appends it to the file `asked`."""
    return os.environ | {"PYTHONPATH": str(GUARD), "NETWORK_ASKED": str(asked)}
