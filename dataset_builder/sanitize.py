"""The scrubber: finds secrets and personal data in a text and puts stable placeholders in their place.

The user's own values come first, then rules (formats of tokens, words such as `contraseña` with what follows
them, ids with check digits), then betterleaks where it is installed. Nothing is deleted: a value becomes
`<SECRET:type:xxxx>`, the same everywhere, so that a model learns that a password stands there, and not which.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dataset_builder.sanitizing import context, judge
from dataset_builder.sanitizing.known_values import KnownValues
from dataset_builder.sanitizing.libraries import FINDERS, installed
from dataset_builder.sanitizing.placeholders import PLACEHOLDER, Placeholders, is_fake, slug
from dataset_builder.sanitizing.report import Report
from dataset_builder.sanitizing.rules import Rules
from dataset_builder.sanitizing.spans import Bytes, every_place

REACH = 256
"""Characters within which a word tells that something else is a secret, tables apart."""
SHORTEST_REPEATED = 8
"""A value of this length that was found once is a secret wherever else it stands in the text."""
LIBRARY = "betterleaks"
"""What helps the rules where it is installed; the gate's detector is another (secrets_gate.py)."""


@dataclass(frozen=True)
class Finding:
    """A secret in a text, by its place; it never shows the value."""

    start: int
    """Characters."""
    end: int
    type: str
    """What the placeholder says: `password`, `github_token`, `email`."""
    rule: str
    service: str = field(default="", compare=False)
    """What the value opens, where the text says so: `GITEA_TOKEN`."""
    value: str = field(default="", compare=False, repr=False)
    """What the placeholder stands for: the value as it reads, where the text has it escaped or in base64."""


class Sanitizer:
    """Scrubs texts; one object for a whole build, so that a value has one placeholder in all of it."""

    def __init__(
        self,
        key: bytes,
        hosts: Sequence[str] = (),
        known: Mapping[str, str] | None = None,
        libraries: bool = True,
        rules: bool = True,
    ) -> None:
        """`hosts` are names to hide, `known` maps names to values.

        `libraries=False`: our own rules alone; `rules=False` as well: the known values alone.
        """
        self._placeholders = Placeholders(key)
        self._known = KnownValues(known or {})
        self._rules = Rules(hosts) if rules else None
        self.library = LIBRARY if libraries and installed(LIBRARY) else ""
        """The library that takes part: it belongs into the manifest, for it decides what is found."""
        self.report = Report()
        for name, value in sorted((known or {}).items()):
            self.report.used_by(self._placeholders.name(value, _type(name)), name)

    def find(self, text: str) -> list[Finding]:
        """The secrets in a text, in their order; none overlaps another, or a placeholder."""
        found = _apart(text, self._candidates(text))
        again = list(_repeated(text, found))
        return _apart(text, [*found, *again]) if again else found

    def scrub(self, text: str, file: str = "") -> str:
        """The text with a placeholder for every secret; scrubbed again, it stays as it is."""
        found = self.find(text)
        while found:
            text = self._replaced(text, found, file)
            # What a secret hid beside it may show once it is gone; elsewhere nothing has changed.
            found = self.find(text) if any(map(self.find, _around_placeholders(text))) else []
        return text

    def scrub_value(self, value: Any, file: str = "") -> Any:
        """A JSON value with its texts scrubbed; keys, numbers and the order stay as they are."""
        return self._scrubbed(value, "", file)

    def scrub_arguments(
        self, arguments: dict[str, Any], schema: dict[str, Any], file: str = ""
    ) -> dict[str, Any]:
        """Arguments of a tool call, scrubbed and as valid as before.

        Where the schema refuses a placeholder (`pattern`, `format`, `maxLength`), a fake of the value's shape
        stands in its place.
        """
        from jsonschema import Draft202012Validator

        validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        clean = self.scrub_value(arguments, file)
        faults = {tuple(fault.absolute_path) for fault in validator.iter_errors(clean)}
        faults -= {tuple(fault.absolute_path) for fault in validator.iter_errors(arguments)}
        for path in sorted(faults, key=str):
            holder, original = clean, arguments
            for step in path[:-1]:
                holder, original = holder[step], original[step]
            if path and isinstance(original[path[-1]], str):
                holder[path[-1]] = self._faked(original[path[-1]], str(path[-1]))
        return clean

    def _candidates(self, text: str) -> Iterator[Finding]:
        data = Bytes(text)
        for start, end, spelling in self._known.find(data.raw):
            place = data.characters(start, end)
            yield Finding(*place, _type(spelling.name), "known value", spelling.name, spelling.value)
        for found in self._rules.find(data) if self._rules else ():
            yield Finding(found.start, found.end, found.type, found.rule, found.service)
        for start, end, rule in FINDERS[self.library](text) if self.library else ():
            if judge.is_secret(text[start:end]):
                yield Finding(start, end, "secret", rule)

    def _replaced(self, text: str, found: list[Finding], file: str) -> str:
        pieces, end = [], 0
        for finding in found:
            value = finding.value or text[finding.start : finding.end]
            name = self._placeholders.name(value, finding.type)
            self.report.replaced(file, finding.type)
            self.report.used_by(name, finding.service)
            pieces += [text[end : finding.start], name]
            end = finding.end
        return "".join([*pieces, text[end:]])

    def _scrubbed(self, value: Any, key: str, file: str) -> Any:
        if isinstance(value, str):
            return self._scrubbed_text(value, key, file)
        if isinstance(value, dict):
            return {name: self._scrubbed(item, name, file) for name, item in value.items()}
        if isinstance(value, list):
            return [self._scrubbed(item, key, file) for item in value]
        return value

    def _scrubbed_text(self, text: str, key: str, file: str) -> str:
        kind = context.type_under(key, text) if not is_fake(text) else ""
        if kind and not PLACEHOLDER.search(text):
            return self._replaced(text, [Finding(0, len(text), kind, "value of a key", key)], file)
        return self.scrub(text, file)

    def _faked(self, text: str, key: str) -> str:
        found = self.find(text)
        if not found or context.type_under(key, text):
            return self._placeholders.fake(text)
        pieces, end = [], 0
        for finding in found:
            pieces += [text[end : finding.start], self._placeholders.fake(text[finding.start : finding.end])]
            end = finding.end
        return "".join([*pieces, text[end:]])


def _around_placeholders(text: str) -> Iterator[str]:
    """The parts of a text within REACH of a placeholder."""
    start = end = 0
    for match in PLACEHOLDER.finditer(text):
        if match.start() - REACH > end:
            if end:
                yield text[start:end]
            start = match.start() - REACH
        end = match.end() + REACH
    yield text[start:end]


def _type(name: str) -> str:
    return slug(name.rsplit(".", 1)[-1])


def _repeated(text: str, found: list[Finding]) -> Iterator[Finding]:
    """Where else the values stand that were found, without the words that gave them away."""
    starts = {finding.start for finding in found}
    values = {text[finding.start : finding.end]: finding for finding in found}
    long = sorted((v for v in values if len(v) >= SHORTEST_REPEATED), key=lambda v: (-len(v), v))
    for start, value in every_place(text, long):
        if start not in starts:
            yield replace(values[value], start=start, end=start + len(value))


def _apart(text: str, found: Iterable[Finding]) -> list[Finding]:
    """Findings that overlap made one, named by the surest; what overlaps a placeholder and fakes left out."""
    found = list(found)
    # Most texts hold nothing: not even placeholders are looked for in these.
    taken = [place.span() for place in PLACEHOLDER.finditer(text)] if found and "<SECRET:" in text else []
    groups: list[list[tuple[int, Finding]]] = []
    reached = -1
    for rank, finding in sorted(enumerate(found), key=lambda pair: (pair[1].start, pair[0])):
        before = bisect_left(taken, (finding.end, 0)) - 1
        if before >= 0 and taken[before][1] > finding.start:
            continue
        if finding.start >= reached:
            groups.append([])
        groups[-1].append((rank, finding))
        reached = max(reached, finding.end)
    merged = (
        _merged([finding for _, finding in sorted(group, key=lambda pair: pair[0])]) for group in groups
    )
    return [finding for finding in merged if not is_fake(text[finding.start : finding.end])]


def _merged(group: list[Finding]) -> Finding:
    start, end = min(finding.start for finding in group), max(finding.end for finding in group)
    return replace(group[0], start=start, end=end)
