"""Stage `schemas` against real servers: over stdio, streamable HTTP and SSE, and against broken ones."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, mcp_connection
from core.errors import UserError
from dataset_builder import schemas

ROOT = Path(__file__).parents[1]
ECHO_SERVER = str(ROOT / "tests/servers/echo_server.py")
TOKEN = "open-sesame"
ECHO = {"command": sys.executable, "args": [ECHO_SERVER, "stdio"]}
SCRIPTED_SERVER = str(ROOT / "tests/servers/scripted_server.py")
DEAD = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('boom: no licence')"]}
HANGING = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
SCHEMAS = Path("data/tiny/schemas")


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """The address of a server over HTTP, which prints its port."""
    server = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    with server.stdout:
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    server.kill()
    server.wait()


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """The address of the echo server."""
    with served(ECHO_SERVER, "web", TOKEN) as address:
        yield address


@pytest.fixture(scope="module")
def scripts() -> Iterator[str]:
    """The address under which scripts are played."""
    with served(SCRIPTED_SERVER, "web") as address:
        yield address


Scripted = Callable[..., dict[str, Any]]


@pytest.fixture
def scripted(scripts: str) -> Scripted:
    """Makes the config of a server with some pages of tools; a tool may be given by its name alone."""

    def make(name: str, *pages: list[str | dict[str, Any]], **script: Any) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        tools = [
            [{"name": tool, "inputSchema": schema} if isinstance(tool, str) else tool for tool in page]
            for page in pages
        ]
        file = Path(f"{name}.script.json").absolute()
        file.write_text(json.dumps({"pages": tools, **script}), encoding="utf-8")
        return {"type": "http", "url": f"{scripts}{file}"}

    return make


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def words(**servers: Any) -> list[str]:
    """The command line of the stage for a config with these servers."""
    Path("mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return ["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models", "MCP_CONFIG=mcp.json"]


def counts() -> dict[str, Any]:
    """What the manifest counts."""
    return artifacts.require(SCHEMAS, "schemas")["counts"]


def run_stage(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The stage as `make` runs it."""
    return subprocess.run(
        [sys.executable, "-m", "dataset_builder.schemas", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_page_is_kept_as_the_model_sees_it_and_the_bytes_repeat() -> None:
    first = run_stage(words(echo=ECHO))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[1].split()[:3] == ["echo", "3", "stdio"]
    answer = json.loads((SCHEMAS / "echo.json").read_text(encoding="utf-8"))
    assert list(answer) == [
        "server", "protocol_version", "instructions", "overview", "server_info", "tools",
    ]  # fmt: skip
    assert answer["instructions"] == "Echo kindly."
    assert [tool["name"] for tool in answer["tools"]] == ["save_note", "echo", "ping"]
    note, echo, ping = answer["tools"]
    assert list(note) == ["name", "description", "inputSchema", "sha256"]
    assert note["inputSchema"] == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/title"}},
            "extra": {"type": "object", "default": {"title": "none"}},
        },
        "required": ["title"],
        "$defs": {"title": {"type": "string", "minLength": 1}},
        "additionalProperties": False,
    }
    assert "«ñ»" in echo["description"]
    assert ping["description"] == ""

    manifest = artifacts.require(SCHEMAS, "schemas")
    assert (manifest["kind"], manifest["counts"]) == ("schemas", {"echo": 3})
    assert schemas.main(words(echo={**ECHO, "env": {"MOOD": "good"}})) == 0
    assert artifacts.digest(artifacts.require(SCHEMAS, "schemas")) == artifacts.digest(manifest)


def test_an_unchanged_config_starts_no_server_and_imports_no_sdk() -> None:
    arguments = words(echo=ECHO)
    assert schemas.main(arguments) == 0
    check = (
        "import sys; from dataset_builder import schemas; "
        f"code = schemas.main({arguments}); sys.exit(code or 'mcp' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"schemas: up to date ({SCHEMAS})\n")


def test_http_and_sse_with_headers_give_what_stdio_gives(
    web: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ECHO_TOKEN", TOKEN)
    headers = {"Authorization": "Bearer ${ECHO_TOKEN}"}
    servers = {
        "local": ECHO,
        "web": {"url": f"{web}/${{ECHO_PATH:-mcp}}", "headers": headers},
        "events": {"type": "sse", "url": f"{web}/sse", "headers": headers},
    }
    assert schemas.main(words(**servers)) == 0
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert rows == [["local", "3", "stdio"], ["web", "3", "http"], ["events", "3", "sse"]]
    tools = schemas.load_tools(SCHEMAS)
    assert len(tools) == 9
    for name in ("save_note", "echo", "ping"):
        assert len({tools[f"{server}.{name}"].sha256 for server in servers}) == 1


def test_failing_servers_are_named_with_their_cause_while_the_others_are_dumped(
    web: str, scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted("dying", ["look"], ["find"], end="exit")
    servers = {
        "echo": ECHO,
        "dead": DEAD,
        "absent": {"command": "no-such-server"},
        "locked": {"url": f"{web}/mcp?userToken=hush"},
        "locked-events": {"type": "sse", "url": f"{web}/sse"},
        "lost": {"url": f"{web}/nowhere", "headers": {"Authorization": f"Bearer {TOKEN}"}},
        "silent": {"url": "http://user:hush@127.0.0.1:9/mcp"},
        "empty": scripted("empty", []),
        "twice": scripted("twice", ["look", "find"], ["look"]),
        "dying": {"command": sys.executable, "args": [SCRIPTED_SERVER, "stdio", "dying.script.json"]},
        "endless": scripted("endless", ["look"], ["find"], end="loop"),
        "paged": scripted("paged", ["look"], ["find", "read"], ["write"]),
    }
    with pytest.raises(UserError, match=r"10 of 12 servers failed \(dead, .*; mend them .*or delete them"):
        schemas.main(words(**servers))
    failed = {name: {"failed": True, "tools": 0} for name in servers if name not in ("echo", "paged")}
    assert counts() == {"echo": 3, **failed, "paged": 4}
    assert list(schemas.load_servers(SCHEMAS)) == ["echo", "paged"]
    assert [t.name for t in schemas.load_tools(SCHEMAS).values() if t.server == "paged"] == [
        "look", "find", "read", "write",
    ]  # fmt: skip

    output = capsys.readouterr()
    assert "echo               3  stdio" in output.out
    reasons = dict(line.split(": ", 1) for line in output.err.splitlines())
    assert reasons.keys() == failed.keys()
    assert "boom: no licence" in reasons["dead"]
    assert reasons["absent"].startswith("command no-such-server not found; install it")
    assert "HTTP 401; set its token in headers" in reasons["locked"]
    assert "HTTP 401" in reasons["locked-events"]
    assert "HTTP 404; correct the url" in reasons["lost"]
    assert "cannot reach http://127.0.0.1:9/mcp" in reasons["silent"]
    assert "hush" not in output.err
    assert reasons["empty"].startswith("lists no tools; check what its token may do")
    assert reasons["twice"] == "lists look twice; update the server"
    assert "failed (Connection closed); start it by hand" in reasons["dying"]
    assert reasons["endless"].startswith("its pages of tools never end")


def test_a_failed_server_keeps_its_last_dump_and_is_asked_again_until_it_answers_or_goes(
    scripted: Scripted,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good: list[str] = ["look", "find"]
    arguments = words(one=scripted("one", good), two=scripted("two", ["go"]))
    assert schemas.main(arguments) == 0
    before = artifacts.require(SCHEMAS, "schemas")

    scripted("one", good, end="loop")
    scripted("two", ["go", "stop"])
    with pytest.raises(UserError, match=r"1 of 2 servers failed \(one\)"):
        schemas.main([*arguments, "REFRESH=1"])
    assert counts() == {"one": {"failed": True, "tools": 2}, "two": 2}
    assert "failed; its last dump stays" in capsys.readouterr().out
    assert list(schemas.load_tools(SCHEMAS)) == ["one.look", "one.find", "two.go", "two.stop"]
    now = artifacts.require(SCHEMAS, "schemas")["files"]
    assert now["one.json"] == before["files"]["one.json"]

    with pytest.raises(UserError, match=r"1 of 2 servers failed \(one\)"):
        schemas.main(arguments)
    scripted("one", good)
    assert schemas.main(arguments) == 0
    assert counts() == {"one": 2, "two": 2}
    assert schemas.main(arguments) == 0
    assert capsys.readouterr().out.endswith(f"schemas: up to date ({SCHEMAS})\n")

    Path("one.script.json").unlink()
    with pytest.raises(UserError):
        schemas.main([*arguments, "REFRESH=1"])
    capsys.readouterr()
    assert schemas.main(words(two=scripted("two", ["go", "stop"]))) == 0
    assert "one: gone from the config" in capsys.readouterr().out
    assert list(schemas.load_servers(SCHEMAS)) == ["two"]


def test_refresh_says_what_changed_and_touches_nothing_where_nothing_did(
    scripted: Scripted,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = words(one=scripted("one", ["look", "find"], instructions="Look first."))
    assert schemas.main(arguments) == 0
    assert "new" not in capsys.readouterr().out
    manifest = SCHEMAS / "manifest.json"
    inode = manifest.stat().st_ino
    assert schemas.main([*arguments, "REFRESH=1"]) == 0
    assert "no change since the last dump" in capsys.readouterr().out
    assert manifest.stat().st_ino == inode

    number = {"type": "object", "properties": {"text": {"type": "integer"}}, "required": ["text"]}
    look = {"name": "look", "description": "Looks.", "inputSchema": number}
    scripted("one", [look, "write"], instructions="Look twice.", version="2")
    assert schemas.main(arguments) == 0
    assert "up to date" in capsys.readouterr().out
    assert schemas.main([*arguments, "REFRESH=1"]) == 0
    assert capsys.readouterr().out.splitlines()[2:-1] == [
        "one: version: 1 -> 2",
        "one: instructions changed",
        "one: write added",
        "one: find removed",
        "one: look: description changed",
        "one: look.text: now required",
        'one: look.text: type "string" -> "integer"',
    ]
    assert manifest.stat().st_ino != inode

    config = json.loads(Path("mcp.json").read_text(encoding="utf-8"))
    digest = artifacts.digest(artifacts.require(SCHEMAS, "schemas"))
    assert schemas.main(words(**config["mcpServers"], more=scripted("more", ["go"]))) == 0
    assert "more: new, 1 tools" in capsys.readouterr().out
    assert artifacts.digest(artifacts.require(SCHEMAS, "schemas")) != digest


def test_a_damaged_dump_is_made_again(scripted: Scripted) -> None:
    arguments = words(one=scripted("one", ["look"]))
    assert schemas.main(arguments) == 0
    (SCHEMAS / "one.json").unlink()
    assert schemas.main(arguments) == 0
    assert list(schemas.load_tools(SCHEMAS)) == ["one.look"]


def test_a_guide_that_the_instructions_name_is_kept_and_no_other_tool_is_called(scripted: Scripted) -> None:
    bare = {"type": "object", "properties": {}}
    tools = [{"name": name, "inputSchema": bare} for name in ("reset_all", "read_overview", "other_overview")]
    results = {"reset_all": "gone", "read_overview": "Rules: none.", "other_overview": "?"}
    told = "Call `read_overview` first and reset_all last."
    servers = {
        "guided": scripted("guided", tools, instructions=told, results=results),
        "failing": scripted("failing", tools, instructions=told),
        "asking": scripted("asking", ["read_overview"], instructions=told, results=results),
        "plain": scripted("plain", tools, results=results),
    }
    assert schemas.main(words(**servers)) == 0
    assert {name: info.overview for name, info in schemas.load_servers(SCHEMAS).items()} == {
        "guided": "Rules: none.", "failing": "", "asking": "", "plain": "",
    }  # fmt: skip


def test_servers_are_read_back_as_they_present_themselves() -> None:
    assert schemas.main(words(echo=ECHO)) == 0
    assert schemas.load_servers(SCHEMAS) == {
        "echo": schemas.ServerInfo(
            name="echo",
            instructions="Echo kindly.",
            overview="",
            protocol_version="2025-11-25",
            version="1.0",
        )
    }


def test_a_hanging_server_is_left_after_the_time_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mcp_connection, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(UserError, match=r"1 of 1 servers failed \(hanging\)"):
        schemas.main(words(hanging=HANGING))
    assert capsys.readouterr().err == (
        f"hanging: no answer from {sys.executable} within 0.5 s; start it by hand to see why\n"
    )


def test_mistakes_end_with_2_and_one_line() -> None:
    done = run_stage(words(absent={"command": "no-such-server"}))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "absent: command no-such-server not found; install it or correct the command",
        "error: mcp.json: 1 of 1 servers failed (absent); mend them and make schemas, "
        "or delete them from the config to go on without their tools",
    ]
    assert not SCHEMAS.exists()
    done = run_stage(words(echo={**ECHO, "env": {"KEY": "${NO_SUCH_VARIABLE}"}}))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: mcp.json: server echo: variable NO_SUCH_VARIABLE is not set; "
        "export NO_SUCH_VARIABLE=..., or write ${NO_SUCH_VARIABLE:-default}"
    ]
    arguments = words()
    Path("mcp.json").unlink()
    done = run_stage(arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: MCP_CONFIG=mcp.json: no such file; give a Claude Code config")


def test_a_call_is_checked_against_its_schema() -> None:
    tool = schemas.ToolSchema(
        server="s",
        name="t",
        description="",
        parameters={
            "type": "object",
            "properties": {"count": {"type": "integer"}},
            "required": ["count"],
        },
        sha256="",
    )
    assert tool.fault_in({"count": 3}) is None
    assert "colour" in str(tool.fault_in({"count": 3, "colour": 1}))
    assert tool.fault_in({}) == "mcp__s__t: 'count' is a required property"
    assert tool.fault_in({"count": "3"}) == "mcp__s__t.count: '3' is not of type 'integer'"
