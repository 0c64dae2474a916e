"""How LIVE is read: what is refused and how, what is left out and said, what is made for an agent."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.errors import UserError
from eval.live import tasks
from tests import live_play

TASK = {"id": "una", "server": "git", "request": "Haz {algo}", "each": [{"algo": "x"}], "check": "true"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    servers = {"git": {"command": "git-server"}, "notes": {"url": "http://127.0.0.1:9/mcp"}}
    Path("mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


def load(*entries: Any) -> tuple[list[tasks.Task], list[str]]:
    """What becomes of these entries."""
    Path("live.yaml").write_text(yaml.safe_dump(list(entries), allow_unicode=True), encoding="utf-8")
    return tasks.load(Path("live.yaml"), Path("mcp.json"), live_play.rows())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chek": "true"}, r"task 1 \(una\): unknown key 'chek' \(did you mean check\?\); have id, server"),
        ({"check": None}, r"task 1 \(una\): check: expected a text, got None"),
        ({"check": True}, r"task 1 \(una\): check: expected a text, got True; put it in quotes"),
        ({"setup": ["true", 3]}, r"task 1 \(una\): setup: expected a text, got 3"),
        ({"id": ""}, "task 1: id: expected a text"),
        ({"each": {"algo": "x"}}, r"task 1 \(una\): each must be a list"),
        ({"each": ["x"]}, "task una: each 1: expected `name: value` lines"),
        ({"each": [{"algo": 990}]}, "task una: each 1: algo: expected a text, got 990; put it in quotes"),
        ({"each": [{"algo": "x", "Two words": "y"}]}, "'Two words' is no variable of bash"),
        ({"each": [{"algos": "x"}]}, r"\{algo\} has no value in each \(did you mean algos\?\)"),
        ({"tools": "git_add"}, r"task 1 \(una\): tools must be a list"),
        ({"tools": [1]}, "task una: tools: expected a text"),
    ],
)
def test_a_mistake_in_a_task_is_named_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load({**TASK, **change})
    assert str(caught.value).startswith("live.yaml: task ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", tasks.NEEDED)
def test_what_a_task_needs_is_named(key: str) -> None:
    with pytest.raises(UserError, match=f"task 1.*: {key} is missing"):
        load({name: value for name, value in TASK.items() if name != key})


def test_a_task_tries_a_server_or_a_skill() -> None:
    bare = {name: value for name, value in TASK.items() if name != "server"}
    with pytest.raises(UserError, match="neither server nor skill"):
        load(bare)
    with pytest.raises(UserError, match="tools without the server"):
        load({**bare, "skill": "crear-rama", "tools": ["git_add"]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- id: [", "live.yaml:1: broken YAML"),
        ("id: una", "live.yaml: expected a list of tasks"),
        ("", "live.yaml: expected a list of tasks"),
        ("- una", "live.yaml: task 1: expected `name: value` lines"),
    ],
)
def test_a_file_that_is_no_list_of_tasks_is_refused(text: str, message: str) -> None:
    Path("live.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        tasks.load(Path("live.yaml"), Path("mcp.json"), [])


def test_a_config_that_is_not_there_is_named() -> None:
    Path("mcp.json").unlink()
    with pytest.raises(UserError, match=r"mcp\.json: no such file"):
        load(TASK)


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="task una is there twice"):
        load(TASK, TASK)


def test_each_makes_a_task_of_every_value_and_the_script_gets_them_untouched() -> None:
    odd = 'a\'; rm -rf "$HOME" {algo}'
    made, skipped = load({**TASK, "each": [{"algo": "x"}, {"algo": odd}]})
    assert not skipped
    assert [task.id for task in made] == ["una-1", "una-2"]
    assert [task.request for task in made] == ["Haz x", f"Haz {odd}"]
    assert made[1].values == {"algo": odd}
    assert made[1].check == "true"


def test_a_task_of_what_is_not_there_is_left_out_and_said() -> None:
    made, skipped = load({**TASK, "server": "note"}, {**TASK, "id": "dos", "skill": "crear-ramas"}, TASK)
    assert [task.id for task in made] == ["una"]
    assert skipped == [
        "una: skipped, mcp.json has no server note (did you mean notes?)",
        "dos: skipped, no held-out row follows a skill crear-ramas (did you mean crear-rama?)",
    ]


def test_an_agent_gets_a_task_for_each_server_and_skill_that_none_names() -> None:
    made, _ = load({**TASK, "skill": "crear-rama"})
    more = tasks.for_agents(made, Path("mcp.json"), live_play.rows())
    others = sorted(set(live_play.SKILLS) - {"crear-rama"})
    assert [task.id for task in more] == ["server notes", *(f"skill {name}" for name in others)]
    assert "«notes»" in more[0].request
    assert [task.skill for task in more] == [None, *others]
    assert all(task.request == "Haz el trabajo." for task in more[1:])


def test_a_skill_is_shown_by_the_plainest_row_that_follows_it() -> None:
    base = live_play.rows()[0]
    rows = [
        _row(base, "b", "adherence", "long"),
        _row(base, "c", "adherence", "followed"),
        _row(base, "d", "adherence", "followed"),
        _row(base, "a", "near_miss", "near_miss"),
    ]
    assert tasks.by_skill(rows)[base.skill or ""].id == "c"
    assert tasks.by_skill(rows[-1:]) == {}


def _row(base: Any, name: str, bucket: str, kind: str) -> Any:
    from dataclasses import replace

    return replace(base, id=name, bucket=bucket, meta={"kind": kind})
