"""What stands in a secret's place: `<SECRET:type:xxxx>`, or a fake of its shape where a pattern must hold."""

import hashlib
import hmac
import re
import string
from collections.abc import Iterator

PLACEHOLDER = re.compile(r"<SECRET:[a-z0-9_]+:[0-9a-f]{4}>")
CLASSES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
HEXADECIMAL = ("abcdef", "ABCDEF", string.digits)
LONGEST_MARK = 8
SHORTEST_FAKE = 6
"""Characters that a fake must have to exchange; fewer could not be told from a real value."""


class Placeholders:
    """Names values by a keyed hash: the same value has the same name everywhere, and no way leads back.

    A value keeps the type under which it was first seen, so that a token found after `Bearer` in one text
    and after `GITEA_TOKEN=` in another is one placeholder in both.
    """

    def __init__(self, key: bytes) -> None:
        """`key` decides every name; who has it can test guesses, so it is as secret as the values."""
        self._key = key
        self._types: dict[bytes, str] = {}

    def name(self, value: str, kind: str) -> str:
        """The placeholder of a value."""
        digest = self._digest(value)
        return f"<SECRET:{self._types.setdefault(digest, kind)}:{digest.hex()[:4]}>"

    def fake(self, value: str) -> str:
        """A value of the same shape: letters and digits exchanged within their class, the rest kept.

        Its last characters are a public check of those before them (see `is_fake`). A leading word up to
        `_` or `-`, which patterns usually fix (`ghp_…`), is kept. A value with too few characters to
        exchange comes back as its placeholder.
        """
        places = _places(value)
        if len(places) < SHORTEST_FAKE:
            return self.name(value, "value")
        stream, letters, alphabets = _stream(self._digest(value)), list(value), _alphabets(value)
        for place in places:
            letters[place] = _exchanged(letters[place], next(stream), alphabets)
        for place, letter in list(_check("".join(letters), places)):
            letters[place] = letter
        return "".join(letters)

    def _digest(self, value: str) -> bytes:
        return hmac.digest(self._key, value.encode("utf-8", "surrogatepass"), "sha256")


def is_fake(value: str) -> bool:
    """Whether `fake` made this value; a real one passes by chance once in 10^3 (six digits) to 10^11."""
    places = _places(value)
    return len(places) >= SHORTEST_FAKE and all(value[at] == letter for at, letter in _check(value, places))


def slug(name: str) -> str:
    """A name as the type of a placeholder: `GITEA_TOKEN` -> `gitea_token`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:40] or "known"


def _places(value: str) -> list[int]:
    """Positions that a fake exchanges: letters and digits after the leading word."""
    head = re.match(r"[A-Za-z]{2,12}[_-]", value)
    start = head.end() if head else 0
    return [i for i in range(start, len(value)) if value[i].isascii() and value[i].isalnum()]


def _check(value: str, places: list[int]) -> Iterator[tuple[int, str]]:
    """The last places of a fake, and the letters that the rest of it prescribes for them."""
    marks = places[-min(LONGEST_MARK, len(places) // 2) :]
    letters = list(value)
    for place in reversed(marks):
        del letters[place]
    body = "".join(letters)
    stream = _stream(hashlib.sha256(b"fake" + body.encode("utf-8", "surrogatepass")).digest())
    alphabets = _alphabets(value)
    for place in marks:
        yield place, _exchanged(value[place], next(stream), alphabets)


def _stream(seed: bytes) -> Iterator[int]:
    block = seed
    while True:
        yield from block
        block = hashlib.sha256(block).digest()


def _alphabets(value: str) -> tuple[str, ...]:
    """The classes of letters; a-f alone where the whole value is hexadecimal."""
    return HEXADECIMAL if re.fullmatch(r"[0-9A-Fa-f-]+", value) else CLASSES


def _exchanged(letter: str, byte: int, alphabets: tuple[str, ...]) -> str:
    """Another letter of the same class."""
    alphabet = next(alphabet for alphabet in alphabets if letter in alphabet)
    return alphabet[byte % len(alphabet)]
