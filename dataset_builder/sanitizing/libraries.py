"""Secret scanners of others, each where it is installed; all speak in `(start, end, rule)` of characters.

betterleaks knows vendors' token formats and helps the scrubber; it has no wheel for Linux on ARM.
detect-secrets is plain Python, runs everywhere, and keeps the gate. CredSweeper has no place here: with it
the scrubber's precision on benchmarks/secrets.py falls from 0.94 to 0.33, for 0.004 more recall.
"""

import importlib.util
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

Span = tuple[int, int, str]
Finder = Callable[[str], Iterator[Span]]

ALLOWANCE = re.compile(r"(?i)((?:gitleaks|betterleaks|gitguardian|trufflehog):|pragma: )(?=\w)")
"""`gitleaks:allow` in a text silences a scanner; a transcript must not be able to."""
TOKEN = re.compile(r"[\w-]*")
QUIET = ("Base64HighEntropyString", "HexHighEntropyString", "IPPublicDetector")
"""Plugins of detect-secrets that flag mere randomness (commit ids, sha256 sums), or what is no secret."""


def installed(name: str) -> bool:
    """Whether the library of `FINDERS[name]` is there."""
    return importlib.util.find_spec(PACKAGES[name]) is not None


def betterleaks(text: str) -> Iterator[Span]:
    """Findings of betterleaks; it runs in this process and verifies nothing over the network."""
    import betterleaks as library

    clean = ALLOWANCE.sub(_blanked, text).replace("\0", " ")
    clean = clean.encode("utf-8", "replace").decode("utf-8")
    starts = _line_starts(clean)
    for finding in library.scan_string(clean):
        if finding.rule_id.startswith("generic"):
            continue  # words with a value behind them: context.py judges those
        line = max(0, min(finding.location.start_line - 1, len(starts) - 1))
        for value in (finding.match.value, finding.match.full):
            # What it decoded from base64 does not stand in the text; then the encoded text is in `full`.
            place = clean.find(value, starts[line]) if value else -1
            if place >= 0:
                yield place, place + len(value), f"betterleaks {finding.rule_id}"
                break


def detect_secrets(text: str) -> Iterator[Span]:
    """Findings of detect-secrets' plugins, without its filters; a line that comes again is looked up."""
    start = 0
    for line in text.split("\n"):
        for place, end, rule in _of_line(line):
            yield start + place, start + end, rule
        start += len(line) + 1


FINDERS: dict[str, Finder] = {
    "betterleaks": betterleaks,
    "detect-secrets": detect_secrets,
}
PACKAGES = {"betterleaks": "betterleaks", "detect-secrets": "detect_secrets"}


@lru_cache(maxsize=1 << 16)
def _of_line(line: str) -> tuple[Span, ...]:
    found = []
    for plugin in _plugins():
        for secret in plugin.analyze_line(filename="row.txt", line=line, line_number=1):
            place = line.find(secret.secret_value or "")
            if secret.secret_value and place >= 0:
                # Some plugins give the prefix of a token alone (`ghp`).
                rest = TOKEN.match(line, place + len(secret.secret_value))
                found.append((place, rest.end() if rest else len(line), f"detect-secrets {secret.type}"))
    return tuple(found)


@cache
def _plugins() -> tuple[Any, ...]:
    from detect_secrets.settings import default_settings, get_plugins

    with default_settings() as settings:
        settings.disable_plugins(*QUIET)
        return tuple(get_plugins())


def _blanked(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _line_starts(text: str) -> list[int]:
    return [0, *(m.end() for m in re.finditer("\n", text))]
