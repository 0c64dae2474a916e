"""A text as UTF-8 bytes, which RE2 works on, and the way back to places in characters."""

from collections.abc import Iterator
from dataclasses import dataclass

import re2

LONG_TEXT = 1 << 16
"""Characters from which one automaton for all values is quicker than a search for each."""


class Bytes:
    """A text and its UTF-8 (lone surrogates too, as three bytes each)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.raw = text.encode("utf-8", "surrogatepass")
        self._plain = len(self.raw) == len(text)
        self._byte, self._character = 0, 0

    def characters(self, start: int, end: int) -> tuple[int, int]:
        """Places in characters for places in bytes; quick where they come in ascending order."""
        if self._plain:
            return start, end
        if start < self._byte:
            self._byte, self._character = 0, 0
        self._character += _length(self.raw[self._byte : start])
        self._byte = start
        return self._character, self._character + _length(self.raw[start:end])


def _length(raw: bytes) -> int:
    """Characters in UTF-8."""
    return len(raw) if raw.isascii() else len(raw.decode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class Span:
    """What a rule found, in characters."""

    start: int
    end: int
    type: str
    rule: str
    service: str = ""


def every_place(text: str, values: list[str]) -> Iterator[tuple[int, str]]:
    """`(start, value)` wherever one of the values stands; of several at one place the first of the list."""
    if len(text) < LONG_TEXT:
        for value in values:
            start = text.find(value)
            while start >= 0:
                yield start, value
                start = text.find(value, start + len(value))
    elif values:
        options, data = re2.Options(), Bytes(text)
        options.max_mem, options.never_capture = 1 << 30, True
        for found in re2.compile("|".join(map(re2.escape, values)), options).finditer(data.raw):
            start, end = data.characters(*found.span())
            yield start, text[start:end]
