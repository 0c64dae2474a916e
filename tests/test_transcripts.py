"""Transcripts: what is said comes back as it was said, and no odd line stops the reading."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import chat
from core.chat import Message
from core.errors import UserError
from dataset_builder.documents.transcript_lines import RESULT_LIMIT
from dataset_builder.documents.transcripts import Conversation, read_transcripts
from tests.claude_code import Transcript

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="<["), min_size=1, max_size=30).filter(
    str.strip
)
ARGUMENTS = st.dictionaries(
    st.sampled_from("abc"), TEXT | st.integers() | st.none() | st.lists(TEXT), max_size=3
)
RESULT = st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=30)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda odd: st.lists(odd, max_size=2) | st.dictionaries(st.text(max_size=5), odd, max_size=2),
    max_leaves=4,
)
BASH = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}


def calling(think: str, say: str, calls: list[dict[str, Any]]) -> Message:
    functions = [{"type": "function", "function": {"name": "mcp__git__x", "arguments": a}} for a in calls]
    return {**chat.say(say, think=think), "tool_calls": functions}


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Requests, each with turns of parallel calls and their results, then an answer."""
    messages = []
    for _ in range(draw(st.integers(1, 3))):
        messages.append(chat.user(draw(TEXT)))
        for calls in draw(st.lists(st.lists(ARGUMENTS, min_size=1, max_size=3), max_size=3)):
            messages.append(calling(draw(TEXT | st.just("")), draw(TEXT | st.just("")), calls))
            messages += [chat.result(draw(RESULT)) for _ in calls]
        messages.append(chat.say(draw(TEXT), think=draw(TEXT | st.just(""))))
    return messages


def read(folder: Path) -> tuple[list[Conversation], Counter[str]]:
    found, counts = read_transcripts([folder])
    for conversation in found:
        assert chat.fault_in(conversation.messages) is None
    return found, +counts


@settings(deadline=None, max_examples=40)
@given(conversations(), conversations(), st.booleans())
def test_what_is_written_a_block_a_line_is_read_back_equal(
    messages: list[Message], others: list[Message], ascii_only: bool
) -> None:
    main, agent = Transcript("main"), Transcript("agent", sidechain=True)
    main.conversation(messages)
    agent.conversation(others)
    with tempfile.TemporaryDirectory() as folder:
        main.write(Path(folder) / "s.jsonl", ascii_only=ascii_only)
        agent.write(Path(folder) / "s/subagents/agent-1.jsonl", ascii_only=ascii_only)
        found, counts = read(Path(folder))
    assert [(one.id, one.sidechain) for one in found] == [("s/subagents/agent-1", True), ("s", False)]
    assert [one.messages for one in found] == [others, messages]
    assert counts == {}


def test_the_last_branch_wins_and_subagents_stand_apart(tmp_path: Path) -> None:
    one = Transcript()
    asked = one.user("Haz A")
    one.assistant({"type": "text", "text": "A hecho"})
    one.user("Ahora B")
    one.assistant({"type": "text", "text": "B hecho"})
    agent = Transcript("agent", sidechain=True)
    agent.conversation([chat.user("Busca"), chat.say("Encontrado", think="")])
    one.lines += agent.lines
    one.at = asked  # rewound to the first answer
    one.assistant({"type": "text", "text": "A de otro modo"})
    one.write(tmp_path / "s.jsonl")
    found, counts = read(tmp_path)
    assert [[m["content"] for m in c.messages] for c in found] == [
        ["Haz A", "A de otro modo"],
        ["Busca", "Encontrado"],
    ]
    assert [c.sidechain for c in found] == [False, True]
    assert [c.id for c in found] == ["s", "s#1"]
    assert counts == {"message on an abandoned branch": 3}


def test_markup_of_the_harness_is_no_one_s_text(tmp_path: Path) -> None:
    one = Transcript()
    one.user("<local-command-caveat>x</local-command-caveat>", isMeta=True)
    one.user("<command-name>/model</command-name>\n<command-message>model</command-message>")
    one.user("<local-command-stdout>Set model</local-command-stdout>")
    one.add("file-history-snapshot", snapshot={})
    one.user(
        "<command-message>commit</command-message><command-name>/commit</command-name><command-args>a.py</command-args>"
    )
    one.user([{"type": "text", "text": "# Skill: commit"}], isMeta=True)
    one.assistant({"type": "text", "text": "Miro."}, BASH)
    reminded = "a.py\n<system-reminder>Be brief.\nAlways.</system-reminder>"
    one.user([{"type": "tool_result", "tool_use_id": "t1", "content": reminded}])
    one.user([{"type": "text", "text": "[Request interrupted by user]"}])
    one.user("Sigue <system-reminder>x</system-reminder>con b.py")
    one.assistant({"type": "text", "text": "Hecho"})
    one.add("assistant", message={"model": "<synthetic>", "content": [{"type": "text", "text": "API Error"}]})
    one.write(tmp_path / "s.jsonl")
    (found,), counts = read(tmp_path)
    assert [m["content"] for m in found.messages] == [
        "/commit a.py",
        "Miro.",
        "a.py\n",
        "Sigue con b.py",
        "Hecho",
    ]
    assert counts == {
        "meta line": 2,
        "text of the harness": 2,
        "file-history-snapshot line": 1,
        "slash command without an answer": 1,
        "message of the harness": 1,
    }


def test_images_unknown_blocks_and_huge_results_leave_a_mark_or_a_count(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 1000}}
    one = Transcript()
    one.user([{"type": "text", "text": "Mira"}, image, {"type": "document"}])
    one.assistant({"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Veo"}, BASH)
    content = [{"type": "text", "text": "x" * (RESULT_LIMIT + 5)}, image, {"type": "tool_reference"}]
    one.user([{"type": "tool_result", "tool_use_id": "t1", "content": content}])
    one.assistant(
        {"type": "text", "text": "Fin"}, {"type": "tool_use", "id": "t2", "name": "X", "input": "no"}
    )
    one.add("assistant", message={"id": "m", "content": None})
    one.write(tmp_path / "s.jsonl")
    (found,), counts = read(tmp_path)
    said = [m["content"] for m in found.messages]
    assert said[0] == "Mira\n\n[image]"
    more = len("x" * 5 + "\n[image]\n[tool_reference]")
    assert said[2] == f"{'x' * RESULT_LIMIT}\n[... {more} more characters]"
    assert said[3] == "Fin"
    assert counts == {
        "image": 2,
        "user block of type document": 1,
        "assistant block of type redacted_thinking": 1,
        "result block of type tool_reference": 1,
        "result cut": 1,
        "assistant block of type tool_use": 1,
        "assistant line without content": 1,
    }


def test_a_broken_line_is_named_and_a_live_file_s_last_is_none(tmp_path: Path) -> None:
    one = Transcript()
    one.conversation([chat.user("a"), chat.say("b", think=""), chat.user("c"), chat.say("d", think="")])
    path = one.write(tmp_path / "s.jsonl")
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[-1]), 9):
        path.write_bytes(whole[:-cut])
        (found,), counts = read(tmp_path)
        lost = len(found.messages) == 2
        assert counts == ({"last line cut short": 1, "request without an answer": 1} if lost else {})
    lines = whole.splitlines(keepends=True)
    path.write_bytes(
        b"\n" + lines[0] + b'{"type": "user",\n' + b"\xff\xfe\n" + b"[1]\n" + b"".join(lines[1:])
    )
    (found,), counts = read(tmp_path)
    assert [m["content"] for m in found.messages] == ["a", "b", "c", "d"]
    assert counts == {
        f"broken line, {path}:3": 1,
        f"broken line, {path}:4": 1,
        f"line that is no object, {path}:5": 1,
    }


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_no_line_whatever_stops_the_reading(data: st.DataObject) -> None:
    one = Transcript()
    one.conversation([chat.user("a"), calling("", "", [{}]), chat.result("r"), chat.say("b", think="")])
    line = data.draw(st.sampled_from(one.lines))
    place = data.draw(st.sampled_from([line, line["message"]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(ODD)
    if isinstance(line["message"], dict) and isinstance(line["message"].get("content"), list):
        for block in line["message"]["content"]:
            if isinstance(block, dict) and block and data.draw(st.booleans()):
                block[data.draw(st.sampled_from(sorted(block)))] = data.draw(ODD)
    with tempfile.TemporaryDirectory() as folder:
        one.write(Path(folder) / "s.jsonl", ascii_only=True)
        for conversation in read(Path(folder))[0]:
            json.dumps(conversation.messages, ensure_ascii=False).encode()


def test_half_a_surrogate_pair_can_be_written_again(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(
        r'{"type": "user", "uuid": "1", "message": {"content": "a \ud83d"}}'
        "\n"
        r'{"type": "assistant", "uuid": "2", "message": {"content": "b \ud83d\ude00"}}'
        "\n"
    )
    (found,), _ = read(tmp_path)
    assert [m["content"] for m in found.messages] == ["a ?", "b 😀"]


def test_what_a_resumed_session_repeats_is_read_once(tmp_path: Path) -> None:
    one = Transcript()
    one.conversation([chat.user("a"), chat.say("b", think="")])
    one.write(tmp_path / "1.jsonl")
    one.conversation([chat.user("c"), chat.say("d", think="")])
    one.write(tmp_path / "2.jsonl")
    (found,), counts = read(tmp_path)
    assert (found.source, len(found.messages)) == ("2.jsonl", 4)
    assert counts == {"copy of a resumed conversation": 1}


def test_a_compaction_starts_another_conversation(tmp_path: Path) -> None:
    one = Transcript()
    one.conversation([chat.user("a"), chat.say("b", think="")])
    one.add("system", subtype="compact_boundary", parentUuid=None)
    one.user("This session is being continued: a, b.", isCompactSummary=True)
    one.conversation([chat.user("c"), chat.say("d", think="")])
    one.write(tmp_path / "s.jsonl")
    found, _ = read(tmp_path)
    assert [[m["content"] for m in c.messages] for c in found] == [
        ["a", "b"],
        ["This session is being continued: a, b.\n\nc", "d"],
    ]


def test_a_call_that_was_never_answered_ends_the_conversation_or_says_so(tmp_path: Path) -> None:
    one = Transcript()
    one.user("a")
    one.assistant(BASH)
    one.write(tmp_path / "s.jsonl")
    (found,), counts = read(tmp_path)
    assert [m["role"] for m in found.messages] == ["user", "assistant"]
    assert counts == {"call without a result": 1}
    one.user("b")
    one.assistant({"type": "text", "text": "c"})
    one.write(tmp_path / "s.jsonl")
    (found,), _ = read(tmp_path)
    assert [m["content"] for m in found.messages] == ["a", "", "[no result]", "b", "c"]


def test_a_folder_without_transcripts_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"TRANSCRIPTS_DIRS: no \.jsonl in .*; correct the path"):
        read_transcripts([tmp_path])
