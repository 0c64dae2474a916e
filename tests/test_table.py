"""What the terminal shows of the gates: every row, every guard, and the rules that moved."""

from typing import Any

from core.verdicts import WORSE
from eval import outcomes, table
from eval.gates import tool_calls
from eval.outcomes import Outcomes
from tests.judging import BASE, RULES, good, judge, model, of

LONGEST_LINE = 155


def lines_of(found: dict[str, Any], *names: str) -> list[str]:
    return [*table.rows(found, names), *table.gates(found), *table.rules(found)]


def test_the_tables_name_every_row_gate_and_rule_that_moved():
    planted = good(calls=100, needless=100, broken=dict.fromkeys(RULES, 100), live=3)
    judged = judge(of(model(live=3)), good(live=3), planted)
    lines = lines_of(judged, "base", "merged", "nvfp4")
    text = "\n".join(lines)
    assert max(map(len, lines)) <= LONGEST_LINE
    for gate, found in judged["gates"].items():
        assert table.GATES[gate] in text
        for row, one in found["nvfp4"].items():
            assert f"{table.TITLES[gate][row]:<27} {one['n']:>4}  " in text
    assert "no call when none is due" in next(line for line in table.gates(judged)[1:] if WORSE in line)
    said, *named = table.rules(judged)
    assert said.startswith("of 8 rules 0 improve and 8 are worse")
    assert sorted(line.split()[0] for line in named) == sorted(judged["rules"])


def test_of_very_many_rules_the_worst_are_named():
    before: Outcomes = {"rules": {f"s/{i}": {str(n): i < 3 for n in range(30)} for i in range(30)}}
    after: Outcomes = {"rules": {f"s/{i}": {str(n): i >= 3 for n in range(30)} for i in range(30)}}
    named = table.rules(judge(before, after))
    assert len(named) == 1 + table.MOST_RULES
    assert [WORSE in line for line in named[1:]] == [True] * 3 + [False] * 5
    assert table.rules(judge(before, before)) == []


def test_faults_are_told_by_checkpoint():
    counts = {"base": outcomes.counts(BASE), "merged": outcomes.counts(good())}
    lines = table.faults(counts)
    assert lines[0].split() == ["turns", "with", "calls", "n", "base", "merged"]
    assert [line[:27].strip() for line in lines[1:]] == [
        *outcomes.STEPS,
        tool_calls.NEEDLESS,
        tool_calls.NO_CALL,
    ]
    assert " 200   70.0%" in lines[1]
    assert "  89.0%" in lines[1]


def test_the_line_of_what_is_kept_is_that_of_the_row_that_decides():
    judged = judge(BASE, good(), good(calls=80))
    assert table.kept(judged) == [
        "nvfp4 keeps 75% of the gain in tool calls",
        "nvfp4 keeps 100% of the gain in skills",
        "nvfp4 keeps 100% of the gain in loss",
    ]
    assert table.kept(judge(BASE, good())) == []


def test_a_checkpoint_alone_has_the_same_rows_as_beside_another():
    alone, beside = table.measured(BASE), table.rows(judge(BASE, BASE), ["base", "merged"])
    assert len(alone) == len(beside) > 10
    assert all(line.startswith(own) for own, line in zip(alone, beside, strict=True))
