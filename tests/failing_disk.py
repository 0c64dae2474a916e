"""Runs a stage on a disk that refuses files: `failing_disk.py ENOSPC quant.merge PROFILE=mini ...`."""

import builtins
import errno
import io
import os
import runpy
import sys
from pathlib import Path
from typing import Any

PLACES = ("data", "out", "models", "deployed")
real = io.open


def refusing(code: int) -> Any:
    """`open`, but no file can be written in the places where stages build."""

    def refuse(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if "w" in mode and isinstance(file, str | os.PathLike) and Path(file).parts[0] in PLACES:
            raise OSError(code, os.strerror(code), str(file))
        return real(file, mode, *rest, **more)

    return refuse


if __name__ == "__main__":
    name, module, *words = sys.argv[1:]
    builtins.open = io.open = refusing(getattr(errno, name))
    sys.argv = [module, *words]
    sys.path.insert(0, ".")
    runpy.run_module(module, run_name="__main__")
