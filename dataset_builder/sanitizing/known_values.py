r"""The user's own secrets, found however they are written: the one detector that must never miss.

A value is looked for in three spellings: its characters (each plain, or escaped for JSON, a shell, a URL,
HTML or `\x`), its UTF-8 bytes in hexadecimal, and the part of its base64 that does not depend on what stands
before and after it, for all three alignments; each also broken over lines, or joined from quoted pieces.

One automaton (RE2) looks for the beginnings of all values at once, broken ones too; only where one may stand
is the whole value tried.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import re2

SHORTEST = 6
"""Characters of the shortest value that is looked for; `1234` would be found in every number."""
BEGINNING = 6
"""Units (characters, half bytes, base64 characters) of a beginning."""
LONGEST_BEGINNING = 4096
"""Bytes that a beginning takes, amply, with the line breaks and indentations in it."""
GAP = (
    r"""(?:[ \t"'`\\+,.&()_=]{0,8}(?:\r?\n|(?:\\+r)?\\+n)[ \t"'`+|>#*(/]*"""
    r"""|["'`][ \t]*[+.&]?[ \t]*["'`])?"""
)
"""Between two units: nothing, a line break with what languages put around it, or `" + "`."""
LOOSE_GAP = r"""[\s"'`\\+,.&()_=|>#*/rn]*"""
"""All that GAP matches, and more: it keeps the automaton small, and the whole value is tried with GAP."""
ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;", "'": "&apos;"}


@dataclass(frozen=True)
class Spelling:
    """One way to write one value."""

    name: str
    value: str
    units: tuple[str, ...]
    """Patterns, one for each character, half byte or base64 character."""

    @cached_property
    def whole(self) -> re.Pattern[bytes]:
        """The whole value, with gaps."""
        return re.compile(GAP.join(self.units).encode("utf-8", "surrogatepass"))


class KnownValues:
    """Finds values in UTF-8 bytes."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` maps a name to a value; values shorter than `SHORTEST` are not looked for."""
        found = [_spellings(name, value) for name, value in sorted(values.items()) if len(value) >= SHORTEST]
        self._spellings = [spelling for spellings in found for spelling in spellings]
        beginnings = [LOOSE_GAP.join(spelling.units[:BEGINNING]) for spelling in self._spellings]
        options = re2.Options()
        options.max_mem, options.never_capture, options.log_errors = 1 << 30, True, False
        self._any = re2.compile("|".join(f"(?:{beginning})" for beginning in beginnings), options)
        self._which = re2.Set.MatchSet(options)
        for beginning in beginnings:
            self._which.Add(beginning)
        self._which.Compile()

    def find(self, data: bytes) -> Iterator[tuple[int, int, Spelling]]:
        """`(start, end, spelling)` in bytes, by their start; they may overlap."""
        start = 0
        while self._spellings and (found := self._any.search(data, start)):
            start = found.start()
            for index in sorted(self._which.Match(data[start : start + LONGEST_BEGINNING]) or ()):
                whole = self._spellings[index].whole.match(data, start)
                if whole:
                    yield start, whole.end(), self._spellings[index]
            start += 1


def _spellings(name: str, value: str) -> Iterator[Spelling]:
    raw = value.encode("utf-8", "surrogatepass")
    yield Spelling(name, value, tuple(_character(letter) for letter in value))
    yield Spelling(name, value, tuple(_any_case(digit) for digit in raw.hex()))
    for skipped in range(3):
        text = base64.b64encode(b"\0" * skipped + raw).decode()
        text = text[(skipped * 8 + 5) // 6 : (skipped + len(raw)) * 8 // 6]
        yield Spelling(name, value, tuple(_base64_letter(letter) for letter in text))


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
