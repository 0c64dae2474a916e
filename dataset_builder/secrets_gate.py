"""The gate: the rendered text of every row, scanned again by detectors that did no scrubbing.

A hit fails the build unless the user has reviewed it: SECRETS_ALLOWED holds lines `fingerprint  reason`. A
hit names its row and the rule, never the value; the fingerprint is a slow hash, so that printing it gives
nothing away that could be tried against a list of passwords at speed.
"""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from core.errors import UserError
from dataset_builder.sanitizing import libraries
from dataset_builder.sanitizing.known_values import KnownValues
from dataset_builder.sanitizing.placeholders import PLACEHOLDER, is_fake

DETECTOR = "detect-secrets"
"""What scans, beside the search for known values; the scrubber does not use it (sanitize.py)."""
BATCH = 1 << 20
"""Characters of the rows that a detector is given at once."""
BETWEEN = "\n\n\n"
SCRYPT = {"salt": b"forja secrets gate", "n": 1 << 12, "r": 8, "p": 1, "dklen": 8}


@dataclass(frozen=True, order=True)
class Hit:
    """What is left in a row; the value itself is not kept."""

    row: str
    rule: str
    fingerprint: str


def scan(rows: Iterable[tuple[str, str]], allowed: Path | None, known: Mapping[str, str]) -> list[Hit]:
    """The hits in `(row, rendered text)` that are not allowed, sorted, each once a row.

    `row` names the file and the row. Pure: nothing is written or printed. UserError where the detector is
    missing, or where `allowed` has a line without a reason.
    """
    permitted = read_allowed(allowed)
    find_known, detector = KnownValues(known), _detector()
    hits = set()
    for names, starts, text in _batches(rows):
        for start, end, rule in _findings(text, find_known, detector):
            value = text[start:end]
            if rule.startswith("known value ") or not (PLACEHOLDER.search(value) or is_fake(value)):
                row = names[bisect_right(starts, start) - 1]
                hits.add(Hit(row, rule, fingerprint(value)))
    return sorted(hit for hit in hits if hit.fingerprint not in permitted)


def report(hits: list[Hit], allowed: Path | None) -> str:
    """One line a hit, and how to go on."""
    lines = [f"{hit.row}: {hit.rule}  (fingerprint {hit.fingerprint})" for hit in hits]
    where = allowed or "the file that SECRETS_ALLOWED names"
    lines.append(
        f"{len(hits)} secret(s) left in the rows: add their values to SECRETS_FILE and build again; "
        f"what is no secret goes to {where} as a line `fingerprint  reason`"
    )
    return "\n".join(lines)


def read_allowed(path: Path | None) -> dict[str, str]:
    """Fingerprint -> reason; UserError where a line is not both, or the file is missing."""
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"SECRETS_ALLOWED: {path}: no such file") from None
    permitted = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            found = re.fullmatch(r"([0-9a-f]{16})\s+(\S.*)", line.strip())
            if not found:
                raise UserError(f"{path}:{number}: expected a fingerprint of 16 hex digits and a reason")
            permitted[found[1]] = found[2]
    return permitted


@cache
def fingerprint(value: str) -> str:
    """16 hex digits that stand for a value in SECRETS_ALLOWED (scrypt, RFC 7914)."""
    return hashlib.scrypt(value.encode("utf-8", "surrogatepass"), **SCRYPT).hex()


def _detector() -> libraries.Finder:
    if not libraries.installed(DETECTOR):
        raise UserError(f"the gate against secrets needs {DETECTOR}, which is not installed: make env")
    return libraries.FINDERS[DETECTOR]


def _batches(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[list[str], list[int], str]]:
    """Rows joined to texts of about `BATCH` characters: their names, their starts, the text."""
    names, starts, texts, length = [], [], [], 0
    for name, text in rows:
        names.append(name)
        starts.append(length)
        texts.append(text)
        length += len(text) + len(BETWEEN)
        if length >= BATCH:
            yield names, starts, BETWEEN.join(texts)
            names, starts, texts, length = [], [], [], 0
    if names:
        yield names, starts, BETWEEN.join(texts)


def _findings(text: str, known: KnownValues, detector: libraries.Finder) -> Iterator[libraries.Span]:
    data = text.encode("utf-8", "surrogatepass")
    for start, end, spelling in known.find(data):
        before = len(data[:start].decode("utf-8", "surrogatepass"))
        length = len(data[start:end].decode("utf-8", "surrogatepass"))
        yield before, before + length, f"known value {spelling.name}"
    yield from detector(text)
