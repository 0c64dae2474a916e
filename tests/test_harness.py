"""Inspect as our harness: every case is answered or named, and an interrupted run goes on."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from core import endpoint
from core.chat import Message
from core.endpoint import Question
from core.errors import UserError
from eval import row_cases
from eval.cases import Case
from eval.inspecting import messages as inspecting
from eval.inspecting.run import Result, run
from eval.models.served import ServedModel
from tests.demonstrations import gold, opening, rows
from tests.model_server import JSON, Reply, completion, serve
from tests.planted_models import Planted, hold, right, turns


def test_every_case_is_asked_once_word_for_word_and_scored(tmp_path: Path) -> None:
    sample = turns(12)
    model = Planted(right)
    cases = row_cases.of(sample)
    found = hold(tmp_path, cases, model)
    assert [case.id for case, _, _ in found] == [case.id for case in cases]
    assert all(score["right"] for _, _, score in found)
    assert Counter(case.kind for case in cases) == {"tool_calls": 12, "thinking_off": 6}
    assert sum(model.asked.values()) == 18
    assert set(model.asked.values()) == {1}
    off = [json.loads(key)[0] for key in model.asked if not json.loads(key)[1]]
    assert off == [row.messages[:1] for row in sample if row.bucket == "mcp_calls"]
    assert list((tmp_path / "logs").glob("*.eval")), "nothing for make eval-view"


def test_what_was_answered_is_not_asked_again_after_a_failure(tmp_path: Path) -> None:
    cases = row_cases.of(turns(12))

    def fails_at_seven(question: Question) -> Message:
        if question.messages[0]["content"] == "question 7":
            raise UserError("the server is gone")
        return right(question)

    with pytest.raises(UserError, match=r"2 of 18 cases .*\(the server is gone\).*the same command"):
        hold(tmp_path, cases, Planted(fails_at_seven))
    mended = Planted(right)
    found = hold(tmp_path, cases, mended)
    assert [score["right"] for _, _, score in found] == [True] * 18
    assert {json.loads(key)[0][0]["content"] for key in mended.asked} == {"question 7"}
    other = Planted(right)
    hold(tmp_path, cases, other, checkpoint="1")
    assert sum(other.asked.values()) == 18, "another checkpoint's answers are not this one's"


def test_a_defect_of_ours_keeps_its_traceback(tmp_path: Path) -> None:
    def broken(question: Question) -> Message:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hold(tmp_path, row_cases.of(turns(2)), Planted(broken))


def test_whole_rollouts_run_beside_single_turns(tmp_path: Path) -> None:
    sample = rows("eval")[:6]

    def as_demonstrated(question: Question) -> Message:
        row = next(row for row in sample if row.messages[: opening(row)] == question.messages[: opening(row)])
        return row.messages[len(question.messages)]

    found = hold(tmp_path, row_cases.of([*sample, *turns(2)]), Planted(_first_of(as_demonstrated, right)))
    assert [trace for case, trace, _ in found if case.kind == "skills"] == [gold(row) for row in sample]
    assert all(score["right"] for _, _, score in found)


def _first_of(*answers: Callable[[Question], Message]) -> Callable[[Question], Message]:
    def answer(question: Question) -> Message:
        for one in answers:
            try:
                return one(question)
            except StopIteration:
                continue
        raise AssertionError("nobody knows")

    return answer


def test_a_conversation_reads_the_same_in_the_viewer() -> None:
    row = rows("eval")[0]
    shown = inspecting.as_inspect(row.messages)
    assert [message.role for message in shown] == [message["role"] for message in row.messages]
    for ours, theirs in zip(row.messages, shown, strict=True):
        assert theirs.text == (ours.get("content") or "")
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in ours.get("tool_calls") or []]
        made = getattr(theirs, "tool_calls", None) or []
        assert [(call.function, call.arguments) for call in made] == calls


# ---- a server ----------------------------------------------------------------------------------


def served(place: Path, cases: list[Case], reply: Reply) -> tuple[list[Result], int]:
    """Run cases against a stand-in server; what came of it, and how often it was asked."""
    with serve(reply) as server:
        found = endpoint.connect(server.url)
        quick = replace(found, seconds=0.5, wait=0.01)

        async def ask() -> list[Result]:
            async with ServedModel(quick) as model:
                return await run(
                    cases, model, checkpoint="0", max_tokens=32, log_dir=place / "logs",
                    cache_dir=place / "answers", what="test",
                )  # fmt: skip

        try:
            return anyio.run(ask), len(server.asked)
        finally:
            place.joinpath("asked").write_text(str(len(server.asked)))


def well(body: dict[str, Any], before: int) -> tuple[int, dict[str, str], bytes]:
    number = int(body["messages"][0]["content"].split()[-1])
    if number % 2 == 0:
        return 200, JSON, completion("De nada.")
    function = {"name": "clock", "arguments": '{"zone": "UTC"}'}
    return 200, JSON, completion("", tool_calls=[{"id": "1", "type": "function", "function": function}])


def stalls_once(body: dict[str, Any], before: int) -> tuple[int, dict[str, str], bytes]:
    if before == 0 and body["messages"][0]["content"] == "question 3":
        import time

        time.sleep(0.8)
    return well(body, before)


def fails_twice(body: dict[str, Any], before: int) -> tuple[int, dict[str, str], bytes]:
    return (500, JSON, b"{}") if before < 2 else well(body, before)


@pytest.mark.parametrize("reply", [well, stalls_once, fails_twice])
def test_a_server_that_stalls_or_fails_for_a_while_costs_no_case(tmp_path: Path, reply: Reply) -> None:
    found, _ = served(tmp_path, row_cases.of(turns(8)), reply)
    assert [score["right"] for _, _, score in found] == [True] * 12


def broken_json(body: dict[str, Any], before: int) -> tuple[int, dict[str, str], bytes]:
    return (200, JSON, b'{"choices": [{') if "5" in body["messages"][0]["content"] else well(body, before)


def no_completion(body: dict[str, Any], before: int) -> tuple[int, dict[str, str], bytes]:
    return (200, JSON, b'{"ok": 1}') if "5" in body["messages"][0]["content"] else well(body, before)


def too_long(body: dict[str, Any], before: int) -> tuple[int, dict[str, str], bytes]:
    error = b'{"error": "the prompt is too long"}'
    return (400, JSON, error) if "5" in body["messages"][0]["content"] else well(body, before)


def dies(body: dict[str, Any], before: int) -> tuple[int, dict[str, str], bytes]:
    return (503, JSON, b"") if int(body["messages"][0]["content"].split()[-1]) > 1 else well(body, before)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (broken_json, "answers application/json instead of JSON"),
        (no_completion, "not a chat completion"),
        (too_long, "HTTP 400"),
        (dies, "HTTP 503, 5 times"),
    ],
)
def test_a_case_without_an_answer_stops_the_stage_and_the_next_run_asks_only_it(
    tmp_path: Path, reply: Reply, reason: str
) -> None:
    cases = row_cases.of(turns(8))
    with pytest.raises(UserError, match=reason) as caught:
        served(tmp_path, cases, reply)
    assert "\n" not in str(caught.value)
    missing = int(str(caught.value).split()[0])
    assert 0 < missing < len(cases)
    found, asked = served(tmp_path, cases, well)
    assert [score["right"] for _, _, score in found] == [True] * len(cases)
    assert asked == missing
