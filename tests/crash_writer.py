"""Starts to build an artefact at the given path, says so, and waits to be killed."""

import sys
from pathlib import Path

from core import artifacts

if __name__ == "__main__":
    with artifacts.create(
        Path(sys.argv[1]), kind="dataset", profile="tiny", run="r", settings={}, inputs={}
    ) as draft:
        (draft.path / "half.bin").write_bytes(b"half")
        print("half-way", flush=True)
        sys.stdin.read()
