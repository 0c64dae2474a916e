"""What `make schemas` says of a server that changed since the last dump."""

import copy
from typing import Any

import pytest

from core.mcp_tools import as_shown
from dataset_builder.servers.schema_changes import changes

ORDER = {"type": "string", "enum": ["up", "down"]}
TOOL = {
    "name": "find",
    "description": "Finds.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What."},
            "order": ORDER,
            "rows": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
        },
        "required": ["text"],
    },
}


def dump(*tools: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """What a server answered, as its file holds it."""
    about = {"instructions": None, "overview": None, "protocol_version": "2025-11-25"}
    info = {"server_info": {"name": "s", "version": "1"}}
    return {"server": "s", **about, **info, "tools": [as_shown(tool) for tool in tools]} | facts


def edited(*path: str, value: Any) -> dict[str, Any]:
    """The tool with one value of it set, or taken out by None."""
    tool = copy.deepcopy(TOOL)
    *parents, last = path
    place = tool
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return tool


def test_a_dump_does_not_differ_from_itself() -> None:
    assert changes(dump(TOOL), dump(copy.deepcopy(TOOL))) == []


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("description",), "Seeks.", "find: description changed"),
        (("inputSchema", "additionalProperties"), False, "find: additionalProperties none -> false"),
        (("inputSchema", "required"), ["text", "order"], "find.order: now required"),
        (("inputSchema", "required"), [], "find.text: no longer required"),
        (("inputSchema", "properties", "order"), None, "find.order removed"),
        (("inputSchema", "properties", "limit"), {"type": "integer"}, "find.limit added"),
        (("inputSchema", "properties", "text", "type"), "integer", 'find.text: type "string" -> "integer"'),
        (("inputSchema", "properties", "text", "description"), "Whom.", "find.text: description changed"),
        (("inputSchema", "properties", "text", "default"), "w" * 99, "find.text: default changed"),
        (
            ("inputSchema", "properties", "order", "enum"),
            ["up"],
            'find.order: enum ["up", "down"] -> ["up"]',
        ),
        (
            ("inputSchema", "properties", "rows", "items", "properties", "id", "type"),
            "string",
            'find.rows[].id: type "integer" -> "string"',
        ),
        (("inputSchema", "properties", "rows", "items"), None, "find.rows: items changed"),
    ],
)  # fmt: skip
def test_a_changed_part_is_named_alone(path: tuple[str, ...], value: Any, line: str) -> None:
    assert changes(dump(TOOL), dump(edited(*path, value=value))) == [line]


def test_a_new_required_argument_says_so() -> None:
    tool = edited("inputSchema", "properties", "limit", value={"type": "integer"})
    tool["inputSchema"]["required"] = ["text", "limit"]
    assert changes(dump(TOOL), dump(tool)) == ["find.limit added, required"]


def test_a_default_of_null_is_not_the_lack_of_one() -> None:
    tool = edited("inputSchema", "properties", "order", value=ORDER | {"default": None})
    assert changes(dump(TOOL), dump(tool)) == ["find.order: default none -> null"]


def test_tools_and_the_server_itself_are_compared() -> None:
    other = {**TOOL, "name": "seek"}
    assert changes(dump(TOOL), dump(other)) == ["seek added", "find removed"]
    renewed = dump(TOOL, instructions="Be quick.", overview="All.", server_info={"name": "s", "version": "2"})
    assert changes(dump(TOOL), renewed) == [
        "version: 1 -> 2",
        "instructions changed",
        "overview changed",
    ]
    assert changes(dump(TOOL, server_info=None), dump(TOOL, protocol_version="3")) == [
        "version: None -> 1",
        "protocol: 2025-11-25 -> 3",
    ]


def test_another_order_is_a_change_too() -> None:
    other = {**TOOL, "name": "seek"}
    assert changes(dump(TOOL, other), dump(other, TOOL)) == [
        "the order, or a detail that no line names, changed"
    ]
