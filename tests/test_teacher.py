"""A teacher may reword a row's texts, never what the row is about."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import chat, endpoint
from core.chat import Row
from dataset_builder import teacher
from tests.model_server import JSON, completion, serve

CALL = chat.call("mcp__git__git_log", {"repo_path": "web/api", "max_count": 3}, think="Use `git__git_log`.")
ROWS = [
    Row(
        id=f"mcp-train-{number:05d}", bucket="mcp", group="g", split="train", tools=[],
        messages=[
            *chat.system("Sé breve."),
            chat.user(f"Muestra los últimos 3 commits de «web/api» para el informe {number}"),
            CALL,
            chat.result("c0ffee arregla el menú"),
            chat.say(f"## Commits\n`c0ffee` arregla el menú ({number}).", think="Ya está."),
        ],
    )
    for number in range(3)
]  # fmt: skip

Reworder = Callable[[dict[str, str]], Any]


def reworded(tmp_path: Path, change: Reworder, rows: list[Row] = ROWS):
    """What `reword` makes of the rows with a teacher that applies `change` to the texts it is sent."""

    def reply(body, before):
        texts = json.loads(body["messages"][-1]["content"])["texts"]
        made = change(texts)
        return 200, JSON, completion(made if isinstance(made, str) else json.dumps(made))

    with serve(reply) as server:
        found = teacher.reword(rows, endpoint.connect(server.url), tmp_path / "teacher.jsonl")
        return *found, len(server.asked)


def politely(texts: dict[str, str]) -> dict[str, str]:
    return {
        name: f"{text} Gracias." if name.endswith("user") else f"{text}\nAsí es."
        for name, text in texts.items()
    }


def test_texts_change_and_nothing_else_does(tmp_path: Path) -> None:
    rows, kept_back, _ = reworded(tmp_path, politely)
    assert not kept_back
    for old, new in zip(ROWS, rows, strict=True):
        assert new.messages[1]["content"].endswith("Gracias.")
        assert new.messages[2]["reasoning_content"].endswith("Así es.")
        assert new.messages[2]["tool_calls"] == old.messages[2]["tool_calls"]
        assert [m for m in new.messages if m["role"] in ("system", "tool")] == [
            m for m in old.messages if m["role"] in ("system", "tool")
        ]
        assert (new.id, new.group, new.tools) == (old.id, old.group, old.tools)


def test_the_code_fence_that_models_put_around_json_is_taken_off(tmp_path: Path) -> None:
    _, kept_back, _ = reworded(tmp_path, lambda texts: f"```json\n{json.dumps(politely(texts))}\n```")
    assert not kept_back


def test_the_same_rows_are_not_asked_for_again(tmp_path: Path) -> None:
    first, _, asked = reworded(tmp_path, politely)
    second, _, again = reworded(tmp_path, lambda texts: pytest.fail("asked again"))
    assert (asked, again) == (len(ROWS), 0)
    assert first == second


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda texts: "no", "no JSON object"),
        (lambda texts: [1], "no JSON object"),
        (lambda texts: {"1 user": "hola"}, "other texts than asked for"),
        (lambda texts: texts | {"1 user": "  "}, "an empty text"),
        (lambda texts: texts | {"1 user": 5}, "an empty text"),
        (lambda texts: texts | {"1 user": texts["1 user"] * 30}, "a text that is far too long"),
        (lambda texts: texts | {"1 user": texts["1 user"].replace("web/api", "la api")}, "a value is gone"),
        (lambda texts: texts | {"1 user": texts["1 user"].replace("3", "tres")}, "a value is gone"),
        (lambda texts: texts | {"4 say": texts["4 say"].replace("c0ffee", "ese")}, "a value is gone"),
        (
            lambda texts: texts | {"4 say": texts["4 say"].replace("## Commits", "Commits:")},
            "headings, lists or code blocks changed",
        ),
    ],
)
def test_a_row_whose_meaning_would_change_stays_as_it_was(
    tmp_path: Path, change: Reworder, fault: str
) -> None:
    rows, kept_back, _ = reworded(tmp_path, change)
    assert rows == ROWS
    assert kept_back == {fault: len(ROWS)}


def test_a_row_that_the_new_texts_break_or_that_comes_to_the_other_side_s_request_stays(
    tmp_path: Path,
) -> None:
    train, held_out = ROWS[:2], [replace(ROWS[2], split="eval")]

    def reply(body, before):
        texts = json.loads(body["messages"][-1]["content"])["texts"]
        same = {name: "Los últimos 3 de «web/api», informes 0, 1 y 2" for name in texts if "user" in name}
        return 200, JSON, completion(json.dumps(texts | same))

    def sound(rows):
        return {row.id for row in rows} - {ROWS[0].id}

    with serve(reply) as server:
        made, held = teacher.reword_sides(
            train, held_out, endpoint.connect(server.url), tmp_path / "teacher.jsonl", sound
        )
    assert made[0] == ROWS[0]
    assert made[1].messages[1]["content"].startswith("Los últimos")
    assert held == held_out


def test_only_a_no_of_the_judge_counts(tmp_path: Path) -> None:
    said = ['{"good": true, "reason": "bien"}', '{"good": false, "reason": "inventa"}', "quizá"]

    def reply(body, before):
        shown = json.loads(body["messages"][-1]["content"])["messages"][1]["content"]
        return 200, JSON, completion(said[int(shown.split()[-1])])

    with serve(reply) as server:
        found = teacher.judge(ROWS, endpoint.connect(server.url), tmp_path / "judge.jsonl")
    assert found == {ROWS[1].id: "inventa"}
