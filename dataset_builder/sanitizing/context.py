"""Secrets that only the words before them give away: `contraseña: …`, `API_KEY=…`, `el token de Gitea es …`.

What follows such a word is read in one of three ways. After an assignment (`=`, `:`, a `value` field, a cell
below a heading) nearly anything that is no stand-in, code or word is a secret; right after the word or `es`
it must look a little harder to guess; elsewhere in the sentence only what looks random is one.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from dataset_builder.sanitizing import judge, words
from dataset_builder.sanitizing.spans import Span

SEPARATOR = re.compile(
    r"""(?x)
    \\*["'`]?\)?\]?\*{0,2}\\*["'`]? (?:[ ]\([^()\n]{1,40}\))? (?:
      (?P<assigned>
          :[ ]?(?:Optional\[)?(?:str|string|String|SecretStr|text|bytes)\]?(?:[ ]?\|[ ]?None|\?)?[ ]?=[ ]*
        | [ \t]*(?::=|=>|==|!=|->|=|:(?!//)|→|\|)\*{0,2}[ \t]*
        | [ \t]*["'>]?[ \t]*,?\s{0,40}\\*["']?(?i:value|valor|val|content)\\*["']?[ \t]*[:=>][ \t]*
        | [ ]*\{[^{}]{0,200}?default[ ]*=[ ]*
        | [ \t]*,[ \t]*(?=\\*["'])
        | >(?=[^<>\n]{1,500}</)
      )
      | [ \t]+(?:(?:actual|nueva?|temporal|new)[ ])?(?:es|is|era|será|son|are|was)[ ]*:?[ ]*\*{0,2}[ \t]*
      | [ \t]+(?=\S)
    )
    (?:(?i:bearer|basic|token|apikey|key|digest)[ ]+)? (?:(?i:token|apikey|key)=\\*["']?)?
    (?:[05789][ ](?=[0-9A-F$]))? (?:[frbuFRBU]{1,2}(?=["']))?
    """
)
"""Between the word and the value; the scheme of a header (`Bearer`) goes with it."""
QUOTED = re.compile(
    r"""(?P<open>\\*["'`]|\*\*)(?P<value>(?:\\(?!(?<=\\)["'`]).|(?!(?P=open))[^\n\r]){1,2000}?)(?P=open)"""
)
OPENING = ("\\", '"', "'", "`", "*")
QUOTES = ("«", "“", "‘", "(")
BARE = re.compile(r"[^\s\"'`<>|\\«»“”]{4,2000}")
TO_LINE_END = re.compile(r"[^\s\"'`\\]\S{3,2000}(?=[ \t]*(?:\r?\n|\Z|[ ][#;]))")
BEFORE_LINE_START = ("", "\n", "n", " ", "\t")
END_IN_LINE, END_IN_QUERY = re.compile(r"\\[nr]|[\"'],"), re.compile("[&;,#]")
END = re.compile(r"[;,](?=\S*=)|[;,]$|\\")
LINE_START = re.compile(r"(?:^|\n|\\n)[ \t]*(?:-[ ]|(?:export|set|setx|ENV|ARG)[ ]+)?$")
HEADER_END = re.compile(r"(?=[^=(){}<>\[\]:\n]{0,400}\n)[\w\"'`*/. áéíóúñ-]{0,40}[|,;\t\r\n]")
HEADER = re.compile(r"[^=(){}<>\[\]:]+")
LONGEST_HEADER, LONGEST_CELL, LONGEST_TABLE, MOST_ROWS = 400, 24, 4096, 50
COOKIE = re.compile(r"[ \t\"']*[^\s=;\"']+=([^\s;\"']*)")
NEAR = 80
SENTENCE_END = re.compile(r"[.;!?] ")
PROMISING = re.compile(r"(?:\s++|[^\s\d]{1,13}+(?![^\s\d]))*+\S")
"""A digit, or more than 13 characters without a space."""
PIECE = re.compile(r"[^\s\"'`<>|,;(){}\[\]«»“”]{6,2000}")
SHORTEST_WITHOUT_DIGIT = 11
"""Characters of a secret that is neither digits nor marks, at less than 6 bits each."""
INTRODUCED = re.compile(r"(?i)(?:\b(?:a|por|es|is|to|as|con|with|será|usa|ponle)[ ]+|[:=(«“\"'`][ ]?)\Z")
BEFORE_VALUE = " :=(«“\"'`"
HASHES = re.compile(
    r"(?i)sha-?\d|md5|hash|commit|checksum|digest|suma|huella|revisi|uuid|fingerprint|integrity"
)
NUMBER_OR_DATE = re.compile(r"[\d.,:/%+-]+(?:T[\d:.,+-]+Z?|[a-zA-Z]{1,3})?|v?\d+(?:\.\d+)+[\w.-]*")
HEX_NUMBER = re.compile(r"0x[0-9a-fA-F]+")
PUNCTUATED = re.compile(r"[!$%&*^=]")
PRIVATE = re.compile(r"(?i)priv|secret|seed")
ADDRESS = re.compile(
    r"(?i)^(?:[a-z][a-z0-9+.-]*://|www\.|[./~\\]|[\w.+-]+@[\w-]+\.|[a-z]:\\)|\.(?:[a-z]{2,4}|safetensors)$"
)
TECHNICAL = re.compile(
    r"(?i)(?:oauth|sha|md|base|utf|ipv|http|x|ed|[hrep]s|aes|rsa|argon|bcrypt|p|pkcs|v|step|paso|k|s|ec|python|es|level"
    r"|tls|ssl|web|fase|rfc|iso|cve|sql|win|h)-?\d+\w{0,3}"
)
MARK = re.compile(r"[^\w\s.,:;/-]")
PASSPHRASE = re.compile(r"[A-Za-z]{3,12}(?:[-.][A-Za-z]{3,12}){3,7}|[a-z]+(?: [a-z]+){3,}")
WALLET = re.compile(r"(?i)seed|mnemonic|semilla|recuperaci|recovery|phrase")
WALLET_WORDS = re.compile(r"[a-z]{3,8}(?: [a-z]{3,8}){11,23}")


def spans(text: str, start: int, end: int, kind: str) -> Iterator[Span]:
    """The secrets, if any, that the name from `start` to `end`, of this `kind` (words.py), announces."""
    name = text[start:end].strip(".-$")
    row = WALLET_WORDS.search(text, end, end + 260) if _of_wallet(name) else None
    if row and row.start() < end + 50 and len(set(row[0].split())) > 9:
        yield Span(*row.span(), "seed_phrase", "words of a wallet", name)
        return
    separator = SEPARATOR.match(text, end)
    if separator:
        taken, found = _after(text, start, separator, kind, name)
        yield from found
        if taken:
            return
    if text[start] == "$":
        return  # a variable, named and not set
    if HEADER_END.match(text, end):
        yield from _column(text, start, kind, name)
    if kind == "password" or not name.endswith(("s", "S")):
        yield from _near(text, end, kind, name)


@lru_cache(maxsize=8192)
def _of_wallet(name: str) -> bool:
    return WALLET.search(name) is not None


def type_under(key: str, value: str) -> str:
    """`password`, `token` or `pin` where the key of a JSON object says that its value is one, else ``."""
    kind = words.kind_of(key)
    return kind if kind and "\n" not in value and _accepted(value, kind, True, True) else ""


def is_password(value: str, likely: bool) -> bool:
    """Whether a value that stands where a password may stand is one."""
    return _accepted(value, "password", True, False) if likely else _stands_out(value, "password")


def _after(text: str, start: int, separator: re.Match[str], kind: str, name: str) -> tuple[bool, list[Span]]:
    """Whether what follows the separator settles the matter, and the secrets in it."""
    assigned = separator["assigned"] is not None
    # One letter decides most: `data.key` and `"key"` begin no line.
    alone = (
        assigned
        and text[max(0, start - 1) : start] in BEFORE_LINE_START
        and LINE_START.search(text[max(0, start - 16) : start]) is not None
    )
    place = _value(text, separator.end(), alone, text[max(0, start - 1) : start] in ("?", "&"))
    if place is None:
        return False, []
    value, quoted = text[slice(*place)], text[place[0] - 1] in "\"'`*"
    if HEX_NUMBER.fullmatch(value) and not PRIVATE.search(name):
        return True, []
    if _accepted(value, kind, assigned, quoted or (alone and separator[0] == "=")):
        return True, [Span(*place, kind, f"after {kind} word", name)]
    if "=" in value and name.lower().endswith("cookie"):
        return True, list(_cookies(text, separator.end(), name))
    no_literal = len(value) > 3 and (judge.is_stand_in(value) or judge.is_code(value))
    return assigned and (quoted or no_literal), []


def _value(text: str, place: int, to_line_end: bool, query: bool) -> tuple[int, int] | None:
    """The value that begins at `place`: quoted, the rest of its line, or up to what ends it."""
    quoted = QUOTED.match(text, place) if text[place : place + 1] in OPENING else None
    if quoted:
        return quoted.span("value")
    place += text[place : place + 1] in QUOTES
    whole = TO_LINE_END.match(text, place) if to_line_end else None
    bare = whole or BARE.match(text, place)
    if not bare:
        return None
    if whole:
        value = END_IN_LINE.split(bare[0], maxsplit=1)[0]
    else:
        value = (END_IN_QUERY if query else END).split(bare[0], maxsplit=1)[0].rstrip(".,;:")
    for opening, closing in ("()", "[]", "{}"):
        while value.endswith(closing) and opening not in value:
            value = value[:-1].rstrip(".,;:")
    return (place, place + len(value)) if value else None


def _accepted(value: str, kind: str, assigned: bool, quoted: bool) -> bool:
    """Whether what follows the word is a secret; a quoted value is no code."""
    if value.isdigit() and (kind == "pin" or (kind == "password" and assigned)):
        return 4 <= len(value) <= 8
    shortest = 4 if kind == "password" else 8 if assigned or quoted else 10
    if kind == "pin" or len(value) < shortest:
        return False
    digit = judge.has_digit(value)
    numbered = kind == "password" and digit and "/" not in value
    # What most values are comes first: names and calls of code.
    if not quoted and (judge.is_expression(value) or (judge.is_name(value) and not numbered)):
        return False
    if judge.is_stand_in(value) or (len(value) < 16 and NUMBER_OR_DATE.fullmatch(value)):
        return False
    if ADDRESS.search(value) and not PUNCTUATED.search(value):
        return False
    if value.count(" ") > 1 or (" " in value and not digit):
        return kind == "password" and assigned and PASSPHRASE.fullmatch(value) is not None
    bits = judge.bits(value)
    if kind == "password":
        mixed = (digit and not value.isdigit()) or MARK.search(value) is not None
        if not (assigned or quoted):
            return len(value) >= 6 and bits >= 14 and mixed and not TECHNICAL.fullmatch(value)
        words_alone = judge.is_name(value) and not PASSPHRASE.fullmatch(value)
        return (bits >= 10 and mixed) or (bits >= 24 and not words_alone)
    if judge.is_name(value) or (quoted and not digit and judge.is_expression(value)):
        return False
    if assigned or quoted:
        return (bits >= 26 and digit) or bits >= 44
    return (bits >= 36 and digit) or bits >= 60


def _cookies(text: str, place: int, name: str) -> Iterator[Span]:
    """The random values of `name=value; name=value`."""
    for found in COOKIE.finditer(text, place, place + 4096):
        if judge.bits(found[1]) >= 50 and not judge.is_stand_in(found[1]):
            yield Span(*found.span(1), "token", "cookie", name)
        if text[found.end() : found.end() + 1] != ";":
            return


def _column(text: str, start: int, kind: str, name: str) -> Iterator[Span]:
    """The cells below a heading, in Markdown or separated by commas, semicolons or tabs."""
    head = text.rfind("\n", max(0, start - LONGEST_HEADER), start) + 1
    head_end = text.find("\n", start, start + LONGEST_HEADER)
    line = text[head:head_end] if head_end > 0 else ""
    mark = next((mark for mark in "|;\t," if mark in line), None)
    if mark is None or (head == 0 and start > LONGEST_HEADER) or not HEADER.fullmatch(text, head, head_end):
        return
    if mark != "|" and any(len(cell) > LONGEST_CELL for cell in line.split(mark)):
        return  # a sentence
    column, columns = text[head:start].count(mark), line.count(mark) + 1
    place = head_end + 1
    for row in text[place : place + LONGEST_TABLE].split("\n")[:MOST_ROWS]:
        cells = row.split(mark)
        if len(cells) != columns:
            return
        value = cells[column].strip(" \t\r\"'`*")
        if value and _accepted(value, kind, True, True):
            at = place + len(mark.join(cells[:column])) + bool(column) + cells[column].index(value)
            yield Span(at, at + len(value), kind, f"below {kind} heading", name)
        place += len(row) + 1


def _near(text: str, place: int, kind: str, name: str) -> Iterator[Span]:
    """The first piece that stands out in what follows on the line; below it where the line ends with `:`."""
    if not PROMISING.match(text, place, place + NEAR):
        return
    window = text[place : place + NEAR]
    line, _, rest = window.partition("\n")
    if line.rstrip(" *_").endswith(":"):
        block = rest.startswith(("\n", "`"))
        line = text[place : place + NEAR + 40] if block else f"{line}\n{rest.partition(chr(10))[0]}"
    sentence_end = SENTENCE_END.search(line)
    limit = place + (sentence_end.start() if sentence_end else len(line))
    for piece in PIECE.finditer(text, place, limit):
        cut = piece.end() == limit and PIECE.match(text, piece.start())
        whole = (cut or piece)[0]
        if len(whole) < 8 and kind == "token":
            continue  # no token, whatever it holds
        value = whole.lstrip("=:").rstrip(".:?*_\\")
        if len(value) < SHORTEST_WITHOUT_DIGIT and value.isalpha():
            continue  # a word, and most are
        at = piece.start() + whole.index(value)
        introduced = text[at - 1] in BEFORE_VALUE and INTRODUCED.search(text[max(0, at - 8) : at]) is not None
        if _stands_out(value, kind) or (introduced and _accepted(value, kind, False, False)):
            if not HASHES.search(text, place, limit):
                yield Span(at, at + len(value), kind, f"near {kind} word", name)
            return


def _stands_out(value: str, kind: str) -> bool:
    """Whether a piece of a sentence or of code looks like no part of it."""
    digit = judge.has_digit(value)
    least = (44 if digit else 75) if kind == "token" else (18 if digit else 60)
    # Most pieces are too short, or code: the tests after these take longer.
    if len(value) * judge.MOST_BITS < least or judge.is_code(value):
        return False
    if judge.is_stand_in(value) or not any(map(str.isalpha, value)):
        return False
    ordinary = (HEX_NUMBER, NUMBER_OR_DATE, TECHNICAL)
    if any(pattern.fullmatch(value) for pattern in ordinary) or ADDRESS.search(value) or "=" in value[1:-2]:
        return False
    bits = judge.bits(value)
    if kind == "token":
        return bits >= least
    cases = any(map(str.islower, value)) and any(map(str.isupper, value))
    marked = re.search(r"[^\w./:@=-]", value) is not None
    return bits >= 60 or (digit and (bits >= 28 or (len(value) >= 8 and (cases or marked) and bits >= 18)))
