"""Which of the processes that train together this one is, as torchrun says; without it, the only one."""

import os
import sys


def count() -> int:
    """How many there are, on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the one that writes what a run leaves."""
    return os.environ.get("RANK", "0") == "0"


def is_first_here() -> bool:
    """Whether this is the one that reports to the parent on this machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def silence_others() -> None:
    """Let only the first process of a machine print what goes well; errors of all are seen."""
    if not is_first_here():
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
