"""Stage `schemas` against real servers: over stdio, streamable HTTP and SSE, and against broken ones."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core import artifacts
from core.errors import UserError
from dataset_builder import schemas

ROOT = Path(__file__).parents[1]
ECHO_SERVER = str(ROOT / "tests/servers/echo_server.py")
TOKEN = "open-sesame"
ECHO = {"command": sys.executable, "args": [ECHO_SERVER, "stdio"]}
DEAD = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('boom: no licence')"]}
HANGING = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
SCHEMAS = Path("data/tiny/schemas")


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """The address of the echo server over HTTP."""
    server = subprocess.Popen([sys.executable, ECHO_SERVER, "web", TOKEN], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    with server.stdout:
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    server.kill()
    server.wait()


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def words(**servers: Any) -> list[str]:
    """The command line of the stage for a config with these servers."""
    Path("mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return ["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models", "MCP_CONFIG=mcp.json"]


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
    assert list(answer) == ["server", "protocol_version", "instructions", "server_info", "tools"]
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


def test_a_failing_server_is_named_and_the_old_artefact_stays(
    web: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert schemas.main(words(echo=ECHO)) == 0
    before = artifacts.require(SCHEMAS, "schemas")
    servers = {
        "echo": ECHO,
        "dead": DEAD,
        "absent": {"command": "no-such-server"},
        "locked": {"url": f"{web}/mcp?userToken=hush"},
        "locked-events": {"type": "sse", "url": f"{web}/sse"},
        "lost": {"url": f"{web}/nowhere", "headers": {"Authorization": f"Bearer {TOKEN}"}},
        "silent": {"url": "http://127.0.0.1:9/mcp"},
    }
    capsys.readouterr()
    with pytest.raises(UserError, match=r"6 of 7 servers failed .*nothing was written"):
        schemas.main(words(**servers))
    assert artifacts.require(SCHEMAS, "schemas") == before
    output = capsys.readouterr()
    assert "echo               3  stdio" in output.out
    reasons = dict(line.split(": ", 1) for line in output.err.splitlines())
    assert reasons.keys() == servers.keys() - {"echo"}
    assert "boom: no licence" in reasons["dead"]
    assert reasons["absent"].startswith("command no-such-server not found; install it")
    assert "HTTP 401; set its token in headers" in reasons["locked"]
    assert "hush" not in reasons["locked"]
    assert "HTTP 401" in reasons["locked-events"]
    assert "HTTP 404; correct the url" in reasons["lost"]
    assert "cannot reach http://127.0.0.1:9/mcp" in reasons["silent"]


def test_a_hanging_server_is_left_after_the_time_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schemas, "TIMEOUT_SECONDS", 0.5)
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
        "error: mcp.json: 1 of 1 servers failed (absent), nothing was written; "
        "mend or delete them and run again",
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mcpServers": {\n"git" 1}}', "mcp.json:2: broken JSON"),
        ('{"servers": {}}', 'no server in "mcpServers"'),
        ('{"mcpServers": {}}', 'no server in "mcpServers"'),
        ("[]", 'no server in "mcpServers"'),
        ('{"mcpServers": {"a/b": {"command": "x"}}}', "server a/b: a name has only letters"),
        ('{"mcpServers": {"manifest": {"command": "x"}}}', "is not manifest; rename it"),
        ('{"mcpServers": {"a": "x"}}', "server a: expected an object"),
        ('{"mcpServers": {"a": {"type": "ws", "url": "x"}}}', "type 'ws' is not known; have stdio"),
        ('{"mcpServers": {"a": {"args": []}}}', "type stdio needs a command; add it"),
        ('{"mcpServers": {"a": {"type": "http"}}}', "type http needs a url; add it"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "args must be a list"),
        ('{"mcpServers": {"a": {"command": "x", "env": ["y"]}}}', "env must be an object"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"N": 1}}}}', "1 must be a text"),
    ],
)
def test_a_broken_config_says_what_and_where(text: str, message: str) -> None:
    Path("mcp.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"^mcp\.json") as caught:
        schemas.read_config(Path("mcp.json"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_variables_expand_in_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "/opt")
    entry = {
        "command": "${HERE}/run",
        "args": ["--at=${HERE}", "${GONE:-a b}", "$HERE"],
        "env": {"PLACE": "${HERE}${GONE:-}"},
    }
    words(one=entry, two={"url": "http://x/${HERE}", "headers": {"H": "${HERE}"}})
    one, two = schemas.read_config(Path("mcp.json"))
    assert (one.command, one.args, one.env) == (
        "/opt/run",
        ["--at=/opt", "a b", "$HERE"],
        {"PLACE": "/opt"},
    )
    assert (two.transport, two.url, two.headers) == ("http", "http://x//opt", {"H": "/opt"})


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
