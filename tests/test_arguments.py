"""Arguments drawn from schemas: valid, carried by the text format, of one side, never null."""

import json
import random
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core import chat, toolcalls
from dataset_builder.drawing import arguments, patterns, values
from dataset_builder.drawing.json_schema import Undrawable
from dataset_builder.schemas import ToolSchema
from tests.five_servers import TOOLS

SEEDS = range(20)


def tool(
    properties: dict[str, Any], required: list[str] | None = None, defs: dict[str, Any] | None = None
) -> ToolSchema:
    """A tool whose parameters are all required, unless `required` says otherwise."""
    needed = list(properties) if required is None else required
    parameters = {"type": "object", "properties": properties, "required": needed, "$defs": defs or {}}
    return ToolSchema(server="s", name="do_it", description="Does it.", parameters=parameters, sha256="0")


def drawn(schema: dict[str, Any], name: str = "thing", defs: dict[str, Any] | None = None) -> list[Any]:
    """Values of one required parameter, a seed each."""
    one = tool({name: schema}, defs=defs)
    return [arguments.draw_call(one, random.Random(seed), "train")[name] for seed in SEEDS]


def leaves(value: Any) -> list[Any]:
    """The values in a value."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [leaf for part in parts for leaf in leaves(part)]
    return [value]


# ---- laws over every tool and over generated schemas ---------------------------------------------


def test_every_tool_of_five_servers_is_drawn_validly_without_null_in_the_schema_s_order():
    for one in TOOLS.values():
        for seed in SEEDS:
            call = arguments.draw_call(one, random.Random(seed), values.SPLITS[seed % 3])
            assert one.fault_in(call) is None
            assert None not in leaves(call)
            assert list(call) == [name for name in one.properties if name in call]
            assert set(one.required) <= call.keys()


def test_calls_written_by_the_chat_template_are_read_back_equal(tokenizer):
    for number, one in enumerate(TOOLS.values()):
        call = arguments.draw_call(one, random.Random(number), "train")
        messages = [chat.user("x"), chat.call(one.shown_name, call, think="t")]
        prompt, whole = (
            tokenizer.apply_chat_template(
                part, tools=[one.shown], tokenize=False, add_generation_prompt=part is not messages
            )
            for part in (messages[:1], messages)
        )
        assert toolcalls.parse(whole[len(prompt) :], [one.shown]).calls[0].arguments == call


def test_the_same_seed_gives_the_same_call():
    for one in TOOLS.values():
        first, second = (json.dumps(arguments.draw_call(one, random.Random(7), "dev")) for _ in range(2))
        assert first == second


def test_sides_share_no_free_text_nor_number_of_three_digits():
    found: dict[str, set[Any]] = {}
    for split in values.SPLITS:
        calls = [
            (one, arguments.draw_call(one, random.Random(f"{split} {seed}"), split))
            for one in TOOLS.values()
            for seed in range(2)
        ]
        found[split] = {
            leaf
            for one, call in calls
            for leaf in leaves(call)
            if not arguments.fixed(one, leaf) and not (isinstance(leaf, int | float) and abs(leaf) < 100)
        }
    for split, own in found.items():
        assert {values.side(leaf) for leaf in own} == {split}


SCALARS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 3, "maxLength": 12},
        {"type": "string", "pattern": "^[A-Z][A-Z0-9_]+-\\d+$"},
        {"type": "string", "enum": ["rojo", "azul"]},
        {"type": "string", "format": "date-time"},
        {"type": "string", "default": None},
        {"type": "integer", "minimum": 5, "exclusiveMaximum": 9},
        {"type": "integer", "multipleOf": 7},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"type": "number", "multipleOf": 0.25},
        {"type": "boolean"},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        {"const": "fijo"},
        {"$ref": "#/$defs/node"},
    ]
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner, "minItems": st.integers(0, 2)}),
        st.builds(
            lambda parts, closed: {
                "type": "object",
                "properties": parts,
                "required": list(parts)[:1],
                **({"additionalProperties": False} if closed else {}),
            },
            st.dictionaries(st.sampled_from(["title", "path", "n", "owner"]), inner, max_size=3),
            st.booleans(),
        ),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a: {"allOf": [a, {"description": "d"}]}, inner),
    ),
    max_leaves=6,
)
NODE = {
    "node": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
}  # fmt: skip


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(["query", "body", "limit", "labels"]), SCHEMAS, min_size=1),
    st.integers(0, 99),
)
def test_generated_schemas_are_drawn_validly_and_survive_the_text(properties, seed):
    one = tool(properties, defs=NODE)
    try:
        call = arguments.draw_call(one, random.Random(seed), "train")
    except Undrawable:
        # Only a union of a text with another type can be beyond the format: `"7"` or 7?
        assume(False)
        raise
    assert one.fault_in(call) is None
    assert None not in leaves(call)
    assert arguments.survives(one, call)


# ---- single keywords -----------------------------------------------------------------------------


def test_a_recursive_schema_ends():
    tree = {"$ref": "#/$defs/tree"}
    defs = {"tree": {"anyOf": [{"type": "array", "items": tree, "minItems": 1}, {"type": "integer"}]}}
    for value in drawn(tree, defs=defs):
        assert leaves(value)


def test_a_schema_that_needs_itself_for_ever_is_undrawable():
    endless = {"type": "object", "properties": {"next": {"$ref": "#/$defs/e"}}, "required": ["next"]}
    with pytest.raises(Undrawable):
        drawn({"$ref": "#/$defs/e"}, defs={"e": endless})


def test_a_parameter_that_can_only_be_null_is_left_out_or_undrawable():
    optional = tool({"x": {"type": "null"}}, required=[])
    assert arguments.draw_call(optional, random.Random(0), "train") == {}
    with pytest.raises(Undrawable):
        drawn({"type": "null"})


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        ('(Optional) JSON string of fields. Example: {"priority": {"name": "High"}}', dict),
        ("JSON array of version objects. Each contains:\n- name (required): Name\n- startDate: Start", list),
    ],
)
def test_a_text_that_carries_json_is_a_json_text(description, kind):
    for value in drawn({"type": "string", "description": description}, "fields_json"):
        assert isinstance(value, str)
        assert isinstance(json.loads(value), kind)


def test_words_that_a_description_gives_are_the_values_of_a_category():
    schema = {"type": "string", "description": "Filter by state: 'open', 'closed', or 'all'"}
    assert set(drawn(schema, "state")) == {"open", "closed", "all"}


def test_arguments_of_another_method_are_left_out_and_those_it_requires_are_given():
    one = tool(
        {
            "method": {"type": "string", "enum": ["add", "remove", "list"]},
            "item_id": {"type": "integer", "description": "Required for 'remove' method."},
            "content": {"type": "string", "description": "Only used for 'add' method."},
        },
        required=["method"],
    )
    for seed in SEEDS:
        call = arguments.draw_call(one, random.Random(seed), "train")
        assert ("item_id" in call) == (call["method"] == "remove")
        assert "content" not in call or call["method"] == "add"


def test_no_cursor_is_invented():
    one = tool(
        {"after": {"type": "string", "description": "Cursor from the previous response."}}, required=[]
    )
    assert all(arguments.draw_call(one, random.Random(seed), "train") == {} for seed in SEEDS)


def test_code_of_several_lines_keeps_its_blanks():
    one = TOOLS["penpot.execute_code"]
    found = [arguments.draw_call(one, random.Random(seed), "train")["code"] for seed in SEEDS]
    assert all("\n" in code and "return" in code for code in found)
    assert any(re.search(r"\n  \S", code) for code in found)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(
        [
            r"^[A-Z]{2,5}-\d+$",
            r"^(a|bc)+[^x]?$",
            r"\d{3}",
            r"^v\d+\.\d+(\.\d+)?$",
            r"[\w.]+@\w+",
            r"^(?!x)\w{4}$",
        ]
    ),
    st.integers(0, 999),
)
def test_a_text_drawn_from_a_pattern_matches_it(pattern, seed):
    text = patterns.draw(pattern, random.Random(seed))
    assert text is not None
    assert re.search(pattern, text)
