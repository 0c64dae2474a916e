"""The corpus: every kind of `seen/` and `heldout/` in every carrier, from a seed."""

import hashlib
from functools import cache
from pathlib import Path
from random import Random

import yaml

from benchmarks.secrets_corpus.carriers import CARRIERS, carry
from benchmarks.secrets_corpus.templates import Case, Kind, unmark

POSITIVES_PER_TYPE = 12
NEGATIVES_PER_TYPE = 90
CREDENTIALS = ("vendors", "generic", "personal")
LOOKALIKES = ("lookalike_data", "lookalike_text")
HERE = Path(__file__).parent


def is_heldout(family: str) -> bool:
    """Whether a family of formats is held out: a third of them, by a digest of the name and not by choice."""
    return hashlib.sha256(family.encode()).digest()[0] % 3 == 0


@cache
def kinds(files: tuple[str, ...], folder: str) -> tuple[Kind, ...]:
    """The kinds of these files of `seen` or `heldout`, in the order of the files."""
    found: list[Kind] = []
    for file in files:
        table = yaml.safe_load((HERE / folder / f"{file}.yaml").read_text("utf-8"))
        for name, entry in table.items():
            lists = {field: tuple(entry.get(field, ())) for field in ("values", "prose", "contexts")}
            found.append(Kind(name, entry["family"], keys=entry.get("keys", ""), **lists))
    return tuple(found)


def all_kinds(files: tuple[str, ...]) -> tuple[Kind, ...]:
    """The seen kinds, then the held-out ones."""
    return kinds(files, "seen") + kinds(files, "heldout")


def corpus(
    seed: int = 0, positives: int = POSITIVES_PER_TYPE, negatives: int = NEGATIVES_PER_TYPE
) -> list[Case]:
    """All cases, `positives` of each type and `negatives` of each look-alike; the same for the same seed.

    A kind draws from a source of its own, so adding one leaves the cases of the others as they are.
    """
    cases = [
        case for kind in all_kinds(CREDENTIALS) for case in _cases(kind, seed, positives, credential=True)
    ]
    return cases + [
        c for kind in all_kinds(LOOKALIKES) for c in _cases(kind, seed, negatives, credential=False)
    ]


def _cases(kind: Kind, seed: int, count: int, *, credential: bool) -> list[Case]:
    rng = Random(f"{seed}/{kind.name}")
    carriers = rng.sample(CARRIERS, len(CARRIERS))
    cases = []
    for number in range(count):
        carrier = carriers[number % len(carriers)]
        text, spans, neutral = unmark(carry(rng, kind, carrier, credential=credential))
        if bool(spans) != credential:
            raise ValueError(f"{kind.name} in {carrier}: {len(spans)} secrets in {text!r}")
        name = f"{kind.name}-{number:03d}"
        cases.append(Case(name, kind.name, is_heldout(kind.family), carrier, text, spans, neutral))
    return cases
