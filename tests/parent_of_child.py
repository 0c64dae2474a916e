"""Runs `supervise.run` on tests/long_child.py with production's hooks around it, as `make train` does."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainer.running import room, supervise


def main() -> None:
    """`<how> <directory> [seconds]`: hooks write into the directory; prints how the child ended."""
    how, place = sys.argv[1], Path(sys.argv[2])
    log = place / "hooks"
    slow = f"sleep {sys.argv[3]}; " if len(sys.argv) > 3 else ""
    settings: Any = SimpleNamespace(stop_cmd=f"echo stop >> {log}", start_cmd=f"{slow}echo start >> {log}")
    with room.made(settings, needed=1):
        if how == "error":
            raise OSError("a fault of ours")
        ending = supervise.run([sys.executable, "-m", "tests.long_child", how, str(place)])
        print(ending, flush=True)
        if ending.interrupted:
            raise KeyboardInterrupt


if __name__ == "__main__":
    main()
