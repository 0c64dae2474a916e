"""True intervals, exact tests of the same rows before and after, and many tests judged together."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from eval import stats

# ---- one rate, one loss --------------------------------------------------------------------------


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_rate_and_mirrors_its_complement(case: tuple[int, int]):
    k, n = case
    one, other = stats.rate(k, n), stats.rate(n - k, n)
    assert 0 <= one.low <= one.rate + 1e-4
    assert one.rate - 1e-4 <= one.high <= 1
    assert one.low == pytest.approx(1 - other.high, abs=2e-4)


def test_intervals_are_wilson_s():
    # Newcombe 1998, Statistics in Medicine 17:857, table I: 81/263 and 0/20.
    assert (stats.rate(81, 263).low, stats.rate(81, 263).high) == (0.2553, 0.3662)
    assert (stats.rate(0, 20).low, stats.rate(0, 20).high) == (0.0, 0.1611)


LOSSES = st.lists(st.floats(0, 20), min_size=2, max_size=40)


@given(LOSSES, st.randoms())
def test_a_mean_loss_lies_in_its_interval_and_knows_no_order(losses: list[float], rng: random.Random):
    one = stats.mean_loss(losses)
    assert 0 <= one.low <= one.mean <= one.high
    rng.shuffle(losses)
    assert stats.mean_loss(losses) == one


@pytest.mark.parametrize("n", [4, 60])
def test_the_interval_of_a_mean_holds_the_true_mean_in_95_of_100_samples(n: int):
    rng = random.Random(100)
    found = [stats.mean_loss([rng.gauss(2, 0.1) for _ in range(n)]) for _ in range(2000)]
    assert 0.94 < sum(one.low <= 2 <= one.high for one in found) / len(found) < 0.96


# ---- rates on the same rows ----------------------------------------------------------------------

Counts = tuple[int, int, int, int]
"""Rows right both times, right only before, right only after, and right neither time."""
TABLES = st.tuples(*[st.integers(0, 40)] * 4).filter(any)


def gained(counts: Counts) -> stats.Gain:
    """The gain of such rows."""
    kinds = [(True, True), (True, False), (False, True), (False, False)]
    pairs = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
    return stats.gain([before for before, _ in pairs], [after for _, after in pairs])


@pytest.mark.parametrize(
    ("counts", "value", "low", "high"),
    [
        ((36, 2, 12, 0), 0.2, 0.0569, 0.3404),
        ((18, 2, 12, 18), 0.2, 0.0562, 0.3290),
        ((53, 0, 0, 1), 0.0, -0.0729, 0.0729),
        ((0, 0, 30, 0), 1.0, 0.8395, 1.0),
    ],
)
def test_the_interval_of_a_paired_gain_is_newcombe_s(counts: Counts, value: float, low: float, high: float):
    # Newcombe 1998, Statistics in Medicine 17:2635, method 10.
    found = gained(counts)
    assert (found.value, round(found.low, 4), round(found.high, 4)) == (value, low, high)


@given(TABLES)
def test_a_paired_interval_holds_its_gain_and_turns_with_it(counts: Counts):
    both, lost, won, neither = counts
    one, back, mirrored = map(gained, (counts, (both, won, lost, neither), (neither, won, lost, both)))
    assert -1 - 1e-9 <= one.low <= one.value <= one.high <= 1 + 1e-9
    for other in (back, mirrored):  # before for after; wrong for right
        assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))
        assert one.p == other.p


@given(TABLES)
def test_rows_that_go_together_make_the_interval_narrower(counts: Counts):
    both, lost, won, neither = counts
    n = sum(counts)
    before, after, found = stats.rate(both + lost, n), stats.rate(both + won, n), gained(counts)
    apart = (
        math.hypot(after.rate - after.low, before.high - before.rate),
        math.hypot(after.high - after.rate, before.rate - before.low),
    )
    width, unpaired = found.high - found.low, sum(apart)
    if both * neither >= lost * won:
        assert width <= unpaired + 5e-4  # rates are rounded
    else:
        assert width >= unpaired - 5e-4


def test_a_paired_interval_holds_the_true_gain_in_95_of_100_samples():
    rng = random.Random(100)
    kinds, weights = ["both", "lost", "won", "neither"], [55, 5, 15, 25]
    held = 0
    for _ in range(1000):
        drawn = rng.choices(kinds, weights, k=60)
        both, lost, won, neither = (drawn.count(kind) for kind in kinds)
        found = gained((both, lost, won, neither))
        held += found.low <= 0.1 <= found.high
    assert 0.93 < held / 1000 < 0.98


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_test_of_rows_that_changed_is_the_binomial_one(lost: int, won: int):
    expected = scipy_stats.binomtest(won, lost + won).pvalue if lost + won else 1.0
    assert stats.mcnemar(lost, won) == pytest.approx(expected, rel=1e-9)


# ---- losses on the same rows ---------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20)), min_size=2, max_size=40), st.randoms())
def test_what_one_gains_the_other_loses_in_any_order(pairs: list[tuple[float, float]], rng: random.Random):
    before, after = map(list, zip(*pairs, strict=True))
    forth, back = stats.gain(before, after), stats.gain(after, before)
    assert (forth.value, forth.low, forth.high, forth.p) == (-back.value, -back.high, -back.low, back.p)
    assert forth.low <= forth.value <= forth.high
    assert (forth.p < stats.ALPHA) == (not forth.low <= 0 <= forth.high) or forth.p == pytest.approx(0.05)
    rng.shuffle(pairs)
    assert stats.gain(*map(list, zip(*pairs, strict=True))) == forth


def test_losses_are_compared_by_student_s_paired_test():
    rng = random.Random(100)
    before = [rng.uniform(1, 3) for _ in range(12)]
    after = [loss - rng.gauss(0.05, 0.1) for loss in before]
    found, expected = stats.gain(before, after), scipy_stats.ttest_rel(before, after)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p == pytest.approx(expected.pvalue)


def test_a_small_gain_is_seen_in_rows_that_differ_widely():
    before = [row / 2 for row in range(1, 31)]
    found = stats.gain(before, [0.98 * loss for loss in before])
    assert found.low > 0
    assert stats.mean_loss(before).low < stats.mean_loss([0.98 * loss for loss in before]).high


@pytest.mark.parametrize("results", [[True, False, True], [1.5, 0.2, 3.0]])
def test_the_same_results_gain_nothing(results: list[bool] | list[float]):
    found = stats.gain(results, list(results))
    assert (found.value, found.p) == (0, 1)
    assert found.low <= 0 <= found.high


# ---- many tests together -------------------------------------------------------------------------


def test_holm_s_correction_of_four_tests():
    assert stats.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}  # 3 x 0.01, no less than c's, 2 x 0.03, 4 x 0.005
    )


@given(st.lists(st.floats(0, 1), max_size=30))
def test_a_correction_lies_between_the_raw_p_and_all_tests_times_it(raw: list[float]):
    p = {str(number): one for number, one in enumerate(raw)}
    adjusted = stats.holm(p)
    assert adjusted.keys() == p.keys()
    assert all(p[name] <= adjusted[name] <= min(1, len(p) * p[name]) for name in p)
    by_p = sorted(p, key=lambda name: p[name])
    assert all(adjusted[one] <= adjusted[other] for one, other in itertools.pairwise(by_p))
    assert stats.holm(dict(reversed(p.items()))) == adjusted
