"""Dataset rows: on disk, in Arrow, and what is refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import chat
from core.chat import Row
from core.errors import UserError

LOG = chat.tool("git_log", "Show commits.", {"type": "object", "properties": {"max": {}}})
BRANCH = chat.tool("git_branch", "Branches.", {"type": "object", "properties": {"name": {}}})


def conversation(*calls: chat.Message) -> list[chat.Message]:
    turns = [one for call in calls for one in (call, chat.result("done"))]
    return [*chat.system("Be brief."), chat.user("hi"), *turns, chat.say("bye", think="end")]


ROW = Row(
    id="r1",
    bucket="mcp_calls",
    group="g1",
    split="train",
    messages=conversation(chat.call("git_log", {"max": 3}, think="look")),
    tools=[LOG],
    server="git",
    source="schemas/git.json#git_log",
    train_turns=[0],
    meta={"verdicts": {"schema": True}},
)
BARE = Row(id="r2", bucket="no_tool", group="g2", split="eval", messages=conversation(), tools=[])


# ---- messages ----------------------------------------------------------------------------------


def test_a_call_has_a_dict_of_arguments_and_reasoning_apart() -> None:
    assert chat.call("git_log", {"max": 3}, think="look", say="ok") == {
        "role": "assistant",
        "reasoning_content": "look",
        "content": "ok",
        "tool_calls": [{"type": "function", "function": {"name": "git_log", "arguments": {"max": 3}}}],
    }


def test_an_empty_system_text_is_no_message() -> None:
    assert chat.system("") == []
    assert chat.system("x") == [{"role": "system", "content": "x"}]


def test_assistant_turns_are_found_by_position() -> None:
    assert chat.assistant_turns(ROW.messages) == [2, 4]


# ---- on disk -----------------------------------------------------------------------------------


def test_rows_are_read_back_as_written(tmp_path: Path) -> None:
    chat.write_rows(tmp_path / "rows.jsonl", [ROW, BARE])
    assert chat.read_rows(tmp_path / "rows.jsonl") == [ROW, BARE]


def test_rows_are_lines_that_a_person_can_read(tmp_path: Path) -> None:
    chat.write_rows(tmp_path / "rows.jsonl", [replace(BARE, source="año"), ROW])
    first, second, rest = (tmp_path / "rows.jsonl").read_text(encoding="utf-8").split("\n")
    assert '"source": "año"' in first
    assert json.loads(second) == asdict(ROW)
    assert rest == ""


@given(st.text(), st.text(min_size=1))
@settings(deadline=None, max_examples=100)
def test_any_text_survives_the_disk(tmp_path_factory: Any, text: str, key: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    call = chat.call("f", {key: [text, None, 1.5, {"x": text}]}, think=text, say=text)
    row = replace(ROW, messages=[chat.user(text), call], meta={key: text})
    chat.write_rows(path, [row, row])
    assert chat.read_rows(path) == [row, row]


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\r", "\x1e"])
def test_a_line_separator_inside_a_text_does_not_split_the_row(character: str, tmp_path: Path) -> None:
    row = replace(BARE, messages=[chat.user(f"one{character}two")])
    chat.write_rows(tmp_path / "rows.jsonl", [row])
    assert chat.read_rows(tmp_path / "rows.jsonl") == [row]


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    chat.write_rows(tmp_path / "rows.jsonl", [ROW, BARE])
    data = (tmp_path / "rows.jsonl").read_bytes()
    (tmp_path / "rows.jsonl").write_bytes(data.replace(b"\n", b"\r\n"))
    assert chat.read_rows(tmp_path / "rows.jsonl") == [ROW, BARE]


def refusal(tmp_path: Path, second_line: bytes) -> str:
    """The message about a file whose second line is this one, without the path."""
    path = tmp_path / "rows.jsonl"
    chat.write_rows(path, [ROW])
    with path.open("ab") as file:
        file.write(second_line + b"\n")
    with pytest.raises(UserError) as caught:
        chat.read_rows(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:2: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}:2: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": "r2",', "broken JSON (Expecting property name enclosed in double quotes); "),
        (b"", "broken JSON (Expecting value); mend or delete the line"),
        (b'{"id": "\xff"}', "broken JSON (not UTF-8); mend or delete the line"),
        (b"[1]", "not a dataset row ("),
        (b"3", "not a dataset row ("),
    ],
)
def test_a_broken_line_is_refused_with_file_and_line(line: bytes, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, line).startswith(message)


def without(name: str) -> bytes:
    return json.dumps({k: v for k, v in asdict(BARE).items() if k != name}).encode()


def with_(**changed: Any) -> bytes:
    return json.dumps(asdict(BARE) | changed).encode()


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, without("bucket")) == ("not a dataset row (missing 1 required field: 'bucket')")


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, with_(buckets="x")) == ("not a dataset row (got an unexpected field 'buckets')")


def test_an_optional_field_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(without("meta"))
    assert chat.read_rows(path) == [BARE]


def a_call(**function: Any) -> list[Any]:
    return [chat.user("x"), {"role": "assistant", "tool_calls": [{"function": function}]}]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages: expected a non-empty list"),
        ({"role": "user"}, "messages: expected a non-empty list"),
        (["hi"], "messages[0]: role must be one of system, user, assistant, tool"),
        ([{"role": "human"}], "messages[0]: role must be one of system, user, assistant, tool"),
        ([{"role": "user", "content": None}], "messages[0]: content must be a text"),
        ([{"role": "user", "content": [{}]}], "messages[0]: content must be a text"),
        ([{"role": "assistant", "content": "x"}], "messages: no user turn"),
        (
            a_call(name="f", arguments='{"a": 1}'),
            "messages[1]: tool call arguments must be an object, not a JSON text",
        ),
        (a_call(arguments={}), "messages[1]: a tool call must have a function with a name"),
        ([{"role": "assistant", "tool_calls": "f"}], "messages[0]: tool_calls must be a list"),
        (
            [{"role": "assistant", "tool_calls": ["f"]}],
            "messages[0]: a tool call must have a function with a name",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"function": "f"}]}],
            "messages[0]: a tool call must have a function with a name",
        ),
    ],
)
def test_a_conversation_that_is_none_is_refused(messages: Any, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, with_(messages=messages)) == message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.jsonl: no such file"):
        chat.read_rows(tmp_path / "gone.jsonl")


# ---- in Arrow ----------------------------------------------------------------------------------

MIXED = [
    replace(
        ROW,
        messages=conversation(
            chat.call("git_log", {"max": 3, "since": None}, think="a"),
            chat.call("git_branch", {"name": "main", "deep": {"x": [1, "2", None]}}, think="b"),
        ),
        tools=[LOG, BRANCH],
    ),
    replace(ROW, id="r3", messages=conversation(chat.call("git_log", {"max": "3"}, think="c"))),
    BARE,
]


def canonical(value: Any) -> str:
    """JSON with an order, so that absent, None, 3 and "3" all differ."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def test_a_dataset_gives_back_every_row_exactly() -> None:
    found = chat.to_dataset(MIXED)
    assert [canonical(row) for row in found] == [canonical(asdict(row)) for row in MIXED]


def test_a_dataset_is_exact_after_the_disk_and_a_map(tmp_path: Path) -> None:
    from datasets import Dataset

    chat.to_dataset(MIXED).map(lambda row: {"seen": True}).save_to_disk(tmp_path / "d")
    found = Dataset.load_from_disk(tmp_path / "d").remove_columns("seen")
    assert [canonical(row) for row in found] == [canonical(asdict(row)) for row in MIXED]


def test_without_json_columns_arrow_adds_nulls_which_is_why_they_are_used() -> None:
    from datasets import Dataset

    rows = [{"messages": [{"arguments": {"max": 3}}, {"arguments": {"name": "main"}}]}]
    found: Any = Dataset.from_list(rows)[0]
    assert found["messages"] == [
        {"arguments": {"max": 3, "name": None}},
        {"arguments": {"max": None, "name": "main"}},
    ]
