"""Rules of servers: taught only where the deployed server says so, in its own words."""

import random
from dataclasses import replace
from typing import Any

import pytest

from core import rules
from dataset_builder.buckets import penpot as penpot_rows
from dataset_builder.schemas import ServerInfo, ToolSchema
from dataset_builder.servers import server_rules
from dataset_builder.talking import penpot
from tests.five_servers import SERVERS, TOOLS, StandIn

PENPOT = {key: tool for key, tool in TOOLS.items() if tool.server == "penpot"}
OLD = "NEVER use parent.appendChild (BROKEN), insert with parent.insertChild(parent.children.length, shape)."
NEW = "Append shapes in the order in which they are to be seen, with `board.appendChild(shape)`."


def era(overview: str) -> Any:
    """Penpot alone, with this overview and descriptions that state no rule."""
    tools = {key: replace(tool, description="Does it.") for key, tool in PENPOT.items()}
    info = ServerInfo(name="penpot", instructions="", overview=overview, protocol_version="1", version="1")
    return replace(StandIn(), tools=tools, servers={"penpot": info})


def stated(sources: Any) -> set[str]:
    """Ids of Penpot's rules."""
    return {
        rule.id for rule in server_rules.deployed(sources.tools.values(), sources.servers).get("penpot", [])
    }


def code_of(sources: Any) -> str:
    """All JavaScript that a model would learn from 60 rows."""
    rows = penpot_rows.rows(sources, random.Random(0), "train", 60)
    calls = [call["function"] for row in rows for m in row.messages for call in m.get("tool_calls") or []]
    return "\n".join(call["arguments"].get("code", "") for call in calls)


def test_each_era_is_taught_its_own_rule_and_silence_teaches_neither():
    assert stated(era(OLD)) == {"children-by-insert"}
    assert stated(era(NEW)) == {"children-by-append"}
    assert stated(era("")) == set()
    old, new, silent = (code_of(era(text)) for text in (OLD, NEW, ""))
    assert "insertChild(board.children.length" in old
    assert ".appendChild(" not in old
    assert ".appendChild(" in new
    assert "insertChild" not in new
    assert "appendChild" not in silent
    assert "insertChild" not in silent


def test_without_the_rule_no_guide_is_read_and_nothing_is_looked_up():
    rows = penpot_rows.rows(era(""), random.Random(0), "train", 20)
    called = {
        call["function"]["name"] for row in rows for m in row.messages for call in m.get("tool_calls") or []
    }
    assert called <= {"mcp__penpot__execute_code", "mcp__penpot__import_image"}


def test_every_quote_stands_word_for_word_in_what_its_server_says():
    for server, own in server_rules.deployed(TOOLS.values(), SERVERS).items():
        tools = [tool for tool in TOOLS.values() if tool.server == server]
        texts = [
            SERVERS[server].instructions,
            SERVERS[server].overview,
            *(tool.description for tool in tools),
        ]
        texts += [str(s.get("description")) for tool in tools for s in tool.properties.values()]
        for rule in own:
            assert any(rule.quote in text for text in texts), rule.id


def test_all_five_servers_but_those_that_state_nothing_have_rules():
    found = server_rules.deployed(TOOLS.values(), SERVERS)
    assert {server for server, own in found.items() if own} == {
        "atlassian",
        "docmost",
        "gitea",
        "github",
        "penpot",
    }


def test_a_rule_needs_the_tools_that_it_speaks_of():
    without = [tool for tool in TOOLS.values() if tool.name != "jira_get_transitions"]
    found = server_rules.deployed(without, SERVERS)
    assert "transitions-first" not in {rule.id for rule in found.get("atlassian", [])}


def test_a_planted_sentence_is_listed_with_its_place_and_force():
    tool = ToolSchema(
        server="s",
        name="drop",
        description="Drops it. NEVER drop what was not named.",
        parameters={},
        sha256="0",
    )
    info = ServerInfo(
        name="s", instructions="You MUST ask first.", overview="", protocol_version="1", version="1"
    )
    found = server_rules.passages([tool], {"s": info})
    assert [(one.place, one.force, one.quote) for one in found] == [
        ("instructions", "must", "You MUST ask first."),
        ("drop", "never", "NEVER drop what was not named."),
    ]
    assert not server_rules.is_covered(found[0], [])


def test_known_rules_cover_their_passages():
    own = server_rules.deployed(TOOLS.values(), SERVERS)
    passages = server_rules.passages(TOOLS.values(), SERVERS)
    covered = [one for one in passages if server_rules.is_covered(one, own.get(one.server, []))]
    assert {"overview", "jira_create_issue.project_key"} <= {one.place for one in covered}


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("no-log", 'console.log("x");\nreturn 1;'),
        ("no-stringify", "return JSON.stringify({ a: 1 });"),
        ("returns", "const a = 1;"),
        ("colours-in-capitals", 'shape.fills = [{ fillColor: "#ff5533" }];\nreturn 1;'),
        ("grow-type", "text.resize(10, 20);\nreturn 1;"),
        ("children-by-append", "board.insertChild(board.children.length, shape);\nreturn 1;"),
    ],
)
def test_code_that_breaks_a_rule_is_caught_by_name_and_the_tasks_break_none(rule, code):
    own = [one for one in server_rules.deployed(PENPOT.values(), SERVERS)["penpot"] if one.kind == "never"]

    def broken(text: str) -> set[str]:
        call = {"function": {"name": "mcp__penpot__execute_code", "arguments": {"code": text}}}
        found = rules.check(own, [{"role": "assistant", "content": "", "tool_calls": [call]}], "x")
        return {one.rule for one in found if one.verdict == rules.BROKEN}

    assert broken(code) == {rule}
    for task in penpot.tasks():
        if task.only != "children-by-insert":
            assert broken(task.code.replace("{color}", "#AA00CC")) == set()
