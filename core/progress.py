"""Progress of long work: done, rate, time left; a plain line now and then without a terminal."""

import sys
import time


class Progress:
    """Counts up to `total`; call `step()` after each unit of work and `close()` at the end."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.start = time.monotonic()
        self.live = sys.stderr.isatty()
        self.every = 0.5 if self.live else 15.0
        self.last_print = self.start

    def step(self, count: int = 1, note: str = "") -> None:
        """Count `count` units more and print when it is time to; `note` follows the figures."""
        self.done += count
        now = time.monotonic()
        if now - self.last_print >= self.every:
            self.last_print = now
            self._print(self._line(now, note))

    def close(self, note: str = "") -> None:
        """Print the last line: how much in how long."""
        seconds = time.monotonic() - self.start
        line = f"{self.what}: {self.done} in {seconds:.1f} s" + (f", {note}" if note else "")
        self._print(line, last=True)

    def _line(self, now: float, note: str) -> str:
        rate = self.done / max(now - self.start, 1e-9)
        left = (self.total - self.done) / rate if rate else 0.0
        line = f"{self.what}: {self.done}/{self.total}, {rate:.2f}/s, {clock(left)} left"
        return line + (f", {note}" if note else "")

    def _print(self, line: str, *, last: bool = False) -> None:
        if self.live:
            sys.stderr.write("\r\x1b[K" + line + ("\n" if last else ""))
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()


def clock(seconds: float) -> str:
    """`75` -> `1:15`, `4000` -> `1:06:40`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
