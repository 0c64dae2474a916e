"""Servers that are ill: they die midway, hang, or never start, over stdio and over HTTP; bash that fails."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from core import mcp_connection
from core.errors import UserError
from core.toolcalls import ToolCall
from eval.live import link, run
from eval.live import world as worlds
from eval.live.link import Disturbed
from eval.live.tasks import Task
from eval.live.world import World, world

ROOT = Path(__file__).parents[1]
SCRIPTED = str(ROOT / "tests/servers/scripted_server.py")
SCRIPT = {
    "pages": [[{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "fall", "wait")]],
    "results": {"read": "Hay tres notas."},
    "dies_of": "fall",
    "hangs_at": "wait",
}
STDIO = {"command": sys.executable, "args": [SCRIPTED, "stdio", "script.json"]}
TASK = Task(id="t", server="notes", tools=("read",), request="Lee", check="true")


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT), encoding="utf-8")
    return path


@pytest.fixture(params=["stdio", "http"])
def entry(request: pytest.FixtureRequest, script: Path) -> Iterator[dict[str, Any]]:
    """How the scripted server is reached."""
    if request.param == "stdio":
        yield STDIO
        return
    server = subprocess.Popen(
        [sys.executable, SCRIPTED, "web"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout
    with server.stdout:
        yield {"url": f"http://127.0.0.1:{server.stdout.readline().strip()}{script}"}
    server.kill()
    server.wait()


def within(entry: dict[str, Any], act: Callable[[World], Any], *tasks: Task) -> Any:
    """What `act` gives in a world with that server."""
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}), encoding="utf-8")

    async def do() -> Any:
        async with world(Path("mcp.json"), tasks or [TASK], 3) as here:
            return await act(here)

    return anyio.run(do)


def call(tool: str) -> ToolCall:
    return ToolCall(f"mcp__notes__{tool}", {})


def test_a_server_that_dies_midway_is_no_fault_of_the_models_and_comes_back(entry: dict[str, Any]) -> None:
    async def act(here: World) -> str:
        assert await here.call(call("read")) == "Hay tres notas."
        with pytest.raises(Disturbed, match="server notes died during fall") as caught:
            await here.call(call("fall"))
        if "command" not in entry:  # nobody starts it again
            return await here.call(call("read"))
        assert "out of memory" in str(caught.value)
        return await here.call(call("read"))

    if "command" in entry:
        assert within(entry, act) == "Hay tres notas."
    else:
        with pytest.raises(UserError, match="MCP_CONFIG: server notes: cannot reach"):
            within(entry, act)


def test_a_server_that_was_killed_between_two_calls_comes_back() -> None:
    async def act(here: World) -> str:
        await here.call(call("read"))
        ours = psutil.Process().children()
        assert len(ours) == 1
        ours[0].kill()
        ours[0].wait()
        with contextlib.suppress(Disturbed):
            return await here.call(call("read"))
        return await here.call(call("read"))

    assert within(STDIO, act) == "Hay tres notas."


def test_a_call_that_is_never_answered_gives_a_text_that_says_so(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(here: World) -> tuple[str, str]:
        monkeypatch.setattr(mcp_connection, "TIMEOUT_SECONDS", 0.3)
        waited = await here.call(call("wait"))
        monkeypatch.undo()
        return waited, await here.call(call("read"))

    assert within(entry, act) == ("Error: no answer from notes within 0.3 s", "Hay tres notas.")


def test_errors_begin_as_errors_and_what_is_unknown_is_not_found(entry: dict[str, Any]) -> None:
    Path("script.json").write_text(json.dumps({**SCRIPT, "results": {}}), encoding="utf-8")

    async def act(here: World) -> list[str]:
        names = (call("read"), ToolCall("mcp__notes__write", {}), ToolCall("read", {}))
        return [await here.call(one) for one in names]

    assert within(entry, act) == ["Error: not in the script", *[worlds.NOT_FOUND] * 2]


def test_a_result_without_end_is_cut() -> None:
    text = "ñ" * (link.RESULT_LIMIT + 5)
    Path("script.json").write_text(json.dumps({**SCRIPT, "results": {"read": text}}), encoding="utf-8")

    async def act(here: World) -> str:
        return await here.call(call("read"))

    assert within(STDIO, act) == "ñ" * link.RESULT_LIMIT + "\n[... 5 more characters]"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"command": "no-such-server"}, "server notes: command no-such-server not found"),
        (
            {"command": sys.executable, "args": ["-c", "exit('no licence')"]},
            r"failed .*it said: no licence\)",
        ),
        ({"url": "http://127.0.0.1:9/mcp"}, "server notes: cannot reach http://127.0.0.1:9/mcp"),
    ],
)
def test_a_server_that_does_not_start_is_named_in_one_line(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        within(entry, _nothing)
    assert str(caught.value).startswith("MCP_CONFIG: server notes: ")
    assert "\n" not in str(caught.value)


def test_a_hanging_start_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connection, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(UserError, match=r"no answer from .* within 0\.5 s"):
        within({"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}, _nothing)


def test_a_tool_that_the_server_has_not_is_named_before_anything_runs() -> None:
    task = Task(id="t", server="notes", tools=("reed",), request="x", check="true")
    with pytest.raises(
        UserError, match=r"LIVE: task t: server notes has no tool reed \(did you mean read\?\)"
    ):
        within(STDIO, _nothing, task)


def test_what_fails_inside_a_world_comes_out_as_it_is_and_leaves_nothing() -> None:
    places: list[Path] = []

    async def act(here: World) -> None:
        places.append(here.directory)
        raise UserError("mine")

    with pytest.raises(UserError, match="mine"):
        within(STDIO, act)
    assert not places[0].exists()


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ("false", "LIVE: task t: setup failed: exit code 1; mend it"),
        ("echo primero; echo no hay disco >&2; exit 3", "LIVE: task t: setup failed: no hay disco; mend it"),
        ("ls | false", "setup failed: exit code 1"),
        ('echo "$nada"', "setup failed: .*nada: unbound variable"),
        ("sleep 60", r"LIVE: task t: setup did not end within 0\.3 s; mend it"),
    ],
)
def test_a_setup_that_fails_is_a_mistake_in_the_file(
    setup: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worlds, "SCRIPT_SECONDS", 0.3 if "sleep" in setup else 60.0)
    with pytest.raises(UserError, match=message):
        _scripted(Task(id="t", request="x", setup=setup, check="true"))


def test_scripts_get_the_values_word_for_word() -> None:
    odd = 'it\'s «a» "b" $HOME `id` \\n; exit 0'
    task = Task(
        id="t",
        request="x",
        values={"value": odd},
        setup='printf %s "$value" > file',
        check="cat file; exit 1",
    )
    assert _scripted(task).explanation == odd


def test_a_check_explains_itself_by_its_last_line() -> None:
    task = Task(id="t", request="x", check="echo uno; echo dos; false")
    assert _scripted(task) == run.Score(False, "dos")
    assert _scripted(Task(id="t", request="x", check="exit 7")).explanation == "exit code 7"
    assert _scripted(Task(id="t", request="x", check="echo bien")) == run.Score(True, "")


def test_scripts_see_no_git_configuration_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Eva\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    task = Task(id="t", request="x", check='test -z "$(git config user.name)"')
    assert _scripted(task).right


def _scripted(task: Task) -> run.Score:
    """What a task's scripts say without any server."""
    Path("mcp.json").write_text('{"mcpServers": {"notes": {"command": "x"}}}', encoding="utf-8")

    async def do() -> run.Score:
        async with world(Path("mcp.json"), [], 2) as here:
            await run.prepare(task, here)
            return await run.score(task, here, [])

    return anyio.run(do)


async def _nothing(here: World) -> None:
    pass
