"""How well findings cover the labelled corpus: the definitions behind the figures of `benchmarks.secrets`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from benchmarks.secrets_corpus import Case
from benchmarks.secrets_corpus.templates import Span

MASKED = 0.9
"""A secret is gone when this share of its characters is: what a quote or a full stop leaves opens nothing."""


@dataclass(frozen=True)
class Scores:
    """Shares in [0, 1]; `heldout_*` are the same over the held-out types and the held-out look-alikes."""

    recall: float
    """Positive cases with at least `MASKED` of each of their secrets inside findings."""
    found: float
    """Positive cases in which a finding touches a secret or its surroundings that count neither way: what a
    scanner that only points at lines can reach."""
    precision: float
    """Findings that overlap a secret, among all that do not lie in neutral text only; those that touch each
    other count once."""
    heldout_recall: float
    heldout_precision: float

    def rounded(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


def merged(spans: Iterable[Span]) -> list[Span]:
    """The union of `spans`, in order; spans that touch become one, empty ones vanish."""
    union: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def overlap(span: Span, others: Iterable[Span]) -> int:
    """Characters of `span` inside `others`, which do not overlap each other."""
    return sum(max(0, min(span[1], end) - max(span[0], start)) for start, end in others)


def is_recalled(case: Case, findings: Sequence[Span]) -> bool:
    """Whether every secret of a positive case is masked; `findings` as of `merged`."""
    return all(overlap(span, findings) >= MASKED * (span[1] - span[0]) for span in case.spans)


def score(cases: Sequence[Case], findings: Sequence[Sequence[Span]]) -> Scores:
    """`findings[i]` are the spans found in `cases[i]`, in any order."""
    count: Counter[tuple[str, bool]] = Counter()
    for case, spans in zip(cases, findings, strict=True):
        union, marked = merged(spans), (*case.spans, *case.neutral)
        if case.spans:
            count["positive", case.heldout] += 1
            count["recalled", case.heldout] += is_recalled(case, union)
            count["found", case.heldout] += any(overlap(span, marked) for span in union)
        for span in union:
            true = overlap(span, case.spans) > 0
            count["true", case.heldout] += true
            count["all", case.heldout] += true or not overlap(span, case.neutral)

    def share(part: str, whole: str, *, heldout_only: bool = False) -> float:
        groups = (True,) if heldout_only else (True, False)
        total = sum(count[whole, group] for group in groups)
        return sum(count[part, group] for group in groups) / total if total else 0.0

    return Scores(
        recall=share("recalled", "positive"),
        found=share("found", "positive"),
        precision=share("true", "all"),
        heldout_recall=share("recalled", "positive", heldout_only=True),
        heldout_precision=share("true", "all", heldout_only=True),
    )


def misses(cases: Sequence[Case], findings: Sequence[Sequence[Span]]) -> Counter[str]:
    """Seen types by how many of their cases are wrong: a secret left, or anything found in a look-alike.

    Held-out types are left out on purpose: who writes rules reads this list.
    """
    wrong: Counter[str] = Counter()
    for case, spans in zip(cases, findings, strict=True):
        if not case.heldout:
            union = merged(spans)
            wrong[case.type] += not is_recalled(case, union) if case.spans else bool(union)
    return +wrong
