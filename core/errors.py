"""The ways a stage can end badly, and the one wrapper that reports them.

A `UserError` is something the user can mend: it is printed as one line and the process exits with 2. A
`Refused` is a negative verdict on what was made: its findings are printed and the process exits with 1.
Anything else is a defect of ours and keeps its traceback.
"""

import difflib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable

from core import offline

DONE, NEGATIVE, MISTAKE = 0, 1, 2


class UserError(Exception):
    """What is wrong, the value seen, what is allowed, and the command that mends it; one line."""


class Refused(Exception):
    """What a stage found that forbids its result, a line each, and how to go on; nothing was written."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)` for the nearest of `known`, else `` (empty)."""
    near = difflib.get_close_matches(word.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    original = {k.lower(): k for k in known}
    return f" (did you mean {original[near[0]]}?)" if near else ""


def run(stage: Callable[[list[str]], int | None]) -> None:
    """Run `stage(argv)` as a process: exit 0 when done, 1 on a negative verdict, 2 on a mistake."""
    offline.telemetry_off()
    try:
        code = stage(sys.argv[1:]) or DONE
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = MISTAKE
    except Refused as verdict:
        print(verdict, file=sys.stderr)
        code = NEGATIVE
    except KeyboardInterrupt:
        print("interrupted: nothing was half-written; run the same command again", file=sys.stderr)
        code = MISTAKE
    # safetensors reports a full disk by an exception of its own, so the type alone does not tell.
    except Exception as error:
        message = disk_message(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        code = MISTAKE
    sys.exit(code)


def disk_message(error: Exception) -> str | None:
    """One line where an error means a full or forbidden disk, else None."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    code = error.errno if isinstance(error, OSError) else int(number[1]) if number else None
    where = getattr(error, "filename", None) or "the output directory"
    if code in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk of {where}: free some, or point MODELS_DIR elsewhere"
    if code in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"{where}: {os.strerror(code)}; check its owner and mode"
    return None
