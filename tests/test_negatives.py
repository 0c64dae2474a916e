"""When not to call: four outcomes, skills that are not due, namesakes on other servers."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from core.chat import Row
from dataset_builder.buckets import negatives
from dataset_builder.documents.procedures import procedure
from dataset_builder.documents.skills import load_skills
from dataset_builder.talking import prompts
from tests.conftest import ROOT
from tests.five_servers import TOOLS, StandIn, made


def of_kind(kind: str) -> list[Row]:
    """Training rows of one outcome."""
    found = [row for row in made("negatives", "train", 50) if row.meta["kind"] == kind]
    assert found, kind
    return found


def calls(row: Row) -> list[dict[str, Any]]:
    """The functions that a row calls."""
    return [call["function"] for message in row.messages for call in message.get("tool_calls") or []]


def request(row: Row) -> str:
    """What the user says."""
    return next(m["content"] for m in row.messages if m["role"] == "user")


def with_skills(held_out: tuple[str, ...] = ()) -> Any:
    """The stand-in with the example skills."""
    skills = load_skills([ROOT / "examples/skills"])
    procedures = {skill.name: procedure(skill, TOOLS) for skill in skills}
    return replace(StandIn(), skills=skills, procedures=procedures, held_out_skills=held_out)


def test_the_outcomes_come_in_equal_parts():
    found = Counter(row.meta["kind"] for row in made("negatives", "train", 50))
    assert found.keys() == {"direct", "call", "request_for_info", "cannot_answer", "wrong_server"}
    assert max(found.values()) - min(found.values()) <= 1


def test_only_two_outcomes_call():
    for row in made("negatives", "train", 50):
        assert bool(calls(row)) == (row.meta["kind"] in ("call", "wrong_server"))


def test_a_sum_is_right():
    for row in of_kind("direct"):
        said = row.messages[-1]["content"]
        if "×" in said:
            product, _, result = said.rstrip(".").partition(" = ")
            a, b = map(int, product.split(" × "))
            assert a * b == int(result)
            assert str(a) in request(row)
            assert str(b) in request(row)


def test_what_is_asked_for_is_required_and_was_not_said():
    for row in of_kind("request_for_info"):
        key = row.group.partition(":")[0]
        missing = row.group.rpartition(" without ")[2]
        assert missing in TOOLS[key].required
        assert f"`{missing}`" in row.messages[-1]["reasoning_content"]
        assert TOOLS[key].shown_name in {tool["function"]["name"] for tool in row.tools}


def test_what_cannot_be_done_is_beyond_every_tool_shown():
    for row in of_kind("cannot_answer"):
        key = row.group.partition(":")[0]
        shown = [
            tool for tool in TOOLS.values() if tool.shown_name in {t["function"]["name"] for t in row.tools}
        ]
        assert shown
        assert not any(prompts.acts_of(TOOLS[key]) & prompts.acts_of(tool) for tool in shown)


def test_of_two_namesakes_the_one_that_the_user_names_is_called():
    for row in of_kind("wrong_server"):
        (call,) = calls(row)
        _, server, name = call["name"].split("__")
        shown = [t["function"]["name"].split("__") for t in row.tools]
        assert len({other for _, other, bare in shown if bare == name}) > 1
        assert {"github": "GitHub", "gitea": "Gitea"}[server] in request(row)


def test_a_skill_is_not_started_for_what_it_excludes_and_a_held_out_one_never_in_training():
    sources = with_skills()
    rows = negatives.rows(sources, random.Random(0), "train", 60)
    missed = [row for row in rows if row.meta["kind"] == "skill_not_due"]
    assert missed
    for row in missed:
        name = row.group.partition(":")[0]
        assert row.skill == name
        assert row.messages[0]["content"].startswith(f"# Skill: {name}")
        assert any(quote in row.messages[-1]["content"] for quote in sources.procedures[name].not_when)
        assert not calls(row)
    names = {row.group.partition(":")[0] for row in missed}
    hidden = with_skills(tuple(names))
    again = negatives.rows(hidden, random.Random(0), "train", 60)
    assert not any(row.meta["kind"] == "skill_not_due" for row in again)
