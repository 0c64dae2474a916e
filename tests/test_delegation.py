"""Rows that delegate to subagents, and rows that had better not."""

import functools
import random
from collections import Counter
from dataclasses import replace

import pytest

from core import chat
from core.chat import Row
from core.toolcalls import faults
from dataset_builder.buckets import delegation
from dataset_builder.documents.agents import Agent
from dataset_builder.talking.results import plain
from dataset_builder.verifying import checks, rendering, split
from tests import long_tasks

KINDS = {"delegated", "direct", "parallel", "no_agent_fits", "failed_once", "failed_twice", "partial"}
REVIEWER = Agent(
    name="code-reviewer",
    description="Use this agent when you need to review code for bugs. It reads and never edits.",
    tools=("Read", "Grep"),
    body="",
    path=long_tasks.ROOT / "agents/code-reviewer.md",
)


@functools.cache
def made(side: str = "train", count: int = 56) -> list[Row]:
    return delegation.rows(long_tasks.sources(), random.Random(f"delegation {side}"), side, count)


def of_kind(*kinds: str) -> list[Row]:
    return [row for row in made() if row.meta["kind"] in kinds]


def turns(row: Row) -> list[list[checks.ToolCall]]:
    return [checks.calls(row.messages[place]) for place in chat.assistant_turns(row.messages)]


def tasks(row: Row) -> list[checks.ToolCall]:
    return [call for turn in turns(row) for call in turn if call.name == delegation.NAME]


def agent_names() -> set[str]:
    return {agent.name for agent in long_tasks.sources().agents}


def test_every_kind_is_made_and_the_same_seed_gives_the_same_rows() -> None:
    assert {row.meta["kind"] for row in made()} == KINDS
    assert len(made()) == 56
    again = delegation.rows(long_tasks.sources(), random.Random("delegation train"), "train", 8)
    assert again == made()[:8]


def test_every_row_passes_all_checks() -> None:
    kept, dropped = checks.keep([*made(), *made("eval", 21)], sha256={}, rules_of={})
    assert dropped == []
    assert len({row.id for row in kept}) == 77


def test_rows_render_and_their_mask_is_true(tokenizer) -> None:
    first = {row.meta["kind"]: row for row in made()}
    kept, dropped = rendering.keep(list(first.values()), tokenizer, 200_000)
    assert dropped == []
    assert len(kept) == len(KINDS)


def test_sides_share_nothing() -> None:
    train, dev, evaluation = made(), made("dev", 21), made("eval", 21)
    assert split.leaks(train, evaluation) == []
    assert split.leaks(train, dev) == []
    assert split.leaks(dev, evaluation) == []


def test_the_task_tool_lists_every_agent_and_each_row_shows_it() -> None:
    tool = delegation.task_tool(long_tasks.sources().agents)
    for agent in long_tasks.sources().agents:
        assert " ".join(agent.description.split()) in tool["function"]["description"]
    assert all(tool in row.tools for row in made())


def test_a_prompt_carries_every_value_and_names_a_known_agent() -> None:
    for row in made():
        request = row.messages[1 if row.messages[0]["role"] == "system" else 0]["content"]
        for call in tasks(row):
            assert faults(call, row.tools) == []
            assert call.arguments["subagent_type"] in agent_names()
            told = [
                line.split(": ", 1)[1] for line in call.arguments["prompt"].split("\n") if line[:2] == "- "
            ]
            assert told
            assert all(value in request for value in told)


def test_what_a_subagent_brings_is_told_and_nothing_else() -> None:
    for row in of_kind("delegated", "parallel", "failed_once"):
        results = [m["content"] for m in row.messages if m["role"] == "tool" and "Error" not in m["content"]]
        lines = [line for result in results for line in result.split("\n") if line.startswith("- ")]
        said = [line for line in row.messages[-1]["content"].split("\n") if line.startswith("- ")]
        assert said == lines != []


def test_independent_jobs_go_out_in_one_turn() -> None:
    for row in of_kind("parallel"):
        assert [len(turn) for turn in turns(row)] == [2, 0]
        assert len(tasks(row)) == 2


def test_small_things_and_what_no_agent_is_for_are_done_directly() -> None:
    tools = {tool.shown_name: tool for tool in long_tasks.sources().tools.values()}
    owned = {name for agent in long_tasks.sources().agents for name in agent.tools}
    for row in of_kind("direct", "no_agent_fits"):
        assert tasks(row) == []
        (call,) = [call for turn in turns(row) for call in turn]
        is_owned = call.name in owned
        assert is_owned == (row.meta["kind"] == "direct")
        assert tools[call.name].fault_in(call.arguments) is None


def test_a_failure_is_tried_again_once_and_then_told() -> None:
    for row in of_kind("failed_once", "failed_twice"):
        first, second = tasks(row)
        assert first == second
        errors = [m["content"] for m in row.messages if m["content"] in delegation.ERRORS]
        twice = row.meta["kind"] == "failed_twice"
        assert len(errors) == 1 + twice
        assert (errors[0] in row.messages[-1]["content"]) == twice


def test_a_partial_result_is_checked_with_values_that_were_told() -> None:
    for row in of_kind("partial"):
        request = next(m["content"] for m in row.messages if m["role"] == "user")
        delegated, looked, closed = turns(row)
        assert delegated
        assert closed == []
        assert all(plain(value) in request for value in looked[0].arguments.values())


@pytest.mark.parametrize("agent", [REVIEWER, replace(REVIEWER, tools=())])
def test_agents_without_known_tools_can_be_delegated_to(agent: Agent) -> None:
    source = replace(long_tasks.sources(), agents=[agent])
    rows = delegation.rows(source, random.Random(3), "train", 12)
    counts = Counter(row.meta["kind"] for row in rows)
    assert len(rows) == 12
    assert counts.keys() >= {"delegated", "parallel"}
    # Whoever may use all tools may be for everything.
    assert ("no_agent_fits" in counts) == bool(agent.tools)
    asked = [m["content"] for row in rows if tasks(row) for m in row.messages if m["role"] == "user"]
    assert all("eview code for bugs" in text and "Use this agent" not in text for text in asked)


def test_without_agents_there_is_nothing_to_delegate() -> None:
    assert delegation.rows(replace(long_tasks.sources(), agents=[]), random.Random(0), "train", 5) == []
