"""A stand-in for the training process: says that it runs, and ends as its first word tells."""

import os
import signal
import sys
import time
from pathlib import Path

from trainer.running import supervise


def main() -> None:
    """`polite` saves on SIGTERM, `deaf` ignores it; `eater` and `glutton` are that and take memory."""
    supervise.die_with_parent()
    how, place = sys.argv[1], Path(sys.argv[2])
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    (place / "pid").write_text(str(os.getpid()))
    held = []
    while how in ("deaf", "glutton") or not asked:
        if how in ("eater", "glutton"):
            held.append(b"x" * 10_000_000)
        time.sleep(0.02)
    (place / "saved").touch()
    sys.exit(3)


if __name__ == "__main__":
    main()
