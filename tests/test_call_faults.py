"""Which calls are valid, by the schemas of the tools that were shown."""

from typing import Any

import pytest

from core import chat
from core.errors import UserError
from core.toolcalls import ToolCall, faults
from tests.test_toolcalls import FULL_ARGUMENTS, TOOLS


def faults_of(arguments: dict[str, Any], **schema: Any) -> list[str]:
    return faults(ToolCall("f", arguments), [chat.tool("f", "d", {"type": "object", **schema})])


def test_a_valid_call_has_no_faults() -> None:
    assert faults(ToolCall("set_temp", FULL_ARGUMENTS), TOOLS) == []


def test_a_tool_that_was_not_shown_is_a_fault_with_the_nearest_name() -> None:
    (fault,) = faults(ToolCall("set_tmp", {"room": "x"}), TOOLS)
    assert fault == "set_tmp: no such tool (did you mean set_temp?)"
    assert faults(ToolCall("set_temp", {}), []) != []


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({}, "set_temp: 'room' is a required property"),
        ({"room": 3}, "set_temp.room: 3 is not of type 'string'"),
        ({"room": "x", "n": "three"}, "set_temp.n: 'three' is not of type 'integer'"),
        ({"room": "x", "n": True}, "set_temp.n: True is not of type 'integer'"),
        ({"room": "x", "tags": ["a", 1]}, "set_temp.tags.1: 1 is not of type 'string'"),
    ],
)
def test_a_fault_says_where_and_why(arguments: dict[str, Any], where: str) -> None:
    assert faults(ToolCall("set_temp", arguments), TOOLS) == [where]


def test_every_fault_is_told() -> None:
    assert len(faults(ToolCall("set_temp", {"n": "x", "on": "x"}), TOOLS)) == 3


NAMED = {"a": {"type": "integer"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": NAMED},
        {"properties": NAMED, "additionalProperties": False},
        {"allOf": [{"properties": NAMED}]},
        {"$ref": "#/$defs/args", "$defs": {"args": {"properties": NAMED}}},
        {"anyOf": [{"properties": NAMED, "required": ["a"]}, {"required": ["b"]}]},
        {"patternProperties": {"^a$": {"type": "integer"}}},
    ],
)
def test_an_argument_that_no_schema_names_is_a_fault(schema: dict[str, Any]) -> None:
    assert faults_of({"a": 1}, **schema) == []
    (fault,) = faults_of({"a": 1, "kelvin": 2}, **schema)
    assert "'kelvin' was unexpected" in fault


@pytest.mark.parametrize("declared", [True, {}, {"type": "integer"}])
def test_arguments_that_the_schema_leaves_open_are_none(declared: Any) -> None:
    assert faults_of({"a": 1, "kelvin": 2}, properties=NAMED, additionalProperties=declared) == []


def test_open_arguments_still_follow_their_schema() -> None:
    assert faults_of({"kelvin": "x"}, additionalProperties={"type": "integer"}) != []


def test_a_tool_without_a_schema_takes_no_arguments() -> None:
    bare = [{"type": "function", "function": {"name": "f"}}]
    assert faults(ToolCall("f", {}), bare) == []
    assert faults(ToolCall("f", {"x": 1}), bare) != []


def test_local_references_are_followed() -> None:
    schema = {"properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    assert faults_of({"x": 1}, **schema) == []
    assert faults_of({"x": "1"}, **schema) != []


def test_a_remote_reference_is_refused_and_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: Any, **__: Any) -> None:
        pytest.fail("the schema was fetched")

    monkeypatch.setattr("urllib.request.urlopen", fetch)
    with pytest.raises(UserError, match=r"f: its schema refers to http://localhost:9/n\.json"):
        faults_of({"x": 1}, properties={"x": {"$ref": "http://localhost:9/n.json"}})


def test_an_invalid_schema_is_the_tools_fault_and_not_the_calls() -> None:
    with pytest.raises(UserError, match="f: its schema is invalid: 'int' is not valid"):
        faults_of({"x": 1}, properties={"x": {"type": "int"}})


def test_formats_and_defaults_are_not_checked() -> None:
    text = {"type": "string", "format": "date", "default": None}
    assert faults_of({"x": "not a date"}, properties={"x": text}) == []


def test_a_pattern_is_checked_where_python_can_compile_it() -> None:
    assert faults_of({"x": "ABC-1"}, properties={"x": {"pattern": "^[A-Z]+-[0-9]+$"}}) == []
    (fault,) = faults_of({"x": "abc"}, properties={"x": {"pattern": "^[A-Z]+-[0-9]+$"}})
    assert fault == "f.x: 'abc' does not match '^[A-Z]+-[0-9]+$'"
    assert faults_of({"x": "abc"}, properties={"x": {"pattern": r"^\p{L}+$"}}) == []
    assert faults_of({"x": 3}, properties={"x": {"pattern": "^a$"}}) == []


def test_bounds_and_choices_are_checked() -> None:
    properties = {"n": {"type": "integer", "minimum": 1}, "m": {"enum": ["get", "list"]}}
    assert faults_of({"n": 1, "m": "get"}, properties=properties) == []
    assert len(faults_of({"n": 0, "m": "put"}, properties=properties)) == 2
