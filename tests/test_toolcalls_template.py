"""What the real chat template writes is what `core.toolcalls` reads back."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import chat
from core.toolcalls import ToolCall, faults, parse

NOT_IN_VALUES = r"<\s*/?\s*parameter\s*[=>]|</function>|</think>|<\|(?:im_end|endoftext)\|>"
NOT_IN_TURNS = rf"{NOT_IN_VALUES}|<think>|</?tool_call>|<function="
FRAGMENTS = ["<", ">", "</", "<b>", "&amp;", "\n", "\r\n", "  ", "\t", '"', "{", "}", "\\", "null"]
FRAGMENTS += ["3", "true", "parameter", "<think>", "</think>", "<tool_call>", "</tool_call>", "ñ€"]


def free_of(tags: str) -> Any:
    """Texts with awkward parts, without what the pattern `tags` finds."""
    parts = st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)
    texts = st.one_of(parts, st.text(max_size=10))
    return texts.filter(lambda text: not re.search(tags, text))


def turn_texts() -> Any:
    """Reasoning or content: no tag of the format, no outer whitespace (the template trims it)."""
    return free_of(NOT_IN_TURNS).map(str.strip)


VALUE_TEXTS = free_of(NOT_IN_VALUES)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), FLOATS, VALUE_TEXTS)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(VALUE_TEXTS, inner, max_size=2),
    max_leaves=3,
)
OBJECTS = st.dictionaries(VALUE_TEXTS, NESTED, max_size=2)
WORDS = st.text("abcXYZ09_.-", min_size=1, max_size=6)
NULL = {"type": "null"}
KINDS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "string"}, VALUE_TEXTS),
    ({}, VALUE_TEXTS),
    ({"type": "integer"}, st.integers()),
    ({"type": "number"}, st.one_of(FLOATS, st.integers(-(2**53), 2**53))),
    ({"type": "boolean"}, st.booleans()),
    ({"type": "object"}, OBJECTS),
    ({"type": "array"}, st.lists(NESTED, max_size=2)),
    ({"type": ["integer", "null"]}, st.one_of(st.none(), st.integers())),
    ({"anyOf": [{"type": "object"}, NULL]}, st.one_of(st.none(), OBJECTS)),
    (
        {"anyOf": [{"type": "string"}, NULL]},
        st.one_of(st.none(), VALUE_TEXTS.filter(lambda text: text.lower() != "null")),
    ),
    ({"$ref": "#/$defs/level"}, st.integers(0, 9)),
]
ARGUMENTS = st.dictionaries(
    WORDS, st.one_of([st.tuples(st.just(schema), values) for schema, values in KINDS]), max_size=3
)


def template() -> str:
    """The chat template of Qwen3.6, as trl ships it."""
    spec = importlib.util.find_spec("trl")
    assert spec and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    return (folder / "chat_templates/qwen3_6.jinja").read_text(encoding="utf-8")


def generated(messages: list[chat.Message], tools: list[chat.Tool]) -> str:
    """The text that the last message adds to the prompt before it."""
    from transformers.utils.chat_template_utils import render_jinja_template

    def render(some: list[chat.Message], prompt: bool) -> str:
        texts: Any = render_jinja_template(
            [some], tools=[*tools], chat_template=template(), add_generation_prompt=prompt
        )
        return texts[0][0]

    prompt, whole = render(messages[:-1], True), render(messages, False)
    assert prompt.endswith("<think>\n")
    assert whole.startswith(prompt)
    return whole[len(prompt) :]


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values in which 1 and True differ, and 1 and 1.0 do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


@given(st.lists(st.tuples(WORDS, ARGUMENTS), max_size=2), turn_texts(), turn_texts())
@settings(deadline=None, max_examples=200)
def test_what_the_chat_template_writes_is_read_back(
    drawn: list[tuple[str, dict[str, tuple[Any, Any]]]], think: str, say: str
) -> None:
    tools, calls = [], []
    for number, (name, arguments) in enumerate(drawn):
        parameters = {
            "type": "object",
            "properties": {key: schema for key, (schema, _) in arguments.items()},
            "$defs": {"level": {"type": "integer", "maximum": 9}},
        }
        tools.append(chat.tool(f"{name}{number}", "d", parameters))
        calls.append(ToolCall(f"{name}{number}", {k: value for k, (_, value) in arguments.items()}))
    turn = chat.say(say, think=think)
    turn["tool_calls"] = [
        {"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls
    ]
    reply = parse(generated([chat.user("x"), turn], tools), tools)
    assert (reply.reasoning or "", reply.content) == (think, say)
    assert [call.name for call in reply.calls] == [call.name for call in calls]
    for call, read in zip(calls, reply.calls, strict=True):
        assert same(call.arguments, read.arguments)
        assert faults(read, tools) == []


@pytest.mark.parametrize(
    ("schema", "written", "read"),
    [
        ({"type": "string"}, "a</parameter>b", "a"),
        ({"type": "string"}, "a</think>b", "ab"),
        ({"type": "string"}, "a</ parameter >b", "a"),
        ({"type": "string"}, "a<|im_end|>b", None),
        ({"type": ["string", "null"]}, "Null", None),
        ({"type": ["string", "integer"]}, "22", 22),
        ({"type": ["string", "object"]}, "true", True),
        ({"type": "object"}, {"k": "a</parameter>b"}, '{"k": "a'),
        ({"type": "number"}, 2**53 + 1, 2**53),
        ({}, 3, "3"),
    ],
)
def test_what_the_format_cannot_carry_is_known(schema: Any, written: Any, read: Any) -> None:
    tools = [chat.tool("f", "d", {"type": "object", "properties": {"x": schema}})]
    text = generated([chat.user("x"), chat.call("f", {"x": written}, think="")], tools)
    (call,) = parse(text, tools).calls
    found = call.arguments.get("x")
    assert (type(found), found) == (type(read), read)
