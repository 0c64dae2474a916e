"""Qwen's tool-call format: what generated text is read as."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import chat
from core.toolcalls import Reply, ToolCall, parse

SET_TEMP = chat.tool(
    "set_temp",
    "d",
    {
        "type": "object",
        "properties": {
            "room": {"type": "string"},
            "deg": {"type": "number"},
            "n": {"type": "integer"},
            "on": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "opt": {"type": "object"},
            "maybe": {"type": ["integer", "null"]},
        },
        "required": ["room"],
    },
)
TOOLS = [SET_TEMP]


def block(name: str, **arguments: str) -> str:
    """A call as the model writes it, values verbatim."""
    inner = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


KITCHEN = block("set_temp", room="kitchen")
IN_KITCHEN = ToolCall("set_temp", {"room": "kitchen"})
FULL = block(
    "set_temp",
    room="kit chen",
    deg="21.50",
    n="3",
    on="true",
    tags='["a", "b"]',
    opt='{"k": 1}',
    maybe="null",
)
FULL_ARGUMENTS = {
    "room": "kit chen",
    "deg": 21.5,
    "n": 3,
    "on": True,
    "tags": ["a", "b"],
    "opt": {"k": 1},
    "maybe": None,
}


# ---- the turn ----------------------------------------------------------------------------------


def test_arguments_take_the_types_of_the_schema() -> None:
    reply = parse(f"I think.\n</think>\n\n{FULL}<|im_end|>\n", TOOLS)
    assert reply == Reply("I think.", "", (ToolCall("set_temp", FULL_ARGUMENTS),))
    assert reply.calls[0].arguments["on"] is True


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("a\n</think>\n\nHello " + KITCHEN + "\n tail", Reply("a", "Hello", (IN_KITCHEN,))),
        ("a</think>" + KITCHEN + "\n" + KITCHEN, Reply("a", "", (IN_KITCHEN, IN_KITCHEN))),
        (f"a</think>x{KITCHEN} y {KITCHEN} z", Reply("a", "x", (IN_KITCHEN, IN_KITCHEN))),
        ("a</think>" + KITCHEN.removeprefix("<tool_call>\n"), Reply("a", "", (IN_KITCHEN,))),
        ("thinking... " + KITCHEN, Reply("thinking...", "", (IN_KITCHEN,))),
        ("<think>\nhmm\n</think>\n\n" + KITCHEN, Reply("hmm", "", (IN_KITCHEN,))),
        ("\n</think>\n\nYes.\n<|im_end|>", Reply(None, "Yes.", ())),
        ("a</think>b</think>c", Reply("a", "bc", ())),
        ("a</think>b <|endoftext|> c", Reply("a", "b", ())),
        ("a</think>b </tool_call> c", Reply("a", "b </tool_call> c", ())),
        ("a</think>b <tool_call>{}</tool_call> c", Reply("a", "b  c", ())),
    ],
    ids=[
        "content before a call is kept and text after it dropped",
        "several calls",
        "text between calls is dropped",
        "the opening tag may be missing",
        "a call inside unfinished thinking ends it",
        "a repeated think tag is absorbed",
        "a turn without a call is content",
        "a second end of thinking is absorbed",
        "the turn ends at the first end-of-turn token",
        "a stray closing tag is content",
        "text around what is no call is content",
    ],
)
def test_a_turn_comes_apart_as_in_production(text: str, reply: Reply) -> None:
    assert parse(text, TOOLS) == reply


def test_two_functions_in_one_tool_call_are_two_calls() -> None:
    inner = KITCHEN.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
    text = f"</think><tool_call>\n{inner}\n{inner}\n</tool_call>"
    assert parse(text, TOOLS).calls == (IN_KITCHEN, IN_KITCHEN)


def test_a_dead_turn_is_reasoning_alone() -> None:
    assert parse("just text, no end", TOOLS) == Reply("just text, no end", "", ())
    without_opener = KITCHEN.removeprefix("<tool_call>\n")
    assert parse(without_opener, TOOLS) == Reply(without_opener, "", ())


def test_an_empty_turn_is_empty() -> None:
    assert parse("", TOOLS) == Reply(None, "", ())


# ---- broken markup -----------------------------------------------------------------------------

HEAD = "a</think><tool_call>\n<function=set_temp>\n"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (HEAD + "<parameter=room>\nkitchen", {}),
        (HEAD + "<parameter=n>\n3\n</parameter>\n<parameter=room>\nkit", {"n": 3}),
        ("a</think><tool_call>\n<function=set_temp", {}),
        ("a</think><tool_call>\n<function=set_temp</function></tool_call>", {}),
        ("a</think>" + block("set_temp", room="<b> </function> x"), {}),
        ("a</think>" + block("set_temp"), {}),
        ("a</think>" + block(" set_temp\n", n="3"), {"n": 3}),
        (
            HEAD + "<parameter=room>\nkit\n<parameter=n>\n3\n</parameter>\n</function>",
            {"room": "kit", "n": 3},
        ),
        ("a</think>" + block("set_temp", room="x</parameter>y"), {"room": "x"}),
        ("a</think>" + block("set_temp", room="x<parameter=n>\n3"), {"room": "x", "n": 3}),
        (HEAD + "< parameter = n>3</ parameter >\n</function>", {"n": 3}),
        ("a</think>" + block("set_temp", room="x</think>y"), {"room": "xy"}),
    ],
    ids=[
        "unclosed value",
        "unclosed last value",
        "unclosed name",
        "name closed as a function",
        "a closing function tag inside a value",
        "no arguments",
        "whitespace around the name",
        "a next parameter closes the value before it",
        "a closing parameter tag inside a value ends it",
        "an opening parameter tag inside a value ends it",
        "spaces inside the tags of a parameter",
        "an end of thinking is absorbed in a value too",
    ],
)
def test_broken_markup_costs_arguments_but_not_the_call(text: str, arguments: dict[str, Any]) -> None:
    assert parse(text, TOOLS).calls == (ToolCall("set_temp", arguments),)


@pytest.mark.parametrize(
    "text",
    [
        'a</think><tool_call>\n{"name":"set_temp","arguments":{"room":"k"}}\n</tool_call>',
        "a</think><tool_call>",
        "a</think><tool_call>\n<function=>\n</function>\n</tool_call>",
    ],
    ids=["Hermes JSON", "an opening tag alone", "a function without a name"],
)
def test_what_names_no_function_is_no_call_and_its_text_is_lost(text: str) -> None:
    assert parse(text, TOOLS) == Reply("a", "", ())


def test_a_name_ends_at_the_first_bracket_that_is_not_another_tags() -> None:
    (call,) = parse("</think><function=a<think>b></function>", TOOLS).calls
    assert call == ToolCall("a<think>b", {})


def test_an_unknown_function_is_kept_with_texts_for_arguments() -> None:
    (call,) = parse("a</think>" + FULL.replace("set_temp", "nope"), TOOLS).calls
    assert call.name == "nope"
    assert call.arguments["n"] == "3"
    assert all(isinstance(value, str) for value in call.arguments.values())


def test_an_argument_that_the_schema_does_not_name_stays_a_text() -> None:
    (call,) = parse("</think>" + block("set_temp", kelvin="294"), TOOLS).calls
    assert call.arguments == {"kelvin": "294"}


TURN = ["<think>", "</think>", "<|im_end|>", "<tool_call>", "</tool_call>", "<function="]
CALL = ["</function>", "<parameter=", "</parameter>", ">", "\n", "set_temp", "room", "n", "3", "["]


@given(st.lists(st.sampled_from([*TURN, *CALL])).map("".join))
@settings(deadline=None, max_examples=300)
def test_no_text_makes_the_parser_raise(text: str) -> None:
    reply = parse(text, TOOLS)
    assert ("</think>" in text or "<tool_call>" in text) or not (reply.calls or reply.content)


# ---- the ladder of types -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, '{"k": 1}', '{"k": 1}'),
        ({"type": "string"}, "3", "3"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string"}, "<b>&amp;</b>", "<b>&amp;</b>"),
        ({"type": "string"}, "line1\n\n  line2\n", "line1\n\n  line2\n"),
        ({"type": "string"}, "\n", "\n"),
        ({"type": "string"}, "", ""),
        ({}, "3", "3"),
        (True, "3", "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, "three", "three"),
        ({"type": "integer"}, "3.5", 3.5),
        ({"type": "integer"}, "null", None),
        ({"type": "number"}, "21.50", 21.5),
        ({"type": "number"}, "2.0", 2),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "number"}, "nan", "nan"),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "boolean"}, "1", True),
        ({"type": "boolean"}, "yes", "yes"),
        ({"type": "object"}, '{"k": [1, null]}', {"k": [1, None]}),
        ({"type": "object"}, "{'k': 1}", "{'k': 1}"),
        ({"type": "array"}, '["3"]', ["3"]),
        ({"type": "array"}, "[NaN]", "[NaN]"),
        ({"type": "array"}, "[1e999]", "[1e999]"),
        ({"type": "array"}, "[" * 100_000, "[" * 100_000),
        ({"type": ["integer", "null"]}, "NULL", None),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "integer"]}, "22", 22),
        ({"type": ["boolean", "integer"]}, "1", 1),
        ({"type": ["string", "object"]}, '{"k": 1}', {"k": 1}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "nulls", "nulls"),
        ({"oneOf": [{"type": "array"}, {"anyOf": [{"type": "number"}]}]}, "0.5", 0.5),
        ({"allOf": [{"type": "boolean"}]}, "true", True),
        ({"type": "int"}, "3", 3),
        ({"type": " Dict "}, '{"k": 1}', {"k": 1}),
        ({"type": None}, "3", "3"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"enum": [1, "auto"]}, "auto", "auto"),
        ({"$ref": "#/$defs/n"}, "3", 3),
        ({"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}, "null", None),
        ({"$ref": "#/$defs/of~1a~0b%20c"}, "3", 3),
        ({"$ref": "#/properties/other/anyOf/1"}, "3", 3),
        ({"$ref": "#/$defs/loop"}, "3", 3),
        ({"$ref": "#/$defs/nowhere"}, "3", "3"),
        ({"$ref": "https://example.org/n.json"}, "3", "3"),
    ],
)
def test_a_value_takes_the_first_type_that_the_schema_allows_and_the_text_fits(
    schema: Any, text: str, value: Any
) -> None:
    defs = {
        "n": {"type": "integer"},
        "of/a~b c": {"type": "integer"},
        "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "integer"}]},
    }
    tool = chat.tool(
        "f",
        "d",
        {
            "properties": {"x": schema, "other": {"anyOf": [{"type": "string"}, defs["n"]]}},
            "$defs": defs,
        },
    )
    (call,) = parse("</think>" + block("f", x=text), [tool]).calls
    found = call.arguments["x"]
    assert (type(found), found) == (type(value), value)


def test_a_tool_without_a_schema_has_texts_for_arguments() -> None:
    bare = {"type": "function", "function": {"name": "f"}}
    assert parse("</think>" + block("f", x="3"), [bare]).calls == (ToolCall("f", {"x": "3"}),)


def test_an_argument_called_by_several_tools_is_read_by_the_schema_of_the_tool_called() -> None:
    tools = [
        chat.tool("f", "d", {"properties": {"id": {"type": "integer"}}}),
        chat.tool("g", "d", {"properties": {"id": {"type": "string"}}}),
    ]
    f, g = parse("</think>" + block("f", id="7") + block("g", id="7"), tools).calls
    assert (f.arguments, g.arguments) == ({"id": 7}, {"id": "7"})
