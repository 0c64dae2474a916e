"""Evaluation: rates with true intervals, answers judged part by part, base and merged on the same rows."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import chat
from core.chat import Row
from eval import stats
from eval.gates import tool_calls
from tests.conftest import run_make

TOOL = chat.tool(
    "mcp__git__git_log",
    "Shows commits",
    {
        "properties": {"repo_path": {"type": "string"}, "max_count": {"type": "integer"}},
        "required": ["repo_path"],
        "type": "object",
    },
)
GOLD = chat.call("mcp__git__git_log", {"repo_path": "web/api", "max_count": 3}, think="Use it.")
CALL = "<tool_call>\n<function=mcp__git__git_log>\n{}</function>\n</tool_call>"
PATH = "<parameter=repo_path>\nweb/api\n</parameter>\n"
COUNT = "<parameter=max_count>\n3\n</parameter>\n"


def row(messages: list[chat.Message], train_turns: list[int] | None = None) -> Row:
    return Row(
        id="r", bucket="b", group="g", split="eval", messages=messages, tools=[TOOL], train_turns=train_turns
    )


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


def test_only_intervals_apart_decide():
    assert stats.compare(stats.rate(10, 100), stats.rate(90, 100)) == "improves"
    assert stats.compare(stats.rate(90, 100), stats.rate(10, 100)) == "worse"
    assert stats.compare(stats.rate(50, 100), stats.rate(55, 100)) == "no_change"


@pytest.mark.parametrize(
    ("answer", "explanation"),
    [
        ("Use it.\n</think>\n\n" + CALL.format(PATH + COUNT), ""),
        ("Use it.\n</think>\n\n" + CALL.format(COUNT + PATH), ""),
        ("Use it.\n</think>\n\n" + CALL.format(PATH), "wrong values"),
        ("Use it.\n</think>\n\n" + CALL.format(PATH + COUNT.replace("3", "4")), "wrong values"),
        ("Use it.\n</think>\n\n" + CALL.format(PATH + COUNT.replace("3", "three")), "invalid"),
        ("Use it.\n</think>\n\n" + CALL.format(COUNT), "invalid"),
        ("Use it.\n</think>\n\n" + CALL.format(PATH + COUNT).replace("log", "show"), "wrong tool"),
        ("Use it.\n</think>\n\n" + 2 * CALL.format(PATH + COUNT), "2 calls"),
        ("Use it.\n</think>\n\nHecho.", "0 calls"),
        ("I keep thinking", "0 calls"),
    ],
)
def test_a_due_call_is_right_only_in_every_part(answer, explanation):
    score = tool_calls.score(row([chat.user("x"), GOLD]), answer)
    assert score.right == (explanation == "")
    assert explanation in score.explanation


def test_where_no_call_is_due_text_is_right_a_call_and_silence_are_wrong():
    example = row([chat.user("gracias"), chat.say("De nada.", think="t")])
    assert tool_calls.score(example, "t\n</think>\n\nNo hay de qué.").right
    assert "no call is due" in tool_calls.score(example, "t\n</think>\n\n" + CALL.format(PATH)).explanation
    assert "dead turn" in tool_calls.score(example, "thinking and thinking").explanation


def test_the_model_sees_the_history_up_to_the_first_trained_turn():
    wrong = chat.call("mcp__git__git_log", {}, think="t")
    example = row([chat.user("x"), wrong, chat.result("error"), GOLD, chat.result("ok")], [1])
    assert tool_calls.target(example) == 3
    assert tool_calls.history(example) == example.messages[:3]


def test_both_checkpoints_answer_every_held_out_row_once(project):
    done = run_make(project, "eval", "PROFILE=mini")
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    rows = chat.read_rows(project / "data/mini/dataset/eval.jsonl")
    for name in ("base", "merged"):
        lines = (project / f"out/mini/eval/{name}/samples.jsonl").read_text().splitlines()
        assert [json.loads(line)["id"] for line in lines] == [row.id for row in rows]
        counts = json.loads((project / f"out/mini/eval/{name}/manifest.json").read_text())["counts"]
        right = sum(json.loads(line)["right"] for line in lines)
        assert sum(rate["k"] for rate in counts.values()) == right
        assert sum(rate["n"] for rate in counts.values()) == len(rows)
    assert re.search(r"eval: tool-call validity [\d.]+% -> [\d.]+%: (improves|no_change|worse)", done.stdout)
    again = run_make(project, "eval", "PROFILE=mini")
    assert again.stdout.count("eval: up to date") == 2


def test_a_gain_that_is_not_there_is_a_negative_verdict(project):
    """The mini profile trains for seconds: its verdict must follow from the intervals, whatever they are."""
    done = run_make(project, "eval", "PROFILE=mini")
    improves = ": improves (" in done.stdout
    assert done.returncode == (0 if improves else 2)
