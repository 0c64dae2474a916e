"""Our own rules: one pass of RE2 over the bytes for each family, then a look at what it found.

RE2 takes linear time whatever the text holds, so that no line, however long, can stall a build.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import re2

from dataset_builder.sanitizing import context, identities, judge, shapes, words
from dataset_builder.sanitizing.spans import Bytes, Span

HERE = Path(__file__).parent
LOGIN = (
    r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/@\"'<>`]{0,200}@"
    r"|\s(?:-u|--user|--proxy-user|-U|--basic)[ =]?[\"']?[^\s:\"'@/,%]{1,64}[:,%][^\s\"']{3,}"
    r"|\s-[pPwacAX][ ]?(?:\"[^\"\n]{4,}|'[^'\n]{4,}|[^\s\"']{4,})|\s/p(?:ass|assword)?:[^\s]{4,}"
    r"|(?i:\buser[ ][^\s]{1,64}[ ][^\s]{4,}[ \t]*(?:\n|$))"
)
"""A name and a password in an address, or for a command."""
LOGIN_VALUE = re.compile(
    r"""(?i)://[^\s/@:]*:(?P<address>[^\s@]+)@$|://(?P<key>[^\s/@:]{16,})@$"""
    r"""|(?:-u|--[a-z-]+)[ =]?["']?[^\s:,%]+[:,%](?P<pair>\S+)$|\s-[pwacx][ ]?["']?(?P<flag>.+)$"""
    r"""|/p(?:ass|assword)?:(?P<windows>\S+)$|user[ ]\S+[ ](?P<said>\S+)\s*$"""
)
COMMANDS = re.compile(
    r"(?:\b(?:mysql\w*|mariadb\w*|sshpass|ncftp\w*|7z|mongo\w*|(?:docker|podman|registry|az|oc|cf) login)\b"
    r"[^\n]*\s-p|\bredis-cli\b[^\n]*\s-a|\bldap\w+[^\n]*\s-w|\bsnmp\w+[^\n]*\s-[cAX]|\bzip\b[^\n]*\s-P"
    r"|\bftp\b[^\n]*\buser|\b(?:xfreerdp|rdesktop|net use)\b[^\n]*/p)\Z"
)
"""Commands with the option that takes a password."""


class Rules:
    """Finds what has the form, the context or the check digits of a secret."""

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        """`hosts` are names of machines to hide, alone or at the end of longer names."""
        with (HERE / "tokens.toml").open("rb") as file:
            tokens = tomllib.load(file)["tokens"]
        self._types = list(tokens)
        names = "|".join(re2.escape(host) for host in sorted(hosts, key=len, reverse=True))
        host = rf"(?i)\b(?:[a-z0-9-]+\.)*(?:{names})\b" if names else r"\z."
        self._tokens = _any_of(tokens.values())
        self._which = re2.Set.MatchSet(_options())
        for pattern in tokens.values():
            self._which.Add(pattern)
        self._which.Compile()
        self._names = re2.compile(words.NAMES, _options())
        self._logins = re2.compile(LOGIN, _options())
        self._runs = re2.compile(shapes.RUN, _options())
        self._identities = _any_of(identities.PATTERNS.values())
        self._hosts = re2.compile(host, _options())
        self._rare = _any_of([LOGIN, *identities.PATTERNS.values(), host])
        self._examples = frozenset((HERE / "examples.txt").read_text(encoding="utf-8").split("\n"))

    def find(self, data: Bytes) -> Iterator[Span]:
        """Spans, the surest rules first; they may overlap."""
        text, rare = data.text, self._rare.search(data.raw)
        # Most texts have none of what is rare: one pass for all of it, and its families from where it begins.
        # The formats of tokens stay out: with these the automaton has too many states.
        first = rare.start() if rare else len(data.raw)
        for start, end in _matches(self._tokens, data):
            yield from self._token(data, start, end)
        for start, end in _matches(self._logins, data, first):
            yield from _login(text, start, end)
        for start, end in _matches(self._names, data):
            if kind := words.kind_at(text, start, end):
                yield from context.spans(text, start, end, kind)
        for start, end in _matches(self._identities, data, first):
            if re.sub(r"[ .-]", "", text[start:end]).upper() not in self._examples:
                yield from identities.spans(text, start, end)
        for start, end in _matches(self._hosts, data, first):
            yield Span(start, end, "host", "host of the user")
        for start, end in _matches(self._runs, data):
            if shapes.is_token(text, start, end):
                yield Span(start, end, "token", "shape of a token")

    def _token(self, data: Bytes, start: int, end: int) -> Iterator[Span]:
        value = data.text[start:end]
        which = self._which.Match(value)
        kind = self._types[min(which)] if which else "token"
        if kind != "private_key" and (value in self._examples or judge.is_stand_in(value)):
            return
        if value[0] in "?&":
            start += value.index("=") + 1
        yield Span(start, end, kind, f"format of {kind}")


def _matches(pattern: "re2._Regexp", data: Bytes, first: int = 0) -> Iterator[tuple[int, int]]:
    """Places in characters of what matches, from the byte `first` on."""
    for found in pattern.finditer(data.raw, first) if first < len(data.raw) else ():
        yield data.characters(*found.span())


def _login(text: str, start: int, end: int) -> Iterator[Span]:
    found = LOGIN_VALUE.search(text[start:end])
    if found is None or found.lastgroup is None:
        return
    value, way = found[found.lastgroup], found.lastgroup
    if judge.is_stand_in(value) or (way == "key" and judge.bits(value) < 60):
        return
    if way in ("flag", "said", "windows"):
        option_end = start + len("user" if way == "said" else " -p")
        likely = COMMANDS.search(text, max(0, start - 200), option_end) is not None
        if not context.is_password(value, likely) or (not likely and not text.startswith(" -p", start)):
            return
    place = start + found.start(way)
    yield Span(place, place + len(value), "password", "login")


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = 256 << 20, True, False
    return options


def _any_of(patterns: Iterable[str]) -> "re2._Regexp":
    return re2.compile("|".join(f"(?:{pattern})" for pattern in patterns), _options())
