"""A stage for the tests of the lab's parallel processes: it does what WHAT says and leaves a file."""

import time
from pathlib import Path

from core import config
from core.errors import UserError


def main(words: list[str]) -> int:
    """`write` leaves DIR/NAME; `wait` leaves it and stays; `fail` is a user's mistake; `break` a defect."""
    given = config.split_words(words)
    if given["WHAT"] == "fail":
        raise UserError(f"{given['NAME']}: mend it")
    if given["WHAT"] == "break":
        raise ValueError("a defect")
    Path(given["DIR"], given["NAME"]).write_text(given["NAME"])
    if given["WHAT"] == "wait":
        time.sleep(60)
    return 0
