"""Reads a Claude Code config (`.mcp.json`): which MCP servers there are and how each is reached."""

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core import artifacts
from core.errors import UserError

SERVER_NAME = re.compile(r"[A-Za-z0-9_-]+")
VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}


@dataclass(frozen=True, kw_only=True)
class Server:
    """One entry of `mcpServers`, its variables expanded."""

    name: str
    transport: str
    """`stdio`, `http` (streamable) or `sse`."""
    command: str = ""
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def read_config(path: Path) -> list[Server]:
    """The servers of a Claude Code config, in its order.

    Raises UserError where there is no such file, on broken JSON, a name given twice, a missing or mistyped
    entry, a variable that is not set.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # json keeps the last of two entries with one name and says nothing.
        twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        if twice:
            raise UserError(f"{path}: two entries are named {twice[0]!r}; rename or delete one")
        return dict(pairs)

    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: broken JSON ({error.msg}); mend that line") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give a Claude Code config with mcpServers") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; save it as UTF-8") from None
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict) or not servers:
        raise UserError(f'{path}: no server in "mcpServers"; see examples/mcp.json for the format')
    names: dict[str, str] = {}
    for name in servers:
        if names.setdefault(name.lower(), name) != name:
            # On macOS their dumps would be one file.
            raise UserError(
                f"{path}: servers {names[name.lower()]} and {name} differ in case only; rename one"
            )
    return [_server(name, entry, f"{path}: server {name}") for name, entry in servers.items()]


def from_anywhere(server: Server) -> Server:
    """The server with the files that its command names in full, so that it starts in any directory."""
    here = "/" in server.command and Path(server.command).exists()
    return replace(
        server,
        command=str(Path(server.command).absolute()) if here else server.command,
        args=[str(Path(arg).absolute()) if Path(arg).is_file() else arg for arg in server.args],
    )


def _server(name: str, entry: Any, where: str) -> Server:
    if not SERVER_NAME.fullmatch(name) or f"{name}.json" == artifacts.MANIFEST:
        raise UserError(f"{where}: a name has only letters, digits, - and _, and is not manifest; rename it")
    if not isinstance(entry, dict):
        raise UserError(f"{where}: expected an object with a command or a url")
    kind = entry.get("type", "http" if "url" in entry else "stdio")
    if kind not in TRANSPORTS:
        raise UserError(f"{where}: type {kind!r} is not known; have {', '.join(TRANSPORTS)}")
    needed = "command" if kind == "stdio" else "url"
    if not entry.get(needed):
        raise UserError(f"{where}: type {kind} needs a {needed}; add it")
    for key, allowed in (("args", list), ("env", dict), ("headers", dict)):
        if not isinstance(entry.get(key, allowed()), allowed):
            raise UserError(f"{where}: {key} must be {'a list' if allowed is list else 'an object'}")
    return Server(
        name=name,
        transport=TRANSPORTS[kind],
        command=_expand(entry.get("command", ""), where),
        args=[_expand(arg, where) for arg in entry.get("args", [])],
        env={key: _expand(value, where) for key, value in entry.get("env", {}).items()},
        url=_expand(entry.get("url", ""), where),
        headers={key: _expand(value, where) for key, value in entry.get("headers", {}).items()},
    )


def _expand(text: Any, where: str) -> str:
    if not isinstance(text, str):
        raise UserError(f"{where}: {json.dumps(text)} must be a text; put it in quotes")

    def value_of(match: re.Match[str]) -> str:
        name, default = match.groups()
        value = os.environ.get(name, default)
        if value is None:
            raise UserError(
                f"{where}: variable {name} is not set; export {name}=..., or write ${{{name}:-default}}"
            )
        return value

    return VARIABLE.sub(value_of, text)
