"""AGENT_CMD: a stand-in that speaks stream-json and calls the real servers, and ill agents."""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from core import chat
from core.chat import Message
from core.errors import UserError
from eval.live import agent_cmd, run, stream_json, tasks
from eval.live.link import Disturbed
from eval.live.run import Score
from eval.live.tasks import Task
from eval.live.world import World, world
from tests import live_play

ROOT = Path(__file__).parents[1]
STAND_IN = ROOT / "tests/agent_stand_in.py"
SILENT = """echo '{"type": "system"}'"""
"""An agent that does nothing."""
SERVED: dict[str, Any] = {"endpoint": "http://127.0.0.1:8000/v1", "model": "tuned"}


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # examples/mcp.json names its commands from there


def stand_in(*calls: tuple[str, str, dict[str, Any]]) -> str:
    """The command that makes these calls."""
    return f"{sys.executable} {STAND_IN} {shlex.quote(json.dumps(calls))}"


def done(task: Task, command: str, seconds: float = 60) -> tuple[list[Message], Score]:
    """What an agent did, and what that is worth."""

    async def do() -> tuple[list[Message], Score]:
        async with world(live_play.MCP_CONFIG, [task], 2, for_agent=True) as here:
            trace = await agent_cmd.run(task, here, command, seconds=seconds, **SERVED)
            return trace, await run.score(task, here, trace)

    return anyio.run(do)


def scored(task: Task, trace: list[Message]) -> Score:
    """What a trace is worth where nothing was done."""

    async def do() -> Score:
        async with world(live_play.MCP_CONFIG, [task], 2, for_agent=True) as here:
            return await run.score(task, here, trace)

    return anyio.run(do)


def named(name: str) -> Task:
    return next(task for task in live_play.loaded() if task.id == name)


def test_an_agent_does_a_task_and_its_transcript_is_read() -> None:
    task = named("crear-rama-nueva-1")
    ((tool, arguments),) = live_play.right_steps(task)
    trace, score = done(task, stand_in(("git", tool, arguments)))
    assert score == Score(True, "")
    call, result, last = trace
    assert call["reasoning_content"] == "Uso git_create_branch."
    assert call["tool_calls"][0]["function"] == {"name": f"mcp__git__{tool}", "arguments": arguments}
    assert result["content"] == f"Created branch '{task.values['rama']}' from 'main'"
    told = json.loads(last["content"])
    assert told == {
        "request": task.request, "skills": [], "FORJA_ENDPOINT": SERVED["endpoint"],
        "FORJA_MODEL": "tuned", "FORJA_SKILL": None,
    }  # fmt: skip


def test_an_agent_that_calls_nothing_fails() -> None:
    _, score = done(named("crear-rama-nueva-1"), SILENT)
    assert score == Score(False, "ramas: main")


def test_a_skill_lies_where_the_agent_finds_it_without_its_rules(tmp_path: Path) -> None:
    task = named("skill-crear-rama-1")
    trace, score = done(task, f"ls .claude/skills/crear-rama > {tmp_path}/seen; {stand_in()}")
    assert (tmp_path / "seen").read_text(encoding="utf-8").split() == ["SKILL.md"]
    told = json.loads(trace[-1]["content"])
    assert (told["FORJA_SKILL"], told["skills"]) == ("crear-rama", ["crear-rama"])
    assert not score.right
    assert {one["rule"] for one in score.findings if one["verdict"] == "broken"} >= {"pasos", "informe"}


def test_a_servers_own_task_is_right_where_the_server_answered() -> None:
    task = next(one for one in tasks.for_agents([], live_play.MCP_CONFIG, []) if one.server == "time")
    trace, score = done(task, stand_in(("time", "get_current_time", {"timezone": "Europe/Prague"})))
    assert score == Score(True, "")
    failed = [trace[0], chat.result("Error executing tool"), trace[-1]]
    elsewhere = json.loads(json.dumps(trace).replace("mcp__time__", "mcp__timer__"))
    assert scored(task, [*failed, *trace]) == score
    assert scored(task, failed) == Score(False, "every call to server time failed: Error executing tool")
    assert scored(task, elsewhere) == scored(task, []) == Score(False, "no call to server time")


def test_an_agent_that_hangs_is_ended_with_all_that_it_started() -> None:
    task = named("crear-rama-nueva-1")
    started = time.monotonic()
    trace, score = done(task, "sleep 4242 & sleep 4242", seconds=0.5)
    assert time.monotonic() - started < 30
    assert (trace, score.right) == ([], False)
    assert not [one for one in psutil.process_iter(["cmdline"]) if "4242" in (one.info["cmdline"] or [])]


def test_what_an_agent_said_before_it_hung_counts() -> None:
    line = json.dumps(spoken("a", {"type": "text", "text": "Empiezo."}))
    trace, score = done(named("crear-rama-nueva-1"), f"echo {shlex.quote(line)}; sleep 4243", seconds=1)
    assert trace == [chat.say("Empiezo.", think="")]
    assert not score.right


def test_an_agent_that_prints_something_else_is_refused() -> None:
    with pytest.raises(UserError, match="AGENT_CMD: no line of its output is of stream-json") as caught:
        done(named("crear-rama-nueva-1"), "echo hola; echo 'no such flag' >&2; exit 3")
    assert "it began: 'hola' (exit code 3, it said: no such flag)" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no line"):
        done(named("crear-rama-nueva-1"), "no-such-agent")


def test_an_agent_without_its_endpoint_is_no_fault_of_the_models() -> None:
    line = {"type": "result", "subtype": "success", "is_error": True, "result": "API Error: 500"}
    with pytest.raises(Disturbed, match="the agent failed: API Error: 500"):
        done(named("crear-rama-nueva-1"), f"echo {shlex.quote(json.dumps(line))}; exit 1")


def test_no_value_of_a_variable_is_written_for_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOTES_TOKEN", "open-sesame")
    (tmp_path / "server.py").touch()
    servers = {
        "notes": {"type": "http", "url": "http://h/mcp", "headers": {"Authorization": "${NOTES_TOKEN}"}},
        "own": {"command": "python3", "args": ["server.py", "--key", "${NOTES_TOKEN}"]},
    }
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    async def written() -> str:
        async with world(config, [], 2, for_agent=True) as here:
            return here.mcp_config.read_text(encoding="utf-8")

    text = anyio.run(written)
    assert "open-sesame" not in text
    assert json.loads(text)["mcpServers"] == {
        "notes": servers["notes"],
        "own": {"command": "python3", "args": [str(tmp_path / "server.py"), "--key", "${NOTES_TOKEN}"]},
    }


def lines(*entries: Any) -> str:
    return "\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries)


def spoken(number: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": number, "content": list(blocks)}, **more}


def result(number: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "tool_use_id": number, "content": content, **more}]},
    }


def use(number: str, name: str = "mcp__git__git_log") -> dict[str, Any]:
    return {"type": "tool_use", "id": number, "name": name, "input": {"n": number}}


def test_blocks_of_one_message_are_one_turn_whatever_stands_between_them() -> None:
    found = stream_json.parse(
        lines(
            "Welcome!",
            {"type": "system", "subtype": "init"},
            spoken("a", {"type": "thinking", "thinking": "Dos."}),
            spoken("a", use("1")),
            result("1", [{"type": "text", "text": "uno"}, {"type": "image"}]),
            {"type": "news", "message": 3},
            spoken("a", use("2")),
            spoken("sub", use("3"), parent_tool_use_id="2"),
            result("2", "no", is_error=True),
            "[1, 2]",
            spoken("b", {"type": "text", "text": "Fin."}, {"type": "novelty"}),
            {"type": "result", "subtype": "success", "is_error": False},
        )
    )
    names = [one["function"]["arguments"]["n"] for one in found.trace[0]["tool_calls"]]
    assert names == ["1", "2"]
    assert found.trace[0]["reasoning_content"] == "Dos."
    assert found.trace[1:] == [
        chat.result("uno\n[image]"),
        chat.result("Error: no"),
        chat.say("Fin.", think=""),
    ]
    assert found.failure == ""


def test_a_call_that_never_ended_has_a_result_that_says_so() -> None:
    found = stream_json.parse(lines(spoken("a", use("1"), use("2")), result("2", "dos")))
    assert [one["content"] for one in found.trace[1:]] == ["Error: no result", "dos"]


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ({"subtype": "success", "is_error": False, "result": "Hecho."}, ""),
        ({"subtype": "error_max_turns", "is_error": True}, ""),
        ({"subtype": "success", "is_error": True, "result": "API Error:\n500"}, "API Error: 500"),
        ({"subtype": "error_during_execution", "errors": ["no model"]}, "['no model']"),
        ({"subtype": "error_during_execution", "is_error": True}, "error_during_execution"),
    ],
)
def test_an_agent_that_failed_itself_is_told_from_one_that_used_up_its_turns(
    line: dict[str, Any], failure: str
) -> None:
    assert stream_json.parse(lines({"type": "result", **line})).failure == failure


@pytest.mark.parametrize("output", ["", "\n\n", "hola", "{}", '{"type": 3}', '{"type": "else"}', "[" * 9999])
def test_what_holds_no_line_of_it_is_refused(output: str) -> None:
    with pytest.raises(UserError, match="AGENT_CMD"):
        stream_json.parse(output)


def test_no_line_makes_the_reading_fail() -> None:
    start = json.dumps({"type": "system"})
    odd: list[Any] = [
        None,
        3,
        "x",
        [],
        {},
        {"content": None},
        {"content": [3, {}]},
        {"id": 3, "content": "x"},
    ]
    blocks: list[Any] = [{"type": "text"}, {"type": "tool_use", "id": 1, "input": 3}, {"type": "thinking"}]
    for message in [*odd, *({"content": [one]} for one in blocks)]:
        for kind in ("assistant", "user", "result", "system"):
            stream_json.parse(lines(start, {"type": kind, "message": message}))


def test_agents_run_a_few_at_a_time(tmp_path: Path) -> None:
    task = Task(id="t", server="git", request="x", check="true")
    at, seen = tmp_path / "at", tmp_path / "seen"
    counted = f"mkdir -p {at}/$$; ls {at} | wc -l >> {seen}; sleep 0.2; rmdir {at}/$$"

    async def all_at_once() -> None:
        async with (
            world(live_play.MCP_CONFIG, [task], 2, for_agent=True) as here,
            anyio.create_task_group() as group,
        ):
            for _ in range(12):
                group.start_soon(_run, task, here, f"{counted}; {SILENT}")

    anyio.run(all_at_once)
    numbers = [int(one) for one in seen.read_text(encoding="utf-8").split()]
    assert len(numbers) == 12
    assert 1 < max(numbers) <= 4


async def _run(task: Task, here: World, command: str) -> None:
    await agent_cmd.run(task, here, command, **SERVED)
