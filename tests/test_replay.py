"""Replay: the current model's own answers, from a server that may fail in every way it likes."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from core import chat, config, endpoint, profile
from core.chat import Row
from core.endpoint import Answer, Question, Refusal
from core.errors import UserError
from core.profile import Data
from core.settings import ReplaySettings
from dataset_builder import replay
from tests.conftest import ROOT
from tests.model_server import JSON, completion, echo, serve

PROMPTS = [
    Row(
        id=f"p{i}", bucket="replay", group=f"p{i}", split="train", messages=[chat.user(f"Dime {i}")], tools=[]
    )
    for i in range(12)
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base_dir: Path):
    """Runs the stage in an empty directory: 8 prompts to train on, 4 held out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(endpoint, "TRIES", 3)
    chat.write_rows(tmp_path / "prompts.jsonl", PROMPTS)
    (tmp_path / "mcp.json").write_text("{}", encoding="utf-8")
    real = endpoint.connect
    monkeypatch.setattr(endpoint, "connect", lambda url: replace(real(url), wait=0.01, seconds=0.5))

    def stage(url: str) -> int:
        words = [
            "PROFILE=tiny",
            "RUN=r",
            f"MODELS_DIR={base_dir.parent}",
            "REPLAY=prompts.jsonl",
            "MCP_CONFIG=mcp.json",
        ]
        settings = config.parse(ReplaySettings, words)
        assert isinstance(settings.profile.data, Data)
        data = replace(settings.profile.data, eval_rows={"replay": 4})
        profile = replace(settings.profile, data=data)
        monkeypatch.setattr(config.profiles, "load", lambda name: profile)
        return replay.main([*words, "ROWS=replay=8", f"ENDPOINT={url}"])

    return stage


def answers() -> tuple[list[Row], list[Row]]:
    return replay.load(Path("data/tiny/replay"))


def test_the_model_is_asked_each_prompt_once_and_its_answers_are_rows(run) -> None:
    with serve(echo) as server:
        assert run(server.url) == 0
        assert run(server.url) == 0
        train, held_out = answers()
        assert len(server.asked) == len(PROMPTS)
    assert (len(train), len(held_out)) == (8, 4)
    for row in [*train, *held_out]:
        asked, answered = row.messages
        assert answered == chat.say(f"You said: {asked['content']}", think="I know this.")
    assert {row.group for row in train} | {row.group for row in held_out} == {row.group for row in PROMPTS}
    how = {"preserve_thinking": True, "enable_thinking": True}
    assert all(one["chat_template_kwargs"] == how for one in server.asked)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(run, status: int) -> None:
    with serve(lambda body, n: echo(body, n) if n else (status, {"Retry-After": "0"}, b"busy")) as server:
        assert run(server.url) == 0
        assert len(server.asked) == 2 * len(PROMPTS)
    assert len(answers()[0]) == 8


def test_a_stalled_server_is_asked_again_and_no_sample_is_lost(run) -> None:
    def stall(body, before):
        if not before and body["messages"][-1]["content"].endswith("3"):
            time.sleep(1.5)
        return echo(body, before)

    with serve(stall) as server:
        assert run(server.url) == 0
    assert [len(side) for side in answers()] == [8, 4]


def test_answers_that_cannot_be_learnt_from_are_left_out_and_counted(run, capsys) -> None:
    faults = {
        "cut at the limit of tokens": completion("Uno, dos", finish="length"),
        "empty": completion(""),
        "goes round in circles": completion("y otra vez lo mismo y lo mismo " * 30),
        "without a thought": completion("Hola", reasoning=""),
        "not a chat completion": json.dumps({"choices": []}).encode(),
    }
    bodies = dict(enumerate(faults.values()))

    def reply(body, before):
        number = int(body["messages"][-1]["content"].split()[-1])
        return (200, JSON, bodies[number]) if number in bodies else echo(body, before)

    with serve(reply) as server:
        assert run(server.url) == 0
    assert sum(map(len, answers())) == len(PROMPTS) - len(faults)
    printed = capsys.readouterr().out
    assert all(f"1 left out: {fault}" in printed for fault in faults), printed


def test_a_server_that_dies_keeps_what_it_answered_and_is_not_asked_that_again(run) -> None:
    answered = []

    def dies(body, before):
        if len(answered) >= 6:
            return 503, {}, b"gone"
        answered.append(body)
        return echo(body, before)

    with (
        serve(dies) as server,
        pytest.raises(UserError, match=r"stopped answering.*what it answered is kept"),
    ):
        run(server.url)
    assert not Path("data/tiny/replay").exists()
    kept = Path("data/tiny/replay.answers.jsonl")
    with kept.open("a", encoding="utf-8") as file:
        file.write('{"key": "half a li')  # the process was killed while it wrote
    with serve(echo) as server:
        assert run(server.url) == 0
        assert len(server.asked) == len(PROMPTS) - 6
    assert [len(side) for side in answers()] == [8, 4]
    assert not kept.exists()


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ((401, JSON, b"{}"), "refused us with HTTP 401; export ENDPOINT_TOKEN="),
        ((404, JSON, b"{}"), "HTTP 404; it should end in /v1"),
        ((200, {"Content-Type": "text/html"}, b"<html>login"), "answers text/html instead of JSON"),
    ],
)
def test_what_is_no_such_server_is_said_in_one_line(run, reply, complaint: str) -> None:
    with serve(lambda body, n: reply) as server, pytest.raises(UserError) as refused:
        run(server.url)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://127.0.0.1:9/v1", "no answer"),
        ("localhost", "ENDPOINT=localhost"),
    ],
)
def test_a_server_that_is_not_there_is_named(url: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        endpoint.connect(url)


def test_a_token_of_the_environment_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(endpoint.TOKEN, "s3cret-value")
    with serve(echo, token="s3cret-value") as server:
        found = endpoint.connect(server.url)
        got: list[Answer | Refusal] = []
        question = Question(messages=[chat.user("hola")], tools=[], max_tokens=5)
        endpoint.ask_all(found, [question], lambda _, answer: got.append(answer), what="ask")
    assert isinstance(got[0], Answer)
    assert "s3cret-value" not in repr(found)


def test_prompts_by_topic_are_read_and_two_alike_are_named(tmp_path: Path) -> None:
    file = tmp_path / "prompts.yaml"
    written = {"código": ["Explica:\n  x = 1\n", "Escribe un (bucle|mapa)"], "lógica": ["¿Cuánto es 2 y 2?"]}
    file.write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    rows = replay.read_prompts(file)
    assert [row.messages[0]["content"] for row in rows] == [
        "Explica:\n  x = 1", "Escribe un bucle", "Escribe un mapa", "¿Cuánto es 2 y 2?",
    ]  # fmt: skip
    assert [row.group for row in rows] == ["código 1", "código 2", "código 2", "lógica 1"]
    train, held_out = replay.divide(rows, 2, 2)
    assert not {row.group for row in train} & {row.group for row in held_out}
    file.write_text("a: [hola]\nb: [adiós, hola]\n")
    with pytest.raises(UserError, match=r"b 2: 'hola' stands there twice"):
        replay.read_prompts(file)


def test_the_prompts_of_the_project_are_enough_for_every_profile() -> None:
    for name in profile.names():
        data = profile.load(name).data
        if isinstance(data, Data):
            rows = replay.read_prompts(ROOT / data.replay)
            assert len(rows) >= data.rows["replay"] + data.eval_rows["replay"], name


arguments = st.dictionaries(st.text(min_size=1), st.one_of(st.text(), st.integers(), st.booleans()))


@given(st.lists(arguments, min_size=1, max_size=3))
def test_calls_and_results_keep_their_order_on_the_wire(each: list[dict]) -> None:
    turn = chat.say("", think="t") | {
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": one}} for one in each]
    }
    results = [chat.result(str(i)) for i in range(len(each))]
    sent = endpoint.wire([chat.user("x"), turn, *results])
    assert endpoint.read_message(sent[1]) == turn
    assert [call["id"] for call in sent[1]["tool_calls"]] == [one["tool_call_id"] for one in sent[2:]]


def test_only_a_text_that_repeats_itself_loops() -> None:
    numbered = " ".join(f"paso {i} de la lista de tareas" for i in range(40))
    assert not replay.loops(numbered)
    assert not replay.loops("no no no")
    assert replay.loops("vuelve a mirar el fichero de antes y " * 20)
