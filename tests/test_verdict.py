"""One rule that turns the same rows before and after into a verdict, and what planted models come to."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.verdicts import IMPROVES, INCOMPLETE, NO_CHANGE, WORSE
from eval import stats, verdict
from eval.outcomes import Outcomes, Results
from tests.judging import BASE, GATES, good, judge, model, of

# ---- the rule of one row -------------------------------------------------------------------------

RANK = {WORSE: 0, NO_CHANGE: 1, IMPROVES: 2}
TURNED = {WORSE: IMPROVES, NO_CHANGE: NO_CHANGE, IMPROVES: WORSE}
PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)
LOSSES = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=2, max_size=30)
ALLOWED = st.sampled_from([0, 0.02, 0.15])


def results(values: list[Any]) -> Results:
    return {str(number): value for number, value in enumerate(values)}


def compared(pairs: list[tuple[Any, Any]], delta: float) -> verdict.Compared:
    """The rule on rows that came out so before and after."""
    found = verdict.compare(results([one for one, _ in pairs]), results([one for _, one in pairs]), delta)
    assert found is not None
    return found


@given(PAIRS, ALLOWED)
def test_one_right_answer_more_never_makes_a_verdict_worse(pairs: list[tuple[bool, bool]], delta: float):
    wrong = next((i for i, (_, after) in enumerate(pairs) if not after), None)
    if wrong is not None:
        mended = [(before, after or i == wrong) for i, (before, after) in enumerate(pairs)]
        assert RANK[compared(pairs, delta).verdict] <= RANK[compared(mended, delta).verdict]


@given(st.one_of(PAIRS, LOSSES), ALLOWED)
def test_a_larger_allowance_never_makes_a_verdict_worse(pairs: list[tuple[Any, Any]], delta: float):
    one, other = compared(pairs, delta), compared(pairs, delta + 0.1)
    assert RANK[one.verdict] <= RANK[other.verdict]
    assert one.no_worse <= other.no_worse


@given(st.one_of(PAIRS, LOSSES))
def test_what_improves_one_way_is_worse_the_other(pairs: list[tuple[Any, Any]]):
    forth, back = compared(pairs, 0), compared([(after, before) for before, after in pairs], 0)
    assert back.verdict == TURNED[forth.verdict]
    assert (back.gain, back.p) == (-forth.gain, forth.p)


@given(st.one_of(PAIRS, LOSSES), ALLOWED)
def test_nothing_is_worse_within_its_allowance_and_nothing_changes_into_itself(
    pairs: list[tuple[Any, Any]], delta: float
):
    one, same = compared(pairs, delta), compared([(before, before) for before, _ in pairs], delta)
    assert (same.verdict, same.gain, same.p) == (NO_CHANGE, 0, 1)
    if one.gain >= -delta:
        assert one.verdict != WORSE
    if one.no_worse:
        assert one.low >= -delta - 1e-6


@given(PAIRS, st.randoms())
def test_rows_are_paired_by_their_ids_and_not_by_their_order(pairs, rng: random.Random):
    ids = [str(number) for number in range(len(pairs))]
    before, after = ({one: pair[i] for one, pair in zip(ids, pairs, strict=True)} for i in (0, 1))
    rng.shuffle(ids)
    assert verdict.compare(before, {one: after[one] for one in ids}, 0.02) == compared(pairs, 0.02)


def changed(lost: int, won: int, n: int) -> list[tuple[bool, bool]]:
    """Of n rows that many are lost and won; of the others half are right."""
    rest = n - lost - won
    same = [(one, one) for one in (True, False)]
    return [*[(True, False)] * lost, *[(False, True)] * won, *same * (rest // 2), *same[: rest % 2]]


@pytest.mark.parametrize(
    ("lost", "won", "n", "delta", "expected"),
    [
        (0, 5, 100, 0.02, NO_CHANGE),  # p = 0.0625
        (0, 6, 100, 0.02, IMPROVES),  # p = 0.03125, though the two intervals overlap
        (6, 0, 100, 0.02, WORSE),
        (6, 0, 100, 0.06, NO_CHANGE),  # no accident, but allowed
        (30, 20, 200, 0.02, NO_CHANGE),  # 5 points that may be an accident
        (60, 20, 200, 0.02, WORSE),
        (60, 20, 200, 0.2, NO_CHANGE),
    ],
)
def test_a_verdict_follows_from_the_rows_that_changed(lost, won, n, delta, expected):
    assert compared(changed(lost, won, n), delta).verdict == expected


def test_few_rows_cannot_show_that_nothing_is_lost():
    assert not compared(changed(0, 0, 40), 0.02).no_worse
    assert compared(changed(0, 0, 4000), 0.02).no_worse
    assert compared([(loss, loss) for loss in (1.0, 2.0, 3.0)], 0.02).no_worse
    least = -compared(changed(2, 4, 200), 0).low  # the smallest allowance that these rows keep to
    assert [compared(changed(2, 4, 200), least + more).no_worse for more in (0, -0.001)] == [True, False]


def test_what_cannot_be_compared_has_no_verdict():
    right = results([True] * 60)
    assert verdict.compare({}, right, 0.02) is None
    assert verdict.compare(results([2.0]), results([1.0]), 0.02) is None
    better = verdict.compare(results([False] * 60), right | {"another": True}, 0.02)
    assert better is not None
    assert (better.verdict, better.n, better.unpaired, better.no_worse) == (INCOMPLETE, 60, 1, False)


# ---- planted models ------------------------------------------------------------------------------


def gates_of(judged: dict[str, Any]) -> dict[str, str]:
    return {gate: one["verdict"] for gate, one in judged["gates"].items()}


def moved(judged: dict[str, Any]) -> dict[str, str]:
    return {rule: one["moved"] for rule, one in judged["rules"].items() if one["moved"] != NO_CHANGE}


def test_the_baseline_s_own_answers_change_nothing():
    judged = judge(BASE, of(random.Random(100).sample(model(), len(model()))))
    assert set(gates_of(judged).values()) == {NO_CHANGE}
    assert judged["verdict"] == NO_CHANGE
    assert moved(judged) == {}
    everything = [one for gate in judged["gates"].values() for one in gate["compared"].values()]
    assert {(one["gain"], one["p"]) for one in [*everything, *judged["rules"].values()]} == {(0, 1)}


@pytest.mark.parametrize(
    ("planted", "expected", "overall"),
    [
        ({}, {}, IMPROVES),
        ({"broken": {"pasos": 79, "base": 10}}, {"skills": NO_CHANGE}, NO_CHANGE),
        ({"calls": 0, "needless": 0}, {"tool_calls": WORSE}, WORSE),
        ({"calls": 100, "needless": 100}, {"tool_calls": WORSE}, WORSE),
        ({"broken": {}, "unasked": 100}, {"skills": WORSE}, WORSE),
        ({"replay": 60}, {"replay": WORSE}, WORSE),
        ({"nats": 1.5}, {"loss": WORSE}, WORSE),
    ],
    ids=["good", "skills stay", "never calls", "calls always", "starts skills", "forgets", "loss rises"],
)
def test_a_planted_model_is_caught_by_its_gate(planted, expected, overall):
    judged = judge(BASE, good(**planted))
    learned = {"loss": IMPROVES, "tool_calls": IMPROVES, "skills": IMPROVES, "replay": NO_CHANGE}
    assert gates_of(judged) == learned | expected
    assert judged["verdict"] == overall


@pytest.mark.parametrize(
    ("gate", "decides", "guard", "planted"),
    [
        ("tool_calls", "mcp_calls", "no_tool", {"calls": 100, "needless": 100}),
        ("skills", "skills", "near_miss", {"broken": {}, "unasked": 100}),
    ],
)
def test_a_gain_that_its_guard_pays_for_is_none(gate, decides, guard, planted):
    found = judge(BASE, good(**planted))["gates"][gate]
    assert found["guards"] == [guard]
    assert found["compared"][decides]["verdict"] == IMPROVES
    assert (found["compared"][guard]["verdict"], found["verdict"]) == (WORSE, WORSE)


def test_a_rule_that_breaks_is_named_and_no_other():
    steady = {"pasos": 8, "base": 10, "rama": 3}
    judged = judge(of(model(broken=steady)), of(model(broken=steady | {"base": 100})))
    assert moved(judged) == {f"skill-{i}/base": WORSE for i in (0, 1)}
    assert {one["moved"] for one in judged["by_skill"].values()} == {WORSE}
    assert gates_of(judged)["skills"] == WORSE


def test_many_rules_are_judged_together():
    def one_rule(rule: int, held: bool) -> Outcomes:
        rows: dict[str, Results] = {str(i): {"0": True} for i in range(20)}
        rows[str(rule)] = {str(i): held for i in range(6)}
        return {"rules": rows}

    judged = judge(one_rule(7, True), one_rule(7, False))["rules"]
    assert judged["7"]["p"] < stats.ALPHA < judged["7"]["adjusted_p"]
    assert judged["7"]["moved"] == NO_CHANGE
    alone = judge({"rules": {"7": one_rule(7, True)["rules"]["7"]}}, one_rule(7, False))["rules"]
    assert (alone["7"]["p"], alone["7"]["moved"]) == (alone["7"]["adjusted_p"], WORSE)


def test_a_rule_is_compared_where_it_applies_in_both():
    before: Outcomes = {"rules": {"a/b": {str(i): False for i in range(10)}, "a/old": {"0": True}}}
    after: Outcomes = {"rules": {"a/b": {str(i): True for i in range(4, 30)}, "a/new": {"0": True}}}
    found = judge(before, after)["rules"]
    assert (found["a/b"]["n"], found["a/b"]["moved"], found["a/b"]["gain"]) == (6, IMPROVES, 1)
    assert (found["a/b"]["base"]["n"], found["a/b"]["last"]["n"]) == (10, 26)
    for rule, missing in (("a/old", "last"), ("a/new", "base")):
        assert (found[rule]["moved"], found[rule]["p"], found[rule][missing]) == (INCOMPLETE, None, None)


# ---- what is missing, and what is kept -----------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "row", "gate"), [("skills", "skills", "skills"), ("tool_calls", "no_tool", "tool_calls")]
)
def test_a_gate_without_the_rows_that_decide_or_guard_it_is_incomplete(kind: str, row: str, gate: str):
    after = good()
    del after[kind][row]
    judged = judge(BASE, after)
    assert gates_of(judged)[gate] == judged["verdict"] == INCOMPLETE
    assert judged["gates"][gate]["reaches"] == (gate == "tool_calls")


def test_what_is_worse_is_so_whatever_else_is_missing():
    after = good(needless=100)
    del after["tool_calls"]["mcp_calls"]
    assert gates_of(judge(BASE, after))["tool_calls"] == WORSE


def test_a_row_that_one_side_lacks_is_not_silently_left_out():
    after = good()
    del after["tool_calls"]["mcp_calls"]["mcp_calls-99"]
    found = judge(BASE, after)["gates"]["tool_calls"]
    assert found["verdict"] == INCOMPLETE
    assert (found["compared"]["mcp_calls"]["n"], found["compared"]["mcp_calls"]["unpaired"]) == (99, 1)


def test_a_guard_that_nobody_was_asked_guards_nothing():
    base, after = of(model()), good()
    del base["skills"]["near_miss"], after["skills"]["near_miss"]
    found = judge(base, after)["gates"]["skills"]
    assert (found["guards"], found["verdict"]) == ([], IMPROVES)


def test_live_tasks_count_where_they_were_run():
    assert "live" not in judge(BASE, good())["gates"]
    assert gates_of(judge(of(model(live=2)), good(live=18)))["live"] == IMPROVES
    assert judge(of(model(live=18)), good(live=2))["verdict"] == WORSE
    assert judge(of(model(live=2)), good())["verdict"] == INCOMPLETE
    unnamed = {gate: one for gate, one in GATES.items() if gate != "live"}
    both = {name: of(model(live=2)) for name in ("base", "merged")}
    assert "live" not in verdict.judge(unnamed, both)["gates"]


def test_a_goal_stands_beside_the_verdict():
    judged = judge(BASE, good(broken={"pasos": 21}))["gates"]
    assert {gate: one["reaches"] for gate, one in judged.items()} == {
        "loss": True,
        "tool_calls": True,
        "skills": False,
        "replay": True,
    }
    assert judged["skills"]["verdict"] == IMPROVES


def test_what_is_kept_of_a_gain_is_told_for_each_row_that_has_one():
    merged, last = good(), good(calls=80, nats=0.5)
    kept = judge(BASE, merged, last)["kept"]
    assert kept["tool_calls"] == {"mcp_calls": pytest.approx(0.75)}  # (80 - 50) / (90 - 50); no_tool stays
    assert kept["skills"] == {"skills": 1, "held_out_skill": 1}
    assert kept["loss"]["trained"] == pytest.approx(0.8)
    assert "replay" not in kept
    assert judge(BASE, merged)["kept"] == {}
