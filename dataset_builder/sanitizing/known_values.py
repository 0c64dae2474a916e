r"""The user's own secrets, found however they are written: the one detector that must never miss.

A value is looked for in three spellings: its characters (each plain, or escaped for JSON, a shell, a URL,
HTML or `\x`), its UTF-8 bytes in hexadecimal, and the part of its base64 that does not depend on what stands
before and after it, for all three alignments; each also broken over lines, or joined from quoted pieces.

Two automata (RE2) look for all values at once: one for their beginnings in the text, one for their longest
run of letters and digits in the text with all else taken out, where a break over lines leaves no trace. Only
where one of them says so is the whole value tried.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import re2

SHORTEST = 6
"""Characters of the shortest value that is looked for; `1234` would be found in every number."""
BEGINNING = 6
"""Units (characters, half bytes, base64 characters) of a beginning."""
SHORTEST_RUN, LONGEST_RUN = 4, 12
LONGEST_UNIT = 64
"""Bytes that one unit with the gap before it takes, amply."""
GAP = (
    r"""(?:[ \t"'`\\+,.&()_=]{0,8}(?:\r?\n|(?:\\+r)?\\+n)[ \t"'`+|>#*(/]*"""
    r"""|["'`][ \t]*[+.&]?[ \t]*["'`])?"""
)
"""Between two units: nothing, a line break with what languages put around it, or `" + "`."""
ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;", "'": "&apos;"}
LETTERS = bytes(byte for byte in range(256) if byte >= 128 or chr(byte).isalnum())
OTHERS = bytes(byte for byte in range(256) if byte not in LETTERS)
IS_LETTER = bytes(byte in LETTERS for byte in range(256))


@dataclass(frozen=True)
class Spelling:
    """One way to write one value."""

    name: str
    value: str
    units: tuple[str, ...]
    """Patterns, one for each character, half byte or base64 character."""
    plain: str
    """The units as they stand where nothing is escaped."""

    @cached_property
    def whole(self) -> re.Pattern[bytes]:
        """The whole value, with gaps."""
        return re.compile(GAP.join(self.units).encode("utf-8", "surrogatepass"))

    @property
    def beginning(self) -> str:
        """What the automaton of beginnings looks for; over gaps only where the other one is of no use."""
        return ("" if self.run else GAP).join(self.units[:BEGINNING])

    @cached_property
    def run(self) -> slice | None:
        """The place of the longest run of letters and digits in `plain`; None where all are short."""
        runs = [m.span() for m in re.finditer(r"[^\W_]+", self.plain)] or [(0, 0)]
        start, end = max(runs, key=lambda span: span[1] - span[0])
        return slice(start, min(end, start + LONGEST_RUN)) if end - start >= SHORTEST_RUN else None


class KnownValues:
    """Finds values in UTF-8 bytes."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` maps a name to a value; values shorter than `SHORTEST` are not looked for."""
        found = [_spellings(name, value) for name, value in sorted(values.items()) if len(value) >= SHORTEST]
        self._spellings = [spelling for spellings in found for spelling in spellings]
        self._beginnings = _Automaton([spelling.beginning for spelling in self._spellings])
        self._unbroken = [(spelling, spelling.run) for spelling in self._spellings if spelling.run]
        self._runs = _Automaton(["".join(spelling.units[run]) for spelling, run in self._unbroken])

    def find(self, data: bytes) -> Iterator[tuple[int, int, Spelling]]:
        """`(start, end, spelling)` in bytes, in no order; they may overlap and repeat."""
        if not self._spellings:
            return
        for start, index in self._beginnings.find(data):
            whole = self._spellings[index].whole.match(data, start)
            if whole:
                yield start, whole.end(), self._spellings[index]
        unbroken = _Letters(data)
        for place, index in self._runs.find(unbroken.text):
            (spelling, run), near = self._unbroken[index], unbroken.original(place)
            before = LONGEST_UNIT * (run.start + 1)
            whole = spelling.whole.search(
                data, max(0, near - before), near + LONGEST_UNIT * len(spelling.units)
            )
            if whole:
                yield whole.start(), whole.end(), spelling


class _Automaton:
    """Many patterns at once."""

    def __init__(self, patterns: list[str]) -> None:
        options = re2.Options()
        options.max_mem, options.never_capture, options.log_errors = 1 << 30, True, False
        self._any = re2.compile("|".join(f"(?:{pattern})" for pattern in patterns if pattern), options)
        self._which = re2.Set.MatchSet(options)
        for pattern in patterns:
            self._which.Add(pattern or "\\z.")
        self._which.Compile()

    def find(self, data: bytes) -> Iterator[tuple[int, int]]:
        """`(start, index of the pattern)` wherever one begins."""
        start = 0
        while found := self._any.search(data, start):
            start = found.start()
            for index in sorted(self._which.Match(data[start : start + LONGEST_UNIT * LONGEST_RUN]) or ()):
                yield start, index
            start += 1


class _Letters:
    """A text with all but letters and digits taken out, and the way back to its places."""

    BLOCK = 4096

    def __init__(self, data: bytes) -> None:
        self._data = data.replace(b"\\n", b"  ").replace(b"\\r", b"  ")
        self.text = self._data.translate(None, OTHERS)
        self._block, self._before = 0, 0

    def original(self, place: int) -> int:
        """Where in the whole text the byte at `place` stands; call with ascending places."""
        while True:
            block = self._data[self._block : self._block + self.BLOCK]
            count = len(block.translate(None, OTHERS))
            if place < self._before + count:
                inside = list(compress(range(len(block)), block.translate(IS_LETTER)))
                return self._block + inside[place - self._before]
            self._block += self.BLOCK
            self._before += count


def _spellings(name: str, value: str) -> Iterator[Spelling]:
    raw = value.encode("utf-8", "surrogatepass")
    yield Spelling(name, value, tuple(_character(letter) for letter in value), value)
    yield Spelling(name, value, tuple(_any_case(digit) for digit in raw.hex()), raw.hex())
    for skipped in range(3):
        text = base64.b64encode(b"\0" * skipped + raw).decode()
        text = text[(skipped * 8 + 5) // 6 : (skipped + len(raw)) * 8 // 6]
        yield Spelling(name, value, tuple(_base64_letter(letter) for letter in text), text)


def _character(letter: str) -> str:
    """One character in every escape; a break of the value itself also as `\\n`."""
    if letter in "\r\n":
        return r"(?:[\r\n]|\\+[rn]|%(?:25)*0[AaDd])"
    plain = re2.escape(letter)
    ways = [plain] if letter.isalnum() else [r"\\+" if letter == "\\" else rf"\\*{plain}"]
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    ways.append("".join(rf"\\+u{_any_case(units[i : i + 4])}" for i in range(0, len(units), 4)))
    raw = [_any_case(f"{byte:02x}") for byte in letter.encode("utf-8", "surrogatepass")]
    ways += ["".join(rf"\\+x{byte}" for byte in raw), "".join(rf"%(?:25)*{byte}" for byte in raw)]
    ways.append(rf"&#(?:0*{ord(letter)}|[xX]0*{_any_case(f'{ord(letter):x}')});")
    if letter in ENTITIES:
        ways.append(ENTITIES[letter])
    if letter == "'":
        ways += [r"'\\+''", r"""'"'"'""", "''"]
    if letter == " ":
        ways.append(r"\+")
    # Longest first, so that `''` is one doubled quote and not the first of two.
    return f"(?:{'|'.join(sorted(ways, key=len, reverse=True))})"


def _base64_letter(letter: str) -> str:
    """A letter of the standard alphabet, or of the URL's in its place; `/` and `+` also escaped."""
    return {"+": r"(?:[+-]|%2[Bb])", "/": r"(?:\\?/|_|%2[Ff])"}.get(letter, letter)


def _any_case(hexadecimal: str) -> str:
    return "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in hexadecimal)
