"""The corpus of benchmarks/secrets_corpus: big enough, the same every time, and labelled as its page says."""

import json
import re
import sys
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import secrets
from benchmarks import secrets_scanners as scanners
from benchmarks.secrets_corpus import Case, corpus, is_heldout
from benchmarks.secrets_corpus.generate import CREDENTIALS, HERE, LOOKALIKES, kinds
from benchmarks.secrets_corpus.makers import MAKERS
from benchmarks.secrets_corpus.templates import Span, quoted, unmark
from benchmarks.secrets_scanners import located
from benchmarks.secrets_scores import misses, score


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return corpus()


def test_size_and_shares_are_what_the_bars_ask_for(cases: list[Case]) -> None:
    positives = [case for case in cases if case.spans]
    negatives = [case for case in cases if not case.spans]
    assert len({case.text for case in positives}) >= 3_000
    assert len({case.text for case in negatives}) >= 5_000
    assert len({case.type for case in positives}) >= 120
    heldout = {case.type for case in positives if case.heldout}
    assert 0.28 < len(heldout) / len({case.type for case in positives}) < 0.38
    assert any(case.heldout for case in negatives)
    assert len({case.id for case in cases}) == len(cases)


def test_every_kind_of_document_carries_secrets_and_look_alikes(cases: list[Case]) -> None:
    for positive in (True, False):
        carriers = Counter(case.carrier for case in cases if bool(case.spans) == positive)
        assert min(carriers.values()) > 50
        assert {"markdown", "yaml", "json", "shell", "python", "javascript", "prose"} < set(carriers)
        assert {"shell/transcript_result", "shell/transcript_call", "prose/chat"} < set(carriers)


def test_the_seed_decides_every_byte(cases: list[Case]) -> None:
    assert corpus() == cases
    assert {case.text for case in corpus(seed=1, positives=2, negatives=2)} - {case.text for case in cases}


def test_a_digest_and_no_one_s_choice_holds_types_out() -> None:
    for folder in ("seen", "heldout"):
        for kind in kinds(CREDENTIALS, folder) + kinds(LOOKALIKES, folder):
            assert is_heldout(kind.family) == (folder == "heldout"), kind.name
    for file in (HERE / "heldout").glob("*.yaml"):
        assert "does not read this file" in file.read_text("utf-8")[:400]


def test_spans_are_ordered_inside_the_text_and_every_hole_is_filled(cases: list[Case]) -> None:
    hole = re.compile(r"[⟦⟧⟨⟩]|\{(?:pw|uuid|jwt|pem|user|label|key|d:|an:|hex:|b64)")
    for case in cases:
        marked = sorted((*case.spans, *case.neutral))
        ends = [0, *(end for _, end in marked)]
        assert all(
            start >= before and end > start for before, (start, end) in zip(ends, marked, strict=False)
        )
        assert ends[-1] <= len(case.text)
        assert not hole.search(case.text), case.text


def test_transcripts_and_rows_are_json(cases: list[Case]) -> None:
    rows = [case for case in cases if re.search(r"/(transcript|chat$)", case.carrier)]
    assert len(rows) > 1_000
    for case in rows:
        assert isinstance(json.loads(case.text), dict)


def _luhn(digits: str) -> bool:
    doubled = [int(d) * (1 + place % 2) for place, d in enumerate(reversed(digits))]
    return sum(d - 9 * (d > 9) for d in doubled) % 10 == 0


def _mod97(iban: str) -> bool:
    return int("".join(str(int(c, 36)) for c in iban[4:] + iban[:4])) % 97 == 1


def _dni(text: str) -> bool:
    digits = text[:-1].translate(str.maketrans("XYZ", "012"))
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23] == text[-1]


@pytest.mark.parametrize(
    ("maker", "right", "wrong", "checks"),
    [
        ("card", "", "wrong", _luhn),
        ("iban", "ES", "ES wrong", _mod97),
        ("iban", "NL", "DE wrong", _mod97),
        ("dni", "", "wrong", _dni),
        ("dni", "nie", "nie wrong", _dni),
    ],
)
def test_check_digits_hold_in_positives_and_fail_in_negatives(maker, right, wrong, checks) -> None:
    rng = Random(0)
    for argument, expected in ((right, True), (wrong, False)):
        for _ in range(300):
            value = re.sub(r"[ -]", "", MAKERS[maker](rng, argument))
            assert checks(value) is expected, value


@given(st.lists(st.tuples(st.text(alphabet='ab"\\\nñ'), st.text(alphabet='x"\\\n', min_size=1)), max_size=4))
def test_marks_survive_the_escapes_of_json(pieces: list[tuple[str, str]]) -> None:
    """The spans of an escaped text are the escaped secrets."""
    marked = "".join(f"{text}⟦{value}⟧" for text, value in pieces)
    text, spans, _ = unmark(quoted(marked))
    assert [text[start:end] for start, end in spans] == [quoted(value)[1:-1] for _, value in pieces]
    assert json.loads(text) == unmark(marked)[0]


@pytest.mark.parametrize("text", ["⟦a", "a⟧", "⟦a⟩", "⟦a⟦b⟧⟧", "⟨⟦a⟧⟩"])
def test_marks_that_do_not_pair_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="do not pair"):
        unmark(text)


def _case(
    text: str, spans: tuple[Span, ...] = (), neutral: tuple[Span, ...] = (), heldout: bool = False
) -> Case:
    return Case("case", "kind", heldout, "shell", text, spans, neutral)


POSITIVE = _case("user:" + "s" * 10 + " rest", ((5, 15),), ((0, 4),))
NEGATIVE = _case("harmless text")


@pytest.mark.parametrize(
    ("findings", "recall", "found", "precision"),
    [
        ([], 0, 0, 0),
        ([(5, 15)], 1, 1, 1),
        ([(5, 14)], 1, 1, 1),  # nine characters of ten
        ([(5, 13)], 0, 1, 1),
        ([(5, 10), (10, 15), (5, 15)], 1, 1, 1),  # found thrice is found once
        ([(0, 4)], 0, 1, 0),  # neutral text alone: neither true nor false
        ([(0, 4), (5, 15)], 1, 1, 1),
        ([(16, 20)], 0, 0, 0),
        ([(5, 15), (17, 20)], 1, 1, 0.5),
    ],
)
def test_scores_of_one_case(findings: list[Span], recall: float, found: float, precision: float) -> None:
    scores = score([POSITIVE], [findings])
    assert (scores.recall, scores.found, scores.precision) == (recall, found, precision)


def test_held_out_scores_are_those_of_the_held_out_cases_alone() -> None:
    heldout = [_case(POSITIVE.text, POSITIVE.spans, heldout=True), _case("look-alike", heldout=True)]
    findings = [[(5, 15)], [], [(5, 15)], [(0, 4)]]
    scores = score([POSITIVE, NEGATIVE, *heldout], findings)
    assert (scores.recall, scores.precision) == (1, 2 / 3)
    assert (scores.heldout_recall, scores.heldout_precision) == (1, 0.5)
    assert score([*heldout], findings[2:]).precision == scores.heldout_precision


def test_the_labels_themselves_score_one_and_everything_masked_scores_by_its_precision(
    cases: list[Case],
) -> None:
    perfect = score(cases, [case.spans for case in cases])
    assert set(perfect.rounded().values()) == {1.0}
    greedy = score(cases, [[(0, len(case.text))] for case in cases])
    assert greedy.recall == 1
    assert greedy.precision == sum(bool(case.spans) for case in cases) / len(cases)


def test_misses_name_seen_types_only() -> None:
    cases = [POSITIVE, NEGATIVE, _case(POSITIVE.text, POSITIVE.spans, heldout=True)]
    assert misses(cases, [[], [(0, 3)], []]) == {"kind": 2}
    assert misses(cases, [[(5, 15)], [], []]) == {}


def test_a_scanner_s_lines_become_characters() -> None:
    text = "first\ntoken = abc\nabc\n"
    assert located(text, 2, 2, ("abc",)) == (14, 17)
    assert located(text, 3, 3, ("abc",)) == (18, 21)
    assert located(text, 2, 3, ("absent", "c\na")) == (16, 19)
    assert located(text, 2, 2, ("decoded",)) == (6, 18)
    assert located("no newline", 1, 1, ("",)) == (0, 10)


def test_the_benchmark_runs_without_a_scrubber_and_ends_with_json(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "dataset_builder.sanitize", None)
    assert secrets.main(["--ours"]) == 0
    printed = capsys.readouterr().out
    assert "the scanners alone" in printed
    result = json.loads(printed.splitlines()[-1])
    assert result["recall"] is None
    assert {"precision", "heldout_recall", "heldout_precision", "overmask", "mb_per_s", "tools"} < set(result)


def test_clean_texts_are_skills_schemas_and_source() -> None:
    names = secrets.clean_texts()
    for part in ("examples/skills/", "tests/data/schemas/", "core/", "dataset_builder/"):
        assert any(name.startswith(part) for name in names), part


@pytest.mark.slow
def test_scanners_find_what_is_plain_and_leave_prose_alone(cases: list[Case]) -> None:
    """Each scanner that is installed, on 300 cases: its findings land on the secrets of the right files."""
    some = [case for case in cases if case.spans][:200] + [c for c in cases if c.type == "spanish_prose"]
    ran = 0
    for name in scanners.SCANNERS:
        if scanners.version(name) is not None:
            scores = score(some, scanners.scan(name, some).findings)
            assert scores.recall > 0.2, name
            assert scores.precision > 0.3, name
            ran += 1
    assert ran, "make env installs at least detect-secrets"
