"""Samples become rows: each counts where it belongs, whatever their order, and none is lost."""

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import rules
from eval import outcomes, stats
from eval.gates import tool_calls
from eval.outcomes import Outcomes, Sample

OF_DUE = (
    tool_calls.NO_CALL,
    tool_calls.NUMBER,
    tool_calls.TOOL,
    tool_calls.INVALID,
    tool_calls.VALUES,
)
ANYWHERE = (tool_calls.DEAD, tool_calls.LOST)


def sample(kind: str, number: int, bucket: str, skill: str | None = None, **found: Any) -> Sample:
    """One sample; right unless told otherwise."""
    about = {"kind": kind, "id": f"{bucket}-{number}", "bucket": bucket, "skill": skill}
    return about | ({} if kind == "loss" else {"right": True}) | found


def call(number: int, bucket: str = "mcp", fault: str = "", *, due: bool = True) -> Sample:
    """One answer where a call is due, or none."""
    return sample("tool_calls", number, bucket, right=not fault, fault=fault, due=due)


def of(samples: list[Sample]) -> Outcomes:
    return outcomes.outcomes(samples, held_out=("new",))


SAMPLES = [
    *(sample("loss", 1, bucket, loss=float(i)) for i, bucket in enumerate(outcomes.ROW_OF)),
    call(1, "mcp"),
    call(1, "penpot", tool_calls.VALUES),
    call(1, "negatives", tool_calls.NEEDLESS, due=False),
    call(1, "replay", due=False),
    sample("thinking_off", 1, "mcp", right=False),
    sample(
        "skills",
        1,
        "adherence",
        "new",
        right=False,
        findings=[
            {"rule": "order", "verdict": rules.BROKEN},
            {"rule": "kept", "verdict": rules.HOLDS},
            {"rule": "elsewhere", "verdict": rules.NOT_APPLICABLE},
            {"rule": "read", "verdict": rules.NOT_JUDGED},
        ],
    ),
    sample("skills", 2, "skills", "old", findings=[{"rule": "order", "verdict": rules.HOLDS}]),
    sample("near_miss", 1, "negatives", "old"),
    sample("live", 1, "live", findings=[]),
    sample("live", 2, "live", "old", right=False, findings=[{"rule": "order", "verdict": rules.BROKEN}]),
    sample("formality", 1, "formal"),
]


def test_every_sample_counts_where_it_belongs():
    found = of([one for one in SAMPLES if one["kind"] != "loss"])
    assert {kind: {row: list(own.values()) for row, own in rows.items()} for kind, rows in found.items()} == {
        "loss": {},
        "tool_calls": {
            "mcp_calls": [True, False],
            "no_tool": [False],
            "replay": [True],
            "thinking_off": [False],
        },
        "skills": {"skills": [False, True], "held_out_skill": [False], "near_miss": [True]},
        "live": {"live": [True, False], "live_servers": [True], "live_skills": [False]},
        "formality": {"formal": [True]},
        "rules": {"new/order": [False], "new/kept": [True], "old/order": [True]},
        "by_skill": {"new": [False], "old": [True]},
        "steps": {
            "called": [True, True],
            "right tools": [True, True],
            "valid": [True, True],
            "right values": [True, False],
        },
        "faults": {
            **{fault: [False] * 2 for fault in OF_DUE},
            **{fault: [False] * 4 for fault in ANYWHERE},
            tool_calls.VALUES: [False, True],
            tool_calls.NEEDLESS: [True, False],
        },
    }


def test_the_loss_keeps_what_the_base_knew_apart():
    found = of(SAMPLES)["loss"]
    assert set(found) == {*outcomes.ROWS, outcomes.TRAINED}
    known = {f"{bucket}-1" for bucket in outcomes.KNOWN}
    assert found[outcomes.TRAINED].keys() == {f"{bucket}-1" for bucket in outcomes.ROW_OF} - known
    assert found[outcomes.REPLAY].keys() | found[outcomes.GENERAL].keys() == known


@given(st.permutations(SAMPLES))
def test_the_order_of_samples_does_not_matter(shuffled: list[Sample]):
    assert of(shuffled) == of(SAMPLES)
    assert json.dumps(outcomes.counts(of(shuffled))) == json.dumps(outcomes.counts(of(SAMPLES)))


TURNS = st.lists(
    st.one_of(
        st.tuples(st.just(True), st.sampled_from(["", *OF_DUE, *ANYWHERE])),
        st.tuples(st.just(False), st.sampled_from(["", tool_calls.NEEDLESS, *ANYWHERE])),
    ),
    min_size=1,
)


@given(TURNS)
def test_every_turn_is_right_or_has_one_fault(turns: list[tuple[bool, str]]):
    found = of([call(i, fault=fault, due=due) for i, (due, fault) in enumerate(turns)])
    happened = Counter(fault for _, fault in turns)
    assert {fault: sum(own.values()) for fault, own in found["faults"].items()} == {
        fault: happened[fault] for fault in found["faults"]
    }
    assert set(happened) - {""} <= set(found["faults"])
    reached = [sum(found["steps"].get(step, {}).values()) for step in outcomes.STEPS]
    assert reached == sorted(reached, reverse=True)
    assert reached[-1] == sum(due and not fault for due, fault in turns)
    assert reached[0] == sum(due and fault not in (tool_calls.NO_CALL, *ANYWHERE) for due, fault in turns)


def test_counts_are_the_statistics_of_each_row():
    right = [call(i, fault="" if i < 7 else tool_calls.NO_CALL) for i in range(10)]
    found = outcomes.counts(of([*right, *(sample("loss", i, "mcp", loss=0.1 * i) for i in range(9))]))
    assert found["tool_calls"] == {"mcp_calls": asdict(stats.rate(7, 10))}
    assert stats.from_json(found["loss"]["mcp_calls"]) == stats.mean_loss([0.1 * i for i in range(9)])
    assert found["skills"] == {}


@pytest.mark.parametrize(
    "wrong", [SAMPLES[-1], sample("loss", 1, "a new bucket", loss=1.0), sample("a new kind", 1, "mcp")]
)
def test_a_sample_that_counts_nowhere_or_twice_is_an_error(wrong: Sample):
    with pytest.raises((AssertionError, KeyError, ValueError)):
        of([*SAMPLES, wrong])
