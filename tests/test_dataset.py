"""The dataset: rows that hold, sides that share nothing, bytes that repeat."""

import json
import random
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import artifacts, chat, phrases, toolcalls
from core.chat import Row
from core.errors import Refused
from core.profiles import tiny
from core.render import trained_messages
from core.toolcalls import ToolCall
from dataset_builder import conversations, replay
from dataset_builder.drawing import values
from dataset_builder.verifying import gate, split
from tests.conftest import run_make


@pytest.fixture(scope="module")
def dataset(project) -> Path:
    return project / "data/mini/dataset"


@pytest.fixture(scope="module")
def train(dataset) -> list[Row]:
    return chat.read_rows(dataset / "train.jsonl")


@pytest.fixture(scope="module")
def held_out(dataset) -> list[Row]:
    return chat.read_rows(dataset / "eval.jsonl")


def calls(row: Row) -> list[ToolCall]:
    """The calls of the turns that carry loss."""
    return [
        ToolCall(call["function"]["name"], call["function"]["arguments"])
        for position in trained_messages(row)
        for call in row.messages[position].get("tool_calls") or []
    ]


def test_every_trained_call_is_valid_and_survives_the_template(train, tokenizer):
    for row in train:
        for position in trained_messages(row):
            history = tokenizer.apply_chat_template(
                row.messages[:position], tools=row.tools or None, tokenize=False, add_generation_prompt=True
            )
            whole = tokenizer.apply_chat_template(
                row.messages[: position + 1], tools=row.tools or None, tokenize=False
            )
            read = toolcalls.parse(whole[len(history) :], row.tools).calls
            written = [call["function"] for call in row.messages[position].get("tool_calls") or []]
            assert [(c.name, c.arguments) for c in read] == [(w["name"], w["arguments"]) for w in written]
        assert not [fault for call in calls(row) for fault in toolcalls.faults(call, row.tools)]


def test_both_sides_share_no_wording_request_or_value(train, held_out):
    assert split.leaks(train, held_out) == []
    assert {row.split for row in train} == {"train"}
    assert {row.split for row in held_out} == {"eval"}


def test_one_skill_is_wholly_held_out(train, held_out):
    assert "informe-historial" not in {row.skill for row in train}
    assert "# Skill: informe-historial" not in " ".join(
        m["content"] for row in train for m in row.messages if m["role"] == "system"
    )


def test_every_bucket_is_there(train, held_out):
    assert Counter(row.bucket for row in train) >= Counter(
        {"mcp_calls": 20, "skills": 4, "near_miss": 4, "no_tool": 4, "recovery": 4}
    )
    assert {row.bucket for row in held_out} == {
        "mcp_calls", "synonyms", "skills", "near_miss", "no_tool", "recovery", "replay", "general",
    }  # fmt: skip


def test_all_general_questions_are_held_out_in_both_languages(held_out, project):
    asked = conversations.general(project / "examples/general.jsonl")
    rows = [row for row in held_out if row.bucket == "general"]
    assert [row.messages for row in rows] == [row.messages for row in asked]
    spanish = sum(phrases.is_spanish(row.messages[0]["content"]) for row in rows)
    assert min(spanish, len(rows) - spanish) >= 20
    assert max(tokens for row in rows for tokens, _ in row.meta["tokens"]) < tiny.PROFILE.train.max_length / 4
    assert not any(message.get("reasoning_content") for row in rows for message in row.messages)


def test_the_wrong_turn_of_a_mended_call_is_invalid_and_carries_no_loss(train):
    mended = [row for row in train if row.train_turns == [1]]
    assert mended
    for row in mended:
        wrong = row.messages[chat.assistant_turns(row.messages)[0]]["tool_calls"][0]["function"]
        assert toolcalls.faults(ToolCall(wrong["name"], wrong["arguments"]), row.tools)


def test_rows_name_their_tools_by_digest_and_production_name(train, project):
    git = json.loads((project / "data/mini/schemas/git.json").read_text())
    digests = {f"mcp__git__{tool['name']}": tool["sha256"] for tool in git["tools"]}
    row = next(row for row in train if row.server == "git")
    shown = [tool["function"]["name"] for tool in row.tools]
    assert len(shown) == 2, "as the profile's tools_shown says"
    assert {n: d for n, d in row.meta["tool_sha256"].items() if n in digests} == {
        name: digests[name] for name in shown if name in digests
    }


def test_the_same_settings_and_inputs_give_the_same_bytes(project, dataset):
    before = artifacts.read_manifest(dataset)
    assert before is not None
    (dataset / "manifest.json").unlink()
    done = run_make(project, "dataset", "PROFILE=mini")
    assert done.returncode == 0, done.stderr
    after = artifacts.read_manifest(dataset)
    assert after is not None
    assert artifacts.digest(after) == artifacts.digest(before)


def test_development_seeds_use_other_wordings_than_published_ones(project):
    command = ["dataset", "PROFILE=mini", "RUN=dev"]
    published = chat.read_rows(project / "data/mini/dataset/eval.jsonl")
    try:
        assert run_make(project, *command, "EVAL_SEED=100").returncode == 0
        developing = chat.read_rows(project / "data/mini/dataset/eval.jsonl")
    finally:
        assert run_make(project, "dataset", "PROFILE=mini").returncode == 0
    own = ("mcp_calls", "skills")
    assert not {r.group for r in developing if r.bucket in own} & {
        r.group for r in published if r.bucket in own
    }


@pytest.mark.parametrize("kind", values.KINDS)
def test_values_are_divided_by_split_and_none_is_starved(kind):
    drawn = {s: [values.draw(kind, random.Random(f"{s}{i}"), s) for i in range(40)] for s in values.SPLITS}
    items = {
        s: {item for value in found for item in (value if isinstance(value, list) else [value])}
        for s, found in drawn.items()
    }
    assert not items["train"] & items["eval"]
    assert not items["train"] & items["dev"]
    assert not items["dev"] & items["eval"]
    assert min(len(found) for found in items.values()) >= 8


def test_replay_trains_on_the_base_s_own_words_and_measures_on_the_reference(project, train, held_out):
    prompts = {row.id: row for row in chat.read_rows(project / "examples/replay.jsonl")}
    for row in held_out:
        if row.bucket == "replay":
            assert row.messages == prompts[row.id].messages
    trained, kept_back = replay.divide(list(prompts.values()), 8, 4)
    assert not {row.group for row in trained} & {row.group for row in kept_back}
    assert {row.id for row in train if row.bucket == "replay"} <= {row.id for row in trained}


@pytest.mark.parametrize(
    "secret", ["ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "AKIA" + "IOSFODNN7EXAMPLE"]
)
def test_a_secret_in_any_field_of_a_row_is_found_and_not_repeated(train, tokenizer, secret):
    row = next(row for row in train if row.bucket == "mcp_calls")
    (call,) = calls(row)
    name = next(iter(call.arguments))
    places = {
        "user": [chat.user(f"usa {secret}"), row.messages[-1]],
        "argument": [chat.user("x"), chat.call(call.name, {name: secret}, think="t")],
        "result": [chat.user("x"), row.messages[-1], chat.result(f"token: {secret}")],
        "reasoning": [chat.user("x"), chat.say("listo", think=f"la clave es {secret}")],
    }
    for place, messages in places.items():
        with pytest.raises(Refused) as refused:
            gate.refuse_secrets(
                {"train.jsonl": [replace(row, id=place, messages=messages)]}, tokenizer, None, {}
            )
        assert str(refused.value).startswith(f"train.jsonl: {place}: ")
        assert secret not in str(refused.value)


def test_clean_rows_raise_no_false_alarm(train, held_out, tokenizer):
    gate.refuse_secrets({"train.jsonl": train, "eval.jsonl": held_out}, tokenizer, None, {})


VALUES = st.text("abcXYZ019 ñ&%/\"'$\\", min_size=8).filter(lambda text: text.strip() == text)


@given(value=VALUES)
def test_a_known_value_is_hidden_in_every_field(value):
    tool = chat.tool(
        "mcp__notes__save", f"Saves; token {value}", {"properties": {"text": {"type": "string"}}}
    )
    messages = [
        *chat.system(f"Usa {value}"),
        chat.user(f"guarda «{value}»"),
        chat.call("mcp__notes__save", {"text": f"a {value} b"}, think=f"with {value}"),
        chat.result(json.dumps({"saved": value})),
        chat.say(f"Guardado {value}.", think="t"),
    ]
    row = Row(id="r", bucket="b", group="g", split="train", messages=messages, tools=[tool])
    (clean,) = gate.hidden([row], b"k" * 32, {"TOKEN": value})
    assert value not in json.dumps(asdict(clean), ensure_ascii=False)
    for message in clean.messages:
        assert "<SECRET:token:" in json.dumps(message)
    assert gate.hidden([clean], b"k" * 32, {"TOKEN": value}) == [clean]
    assert gate.hidden([row], b"k" * 32, {}) == [row]


def test_a_secret_stops_the_build_and_leaves_the_old_dataset(project, dataset):
    requests = project / "examples/requests.yaml"
    text, before = requests.read_text(), (dataset / "train.jsonl").read_bytes()
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    requests.write_text(text.replace('      - "', f'      - "{secret} '))
    try:
        done = run_make(project, "dataset", "PROFILE=mini")
    finally:
        requests.write_text(text)
    assert done.returncode == 2
    assert "train.jsonl: mcp_calls-train-" in done.stderr
    assert "fingerprint" in done.stderr
    assert secret not in done.stderr
    assert "Traceback" not in done.stderr
    assert (dataset / "train.jsonl").read_bytes() == before
