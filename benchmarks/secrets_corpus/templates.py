"""The small language in which the corpus is written, and the two records that everything else speaks of.

A template is text with holes: `{an:36}` is 36 characters of [A-Za-z0-9], `{an:20-40}` between 20 and 40,
`{iban:ES}` calls a maker of `makers.py`; any other braces are text. In the result the marks `⟦…⟧` enclose a
secret and `⟨…⟩` what is neutral (masked or not, it counts neither way: the user name beside its password).
No finished token stands in the source, so no scanner of this repository finds one.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Span = tuple[int, int]  # [start, end) in characters

_UPPER, _LOWER, _DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789"
ALPHABETS = {
    "d": _DIGITS,
    "a": _LOWER,
    "A": _UPPER,
    "aA": _LOWER + _UPPER,
    "al": _LOWER + _DIGITS,
    "AN": _UPPER + _DIGITS,
    "an": _LOWER + _UPPER + _DIGITS,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "b32": _UPPER + "234567",
    "b32l": _LOWER + "234567",
    "b64": _LOWER + _UPPER + _DIGITS + "+/",
    "b64u": _LOWER + _UPPER + _DIGITS + "-_",
    "bech": "023456789acdefghjklmnpqrstuvwxyz".upper(),
}
_HOLE = re.compile(r"\{([a-zA-Z][a-zA-Z0-9_]*)(?::([^{}]*))?\}")
_MARK = re.compile(r"[⟦⟧⟨⟩]")

Maker = Callable[[Random, str], str]  # (source of chance, what follows the colon) -> text


@dataclass(frozen=True)
class Kind:
    """One type of credential, or (under `negatives_*`) of text that only looks like one.

    `values`: templates of the value alone; unless they carry marks, the whole value is the secret.
    `keys`: names under which it is kept, in the spelling of environment variables, separated by spaces.
    `prose`: sentences with `@` for the value; the default ones speak of a credential of the vendor.
    `contexts`: complete snippets with their own marks (files, headers, commands).
    `family`: kinds whose formats would give each other away; the digest of it decides what is held out.
    """

    name: str
    family: str
    values: tuple[str, ...] = ()
    keys: str = ""
    prose: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One labelled text; `spans` are its secrets (none in a negative), `neutral` counts neither way."""

    id: str
    type: str
    heldout: bool
    carrier: str
    text: str
    spans: tuple[Span, ...]
    neutral: tuple[Span, ...] = ()


def fill(template: str, rng: Random, makers: dict[str, Maker]) -> str:
    """`template` with every hole filled; holes of unknown name stay as they are.

    Filled from left to right, once: what a maker returns is not read again.
    """

    def hole(match: re.Match[str]) -> str:
        name, argument = match[1], match[2] or ""
        if name in makers:
            return makers[name](rng, argument)
        if name in ALPHABETS and re.fullmatch(r"\d+(-\d+)?", argument):
            low, _, high = argument.partition("-")
            return "".join(rng.choices(ALPHABETS[name], k=rng.randint(int(low), int(high or low))))
        return match[0]

    return _HOLE.sub(hole, template)


def secret(value: str) -> str:
    """`value` marked as the secret, unless it carries marks of its own."""
    return value if _MARK.search(value) else f"⟦{value}⟧"


def unmark(marked: str) -> tuple[str, tuple[Span, ...], tuple[Span, ...]]:
    """Text without marks, its secret and its neutral spans. Raises ValueError on marks that do not pair."""
    pieces: list[str] = []
    spans: dict[str, list[Span]] = {"⟧": [], "⟩": []}
    closing = {"⟦": "⟧", "⟨": "⟩"}
    at = length = start = 0
    awaited = ""
    for match in _MARK.finditer(marked):
        piece, at, mark = marked[at : match.start()], match.end(), match[0]
        pieces.append(piece)
        length += len(piece)
        if not awaited and mark in closing:
            start, awaited = length, closing[mark]
        elif mark == awaited:
            spans[mark].append((start, length))
            awaited = ""
        else:
            raise ValueError(f"marks do not pair in {marked!r}")
    if awaited:
        raise ValueError(f"marks do not pair in {marked!r}")
    return "".join([*pieces, marked[at:]]), tuple(spans["⟧"]), tuple(spans["⟩"])


def quoted(text: str) -> str:
    """`text` as a JSON string; the marks survive, so a span then covers the escaped characters."""
    return json.dumps(text, ensure_ascii=False)
