"""A cell of a parallel stage, for trainer/minigpt/parallel.py: ends when its parent does."""

import importlib
import os
import threading

from core import errors


def main(words: list[str]) -> int:
    """Run the stages named by the words without `=`, each with the words that have one."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    given = [word for word in words if "=" in word]
    for stage in words[: len(words) - len(given)]:
        importlib.import_module(stage).main(given)
    return errors.DONE


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(errors.MISTAKE)


if __name__ == "__main__":
    errors.run(main)
