"""Faults of the disk in the middle of a command.

All that changes the disk goes through `os` or `swap.rename_exchange`, so faults are planted there.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quant.deploying import swap

STEPS = ("mkdir", "rename", "replace", "unlink", "rmdir", "chmod", "fsync", "sendfile", "copy_file_range")
TAKES_SPACE = ("mkdir", "fsync", "sendfile", "copy_file_range")


@contextlib.contextmanager
def planted(when: Callable[[int, str], bool], fault: Callable[[], None]) -> Iterator[None]:
    """Let `fault()` happen instead of those changes of the disk whose number and name `when` picks."""
    numbers = itertools.count()

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if when(next(numbers), name):
                fault()
            return real(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in STEPS:
            if hasattr(os, name):
                patched.setattr(os, name, watched(name, getattr(os, name)))
        patched.setattr(swap, "rename_exchange", watched("exchange", swap.rename_exchange))
        yield
