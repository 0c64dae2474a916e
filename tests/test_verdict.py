"""True intervals, and one rule that turns two of them into a verdict."""

import random
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.profile import Gate
from core.verdicts import IMPROVES, INCOMPLETE, NO_CHANGE, WORSE
from eval import measure, stats, verdict

# ---- intervals ---------------------------------------------------------------------------------


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_rate_and_mirrors_its_complement(case):
    k, n = case
    one, other = stats.rate(k, n), stats.rate(n - k, n)
    assert 0 <= one.low <= one.rate + 1e-4
    assert one.rate - 1e-4 <= one.high <= 1
    assert one.low == pytest.approx(1 - other.high, abs=2e-4)


def test_intervals_are_wilson_s():
    # Newcombe 1998, Statistics in Medicine 17:857, table I: 81/263 and 0/20.
    assert (stats.rate(81, 263).low, stats.rate(81, 263).high) == (0.2553, 0.3662)
    assert (stats.rate(0, 20).low, stats.rate(0, 20).high) == (0.0, 0.1611)


LOSSES = st.lists(st.floats(0, 20), min_size=2, max_size=60)


@given(LOSSES, st.randoms())
def test_a_mean_loss_lies_in_its_interval_and_knows_no_order(losses: list[float], rng: random.Random):
    one = stats.mean_loss(losses)
    assert 0 <= one.low <= one.mean <= one.high
    rng.shuffle(losses)
    assert stats.mean_loss(losses) == one


def test_the_interval_of_a_mean_holds_the_true_mean_in_95_of_100_samples():
    rng = random.Random(100)
    found = [stats.mean_loss([rng.gauss(2, 0.5) for _ in range(60)]) for _ in range(2000)]
    assert 0.93 < sum(one.low <= 2 <= one.high for one in found) / len(found) < 0.96


def test_the_interval_of_a_difference_is_newcombe_s():
    # Newcombe 1998, Statistics in Medicine 17:873, table II (a): 56/70 - 48/80, method 10.
    gain = stats.gain(stats.rate(48, 80), stats.rate(56, 70))
    assert (round(gain.low, 4), round(gain.value, 4), round(gain.high, 4)) == (0.0524, 0.2, 0.3339)


@given(st.tuples(LOSSES, LOSSES).map(lambda pair: [stats.mean_loss(one) for one in pair]))
def test_what_one_gains_the_other_loses(pair: list[stats.Loss]):
    forth, back = stats.gain(*pair), stats.gain(*reversed(pair))
    assert (forth.value, forth.low, forth.high) == pytest.approx((-back.value, -back.high, -back.low))
    assert forth.low <= forth.value <= forth.high


# ---- the rule of the verdicts ------------------------------------------------------------------

RANK = {WORSE: 0, NO_CHANGE: 1, IMPROVES: 2}
ALLOWED = st.sampled_from([0, 0.02, 0.15])
CASES = st.integers(1, 200).flatmap(
    lambda n: st.tuples(
        st.just(n), st.integers(0, n), st.integers(0, n - 1), st.sampled_from([0, 0.02, 0.15])
    )
)


@given(CASES)
def test_one_right_answer_more_never_makes_a_verdict_worse(case: tuple[int, int, int, float]):
    n, before, after, delta = case
    one, other = (verdict.compare(stats.rate(before, n), stats.rate(k, n), delta) for k in (after, after + 1))
    assert RANK[one] <= RANK[other]


@given(CASES)
def test_a_larger_allowance_never_makes_a_verdict_worse(case: tuple[int, int, int, float]):
    n, before, after, delta = case
    pair = stats.rate(before, n), stats.rate(after, n)
    assert RANK[verdict.compare(*pair, delta)] <= RANK[verdict.compare(*pair, delta + 0.1)]


@given(CASES)
def test_nothing_is_worse_within_its_allowance_and_nothing_changes_into_itself(case):
    n, before, after, delta = case
    one, other = stats.rate(before, n), stats.rate(after, n)
    assert verdict.compare(one, one, delta) == NO_CHANGE
    if other.rate >= one.rate - delta:
        assert verdict.compare(one, other, delta) != WORSE
    if verdict.compare(one, other, delta) == IMPROVES:
        assert other.low > one.high


@pytest.mark.parametrize(
    ("before", "after", "delta", "expected"),
    [
        (stats.rate(18, 200), stats.rate(131, 200), 0.02, IMPROVES),
        (stats.rate(131, 200), stats.rate(18, 200), 0.02, WORSE),
        (stats.rate(160, 200), stats.rate(140, 200), 0.02, WORSE),  # intervals overlap, the loss does not
        (stats.rate(160, 200), stats.rate(150, 200), 0.02, NO_CHANGE),  # 5 points that may be an accident
        (stats.rate(1800, 2000), stats.rate(1750, 2000), 0.05, NO_CHANGE),  # no accident, but allowed
        (stats.rate(139, 150), stats.rate(123, 150), 0.15, NO_CHANGE),
        (stats.rate(139, 150), stats.rate(115, 150), 0.15, WORSE),
        (stats.Loss(500, 1.3, 1.2, 1.4), stats.Loss(500, 0.3, 0.2, 0.4), 0.02, IMPROVES),
        (stats.Loss(500, 0.3, 0.2, 0.4), stats.Loss(500, 1.3, 1.2, 1.4), 0.02, WORSE),
        (stats.Loss(500, 0.3, 0.29, 0.31), stats.Loss(500, 0.33, 0.32, 0.34), 0.05, NO_CHANGE),
        (stats.mean_loss([2.0]), stats.mean_loss([1.0]), 0.02, INCOMPLETE),
        (None, stats.rate(9, 9), 0.02, INCOMPLETE),
        (stats.rate(9, 9), None, 0.02, INCOMPLETE),
    ],
)
def test_a_verdict_follows_from_the_two_intervals(before, after, delta, expected):
    assert verdict.compare(before, after, delta) == expected


GATES = {
    "loss": Gate(threshold=0.5, delta=0.02),
    "tool_calls": Gate(threshold=0.8, delta=0.02),
    "skills": Gate(threshold=0.8, delta=0.02),
    "replay": Gate(threshold=0.8, delta=0.15),
}


def samples(right: dict[str, int], nats: float) -> list[measure.Sample]:
    """100 rows of each bucket, the first `right` of them answered rightly, at a loss of about `nats`."""
    made = []
    for bucket in measure.ROWS:
        for number in range(100):
            about = {"id": f"{bucket}-{number}", "bucket": bucket, "skill": f"skill-{number % 2}"}
            spread = nats * (0.9 + 0.2 * number / 99)
            made.append({"kind": "loss", **about, "loss": spread + 5 * (bucket == measure.REPLAY)})
            kind = "skills" if bucket == measure.SKILLS else "tool_calls"
            made.append({"kind": kind, **about, "right": number < right.get(bucket, 50)})
    return made


def measured(right: dict[str, int], nats: float) -> measure.Measured:
    """The statistics of such samples."""
    found = measure.counts(samples(right, nats), held_out=("skill-1",))
    return measure.statistics({"counts": found | {"rules": {}}})


BASE = measured({"mcp_calls": 10, "skills": 0, "replay": 90}, 1.3)
GOOD = {"mcp_calls": 80, "skills": 80, "replay": 85}


@pytest.mark.parametrize(
    ("right", "nats", "verdicts_expected", "overall"),
    [
        ({}, 0.3, {}, IMPROVES),
        ({"skills": 5}, 0.3, {"skills": NO_CHANGE}, NO_CHANGE),
        ({"mcp_calls": 1}, 0.3, {"tool_calls": WORSE}, WORSE),
        ({"replay": 60}, 0.3, {"replay": WORSE}, WORSE),
        ({}, 1.5, {"loss": WORSE}, WORSE),
        ({"no_tool": 0, "recovery": 0}, 0.3, {}, IMPROVES),  # shown, but they do not decide
    ],
    ids=["good", "skills stay", "calls degrade", "forgets", "loss rises", "other rows"],
)
def test_a_planted_degradation_is_caught_by_its_gate(right, nats, verdicts_expected, overall):
    judged = verdict.judge(GATES, {"base": BASE, "merged": measured(GOOD | right, nats)})
    expected = {"loss": IMPROVES, "tool_calls": IMPROVES, "skills": IMPROVES, "replay": NO_CHANGE}
    assert {g: one["verdict"] for g, one in judged["gates"].items()} == expected | verdicts_expected
    assert judged["verdict"] == overall


def test_a_gate_without_rows_leaves_the_verdict_incomplete():
    after = measured(GOOD, 0.3)
    del after["skills"][measure.SKILLS]
    judged = verdict.judge(GATES, {"base": BASE, "merged": after})
    assert judged["gates"]["skills"]["verdict"] == INCOMPLETE
    assert judged["verdict"] == INCOMPLETE
    assert not judged["gates"]["skills"]["reaches"]


def test_a_goal_stands_beside_the_verdict():
    judged = verdict.judge(GATES, {"base": BASE, "merged": measured(GOOD | {"skills": 79}, 0.3)})["gates"]
    assert {gate: one["reaches"] for gate, one in judged.items()} == {
        "loss": True,
        "tool_calls": True,
        "skills": False,
        "replay": True,
    }
    assert judged["skills"]["verdict"] == IMPROVES


def test_what_is_counted_knows_no_order_and_keeps_replay_apart():
    made = samples(GOOD, 0.3)
    found = measure.counts(made, held_out=("skill-1",))
    shuffled = random.Random(100).sample(made, len(made))
    assert measure.counts(shuffled, held_out=("skill-1",)) == found
    assert found["loss"][measure.TRAINED]["n"] == 100 * (len(measure.ROWS) - len(measure.KNOWN))
    assert found["loss"][measure.TRAINED]["high"] < 1 < found["loss"][measure.REPLAY]["low"]
    assert found["skills"][measure.HELD_OUT_SKILL] == asdict(stats.rate(40, 50))
