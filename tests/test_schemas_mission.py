"""The five servers of the mission under tests/data/schemas: real names and schemas, our own descriptions.

Names, types, enums, patterns and nesting are those of penpot 2.17, github-mcp-server of August 2026,
mcp-atlassian 0.23.1, docmost-mcp-oss 0.6.0 and the official gitea-mcp of 2026. Six tools of docmost
(list_pages, duplicate_page, copy_page_to_space, move_page_to_space, update_space, search_attachments) are
named in Docmost's manual, but their schemas are not public: their parameters are our guess.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from core.mcp_tools import as_shown
from dataset_builder.schemas import ToolSchema, load_servers, load_tools


@pytest.fixture(scope="module")
def tools(mission_schemas: Path) -> dict[str, ToolSchema]:
    """Every tool of the five servers."""
    return load_tools(mission_schemas)


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a schema, itself first."""
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from parts(part)


def test_they_are_as_many_and_as_long_as_the_real_ones(tools: dict[str, ToolSchema]) -> None:
    assert Counter(tool.server for tool in tools.values()) == {
        "penpot": 5,
        "docmost": 27,
        "gitea": 57,
        "atlassian": 98,
        "github": 117,
    }
    seen = [
        {"name": t.name, "description": t.description, "inputSchema": t.parameters} for t in tools.values()
    ]
    assert 200_000 < len(json.dumps(seen, separators=(",", ":"))) < 260_000


def test_files_are_what_the_stage_would_write(mission_schemas: Path) -> None:
    for file in mission_schemas.glob("*.json"):
        if file.name == "manifest.json":
            continue
        text = file.read_text(encoding="utf-8")
        answer = json.loads(text)
        assert answer["server"] == file.stem
        assert text == json.dumps(answer, indent=1, ensure_ascii=False) + "\n"
        for tool in answer["tools"]:
            assert tool == as_shown(tool), tool["name"]


def test_every_schema_is_valid_and_fits_the_names_that_harnesses_allow(tools: dict[str, ToolSchema]) -> None:
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool.parameters)
        assert tool.parameters["type"] == "object"
        assert set(tool.required) <= set(tool.properties), tool.shown_name
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.shown_name)
        assert tool.description


def test_the_traits_that_break_generators_are_there(tools: dict[str, ToolSchema]) -> None:
    arguments = [schema for tool in tools.values() for schema in tool.properties.values()]
    found = [part for tool in tools.values() for part in parts(tool.parameters)]
    nullable = [s for s in arguments if {"type": "null"} in s.get("anyOf", [])]
    assert sum(s.get("type") == "string" and s.get("default", "") is None for s in arguments) > 90
    assert sum("JSON" in s.get("description", "") and s.get("type") == "string" for s in arguments) > 10
    assert sum("pattern" in s for s in arguments) > 30
    assert len(nullable) > 10
    assert sum(tool.parameters.get("additionalProperties") is False for tool in tools.values()) > 100
    assert sum(not tool.properties for tool in tools.values()) >= 4
    assert any("oneOf" in part for part in found)
    assert any(isinstance(part.get("type"), list) for part in found)
    assert any("exclusiveMinimum" in part for part in found)
    assert not [part for part in found if "$schema" in part or isinstance(part.get("title"), str)]
    names = Counter(tool.name for tool in tools.values())
    shared = {tool.name for tool in tools.values() if names[tool.name] > 1}
    assert len(shared) > 15, "names that github and gitea share"


def test_penpot_states_its_rules(mission_schemas: Path, tools: dict[str, ToolSchema]) -> None:
    penpot = load_servers(mission_schemas)["penpot"]
    assert "high_level_overview" in penpot.instructions
    assert "growType" in penpot.overview
    assert "`return`" in tools["penpot.execute_code"].description
    assert "NEVER guess" in tools["atlassian.jira_create_issue"].properties["project_key"]["description"]
