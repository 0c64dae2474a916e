"""How a Claude Code config is read: what is refused and how, what is expanded."""

import json
from pathlib import Path

import pytest

from core.errors import UserError
from core.mcp_config import read_config


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mcpServers": {\n"git" 1}}', "mcp.json:2: broken JSON"),
        ('{"servers": {}}', 'no server in "mcpServers"'),
        ('{"mcpServers": {}}', 'no server in "mcpServers"'),
        ("[]", 'no server in "mcpServers"'),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "two entries are named 'a'"),
        ('{"mcpServers": {"a": {"command": "x", "command": "y"}}}', "two entries are named 'command'"),
        ('{"mcpServers": {"Git": {"command": "x"}, "git": {"command": "y"}}}', "differ in case only"),
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
        read_config(Path("mcp.json"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_variables_expand_in_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "/opt")
    entry = {
        "command": "${HERE}/run",
        "args": ["--at=${HERE}", "${GONE:-a b}", "$HERE"],
        "env": {"PLACE": "${HERE}${GONE:-}"},
    }
    servers = {"one": entry, "two": {"url": "http://x/${HERE}", "headers": {"H": "${HERE}"}}}
    Path("mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    one, two = read_config(Path("mcp.json"))
    assert (one.command, one.args, one.env) == (
        "/opt/run",
        ["--at=/opt", "a b", "$HERE"],
        {"PLACE": "/opt"},
    )
    assert (two.transport, two.url, two.headers) == ("http", "http://x//opt", {"H": "/opt"})
