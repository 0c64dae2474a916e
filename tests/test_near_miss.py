"""Requests near a skill that must not start it: the files of cases, the rows, and the gate."""

import copy
import functools
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from core import chat
from core.chat import Message, Row
from core.errors import UserError
from dataset_builder import sources as src
from dataset_builder.buckets import near_miss, negatives
from dataset_builder.documents.near_misses import FILE, load_near_misses
from dataset_builder.documents.procedures import procedure
from dataset_builder.documents.skills import Skill
from dataset_builder.talking.requests import load_requests
from dataset_builder.verifying import checks, split
from eval.gates import near_miss as gate
from tests import demonstrations, long_tasks
from tests.demonstrations import SKILLS, gold

HELD_OUT = "informe-historial"
ROOT = Path(__file__).parents[1]


@functools.cache
def sources() -> src.Sources:
    own = long_tasks.sources()
    return replace(
        own,
        requests=load_requests(ROOT / "examples/requests.yaml", own.tools),
        near_misses=[case for skill in SKILLS for case in load_near_misses(skill, own.tools)],
        procedures={skill.name: procedure(skill, own.tools) for skill in SKILLS},
        held_out_skills=(HELD_OUT,),
        skill_prompt="description",
        tools_shown=2,
    )


@functools.cache
def made(side: str) -> list[Row]:
    return near_miss.rows(sources(), random.Random(f"near {side}"), side, 40)


@functools.cache
def whole(skill: str | None) -> list[Message]:
    """The skill followed to its end."""
    return next(gold(row) for row in demonstrations.rows("eval") if row.skill == skill)


def called(messages: list[Message]) -> list[str]:
    return [call["function"]["name"] for one in messages for call in one.get("tool_calls") or []]


# ---- the rows ------------------------------------------------------------------------------------


def test_rows_pass_every_check_and_share_nothing_between_the_sides() -> None:
    sides = {side: made(side) for side in ("train", "dev", "eval")}
    for rows in sides.values():
        assert checks.keep(rows, sha256={}, rules_of=sources().rules)[1] == []
    assert split.leaks(sides["train"], sides["eval"]) == []
    assert split.leaks(sides["train"], sides["dev"]) == []
    assert split.held_out_skills_in(sides["train"], SKILLS, [HELD_OUT]) == []


def test_every_skill_has_near_misses_and_one_that_is_held_out_only_to_judge_by() -> None:
    assert {case.skill.name for case in sources().near_misses} == {skill.name for skill in SKILLS}
    assert {row.skill for row in made("eval")} == {skill.name for skill in SKILLS}
    assert {row.skill for row in made("train")} == {skill.name for skill in SKILLS} - {HELD_OUT}
    counted = Counter(row.skill for row in made("train"))
    assert max(counted.values()) - min(counted.values()) <= 1


def test_a_row_shows_the_skill_and_the_tools_of_its_steps() -> None:
    for row in made("eval"):
        assert row.messages[0]["content"].startswith(f"# Skill: {row.skill}\n")
        shown = {tool["function"]["name"] for tool in row.tools}
        assert set(called(whole(row.skill))) <= shown
        assert set(called(row.messages)) <= shown


def test_a_row_makes_one_call_and_closes_or_answers_at_once() -> None:
    for row in made("eval") + made("train"):
        roles = [message["role"] for message in gold(row)]
        assert roles in (["assistant"], ["assistant", "tool", "assistant"])
        assert len(called(gold(row))) == len(roles) // 2
        assert row.messages[-1]["content"]


def test_without_words_for_a_tool_its_cases_are_passed_over() -> None:
    rows = near_miss.rows(replace(sources(), requests=[]), random.Random(0), "train", 10)
    assert len(rows) == 10
    assert not any(called(row.messages) for row in rows)
    assert near_miss.rows(replace(sources(), near_misses=[]), random.Random(0), "train", 10) == []


# ---- the files -----------------------------------------------------------------------------------

CASE: dict[str, Any] = {"quote": "pushing", "say": "No.", "values": {"at": "path"}}
WORDS = {side: [f"Push {{at}} {side}"] for side in ("train", "dev", "eval")}
CALL = {"quote": "pushing", "call": "git.git_reset", "result": "done in {repo_path}", "say": "Done."}


def loaded(folder: Path, *cases: Any) -> list[Any]:
    path = folder / "SKILL.md"
    path.with_name(FILE).write_text(yaml.safe_dump(list(cases)), encoding="utf-8")
    skill = Skill(name="box", description="Packs. Not for pushing.", body="1. Pack.", path=path)
    return load_near_misses(skill, sources().tools)


def test_a_case_is_answered_by_a_call_or_by_words(tmp_path: Path) -> None:
    said, called = loaded(tmp_path, CASE | {"requests": WORDS}, CALL)
    assert (said.call, said.wordings["dev"]) == ("", ("Push {at} dev",))
    assert (called.call, called.result, called.wordings) == ("git.git_reset", "done in {repo_path}", {})
    (tmp_path / FILE).unlink()
    assert load_near_misses(said.skill, {}) == []


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ([], "expected a list of cases"),
        (["x"], "case 1: expected `name: value` lines"),
        ([CASE], "case 1: requests is missing; a case has quote, call, result, say or quote, requests, say"),
        ([CALL | {"request": {}}], "unknown key 'request'"),
        ([CASE | {"requests": WORDS}, CALL | {"call": "git.git_rest"}], "case 2: git.git_rest is not among"),
        ([CALL | {"quote": "pulling"}], "quote 'pulling' is not in SKILL.md; copy it word for word"),
        ([CALL | {"say": "Done {at}."}], "{at} is neither in values nor a required argument of the call"),
        ([CASE | {"requests": WORDS, "values": {"it": "path"}}], "{at} is neither in values"),
        ([CASE | {"requests": WORDS, "values": {"at": "pth"}}], "at has the unknown kind 'pth'"),
        ([CASE | {"requests": {"train": ["Push {at}"]}}], "requests: dev must be a list of wordings"),
        ([CASE | {"requests": WORDS | {"dev": WORDS["eval"]}}], "stands in case 1 eval and in case 1 dev"),
    ],
)  # fmt: skip
def test_a_broken_file_says_what_and_where(tmp_path: Path, cases: list[Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        loaded(tmp_path, *cases)
    assert str(caught.value).startswith(str(tmp_path / FILE))
    assert "\n" not in str(caught.value)
    assert message in str(caught.value)


# ---- the gate ------------------------------------------------------------------------------------


def test_gold_is_right() -> None:
    for row in made("eval") + made("train"):
        assert gate.is_near_miss(row)
        assert gate.score(row, gold(row)) == gate.Score(True, "")


def test_the_whole_procedure_is_wrong_and_so_is_any_step_that_is_not_due() -> None:
    for row in made("eval"):
        trace = whole(row.skill)
        assert not gate.score(row, trace).right
        for message in trace:
            if set(called([message])) - set(called(row.messages)):
                found = gate.score(row, [message, chat.result("ok"), chat.say("Hecho.", think="")])
                assert found == gate.Score(False, f"started the procedure: {called([message])[0]}")


def test_a_report_without_calls_is_wrong_wherever_it_begins() -> None:
    for row in made("eval"):
        report = whole(row.skill)[-1]
        heading = report["content"].split("\n")[0]
        expected = gate.Score(False, f"started the report: {heading}")
        assert gate.score(row, [report]) == expected
        assert gate.score(row, [chat.say(f"Claro.\n\n{heading}\nUno.", think="")]) == expected
        assert gate.score(row, [chat.say("## Nota\nUno.", think=report["content"])]).right


def test_other_words_and_other_calls_are_none_of_this_gate_s() -> None:
    for row in made("eval"):
        other = chat.call("mcp__notes__find", {"text": "x"}, think="")
        for trace in (
            [chat.say("¿Qué necesitas?", think="")],
            [other, chat.result(""), chat.say("Ya.", think="")],
        ):
            assert gate.score(row, trace).right


@pytest.mark.parametrize("silent", [chat.say("", think="Pienso."), chat.say("", think="")])
def test_silence_is_wrong_at_once_and_after_a_call(silent: Message) -> None:
    for row in made("eval"):
        dead = gate.Score(False, "dead turn: neither text nor call")
        assert gate.score(row, []) == gate.score(row, [silent]) == dead
        assert gate.score(row, [*copy.deepcopy(gold(row)[:-1]), silent]) == dead


def test_requests_near_a_skill_among_the_negatives_are_judged_so_by_drafted_rules_as_well() -> None:
    own = long_tasks.sources()
    rows = negatives.rows(own, random.Random(1), "eval", 90)
    near = [row for row in rows if gate.is_near_miss(row)]
    assert {"documentar-issue", "convocar-reunion"} <= {row.skill for row in near}
    assert {row.meta["kind"] for row in rows if row not in near} == set(negatives.KINDS) - {gate.NOT_DUE}
    for row in near:
        assert gate.score(row, gold(row)).right
        if row.skill == "documentar-issue":
            read = chat.call("mcp__atlassian__jira_get_issue", {"issue_key": "A-1"}, think="")
            assert not gate.score(row, [read, chat.result("{}"), chat.say("Hecho.", think="")]).right
    assert not any(gate.is_near_miss(row) for row in demonstrations.rows("eval"))
