"""Stage `schemas`: ask every MCP server of a Claude Code config for its tools; keep what the model sees.

The servers are asked again when the config file changes, not when their answers do: delete the artefact
to ask sooner.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from core import artifacts, chat, config, errors, toolcalls
from core.chat import Tool
from core.errors import UserError
from core.settings import SchemasSettings
from core.toolcalls import ToolCall

TIMEOUT_SECONDS = 30.0
SERVER_NAME = re.compile(r"[A-Za-z0-9_-]+")
VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}

HIDDEN = ("$schema", "title")
"""Schema keywords that the harness does not show the model."""
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords whose value maps names, not keywords, to schemas."""
DATA = ("default", "const", "enum", "examples", "dependentRequired")
"""Keywords whose value is no schema."""


@dataclass(frozen=True, kw_only=True)
class ToolSchema:
    """One tool as the model sees it."""

    server: str
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""
    sha256: str
    """Of the tool's canonical JSON: tells a changed tool from the same one."""

    @property
    def properties(self) -> dict[str, Any]:
        """JSON schema by argument."""
        return self.parameters.get("properties", {})

    @property
    def required(self) -> tuple[str, ...]:
        """The arguments that every call must carry."""
        return tuple(self.parameters.get("required", ()))

    @property
    def shown_name(self) -> str:
        """The name under which Claude Code shows the tool: `mcp__git__git_status`."""
        return f"mcp__{self.server}__{self.name}"

    @property
    def shown(self) -> Tool:
        """The tool as a prompt carries it."""
        return chat.tool(self.shown_name, self.description, self.parameters)

    def fault_in(self, arguments: dict[str, Any]) -> str | None:
        """The first thing that is wrong with the arguments of a call, or None."""
        found = toolcalls.faults(ToolCall(self.shown_name, arguments), [self.shown])
        return found[0] if found else None


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


@dataclass(frozen=True)
class Failure:
    """Why a server gave no tools and what mends it, in one line."""

    reason: str


def load_tools(path: Path) -> dict[str, ToolSchema]:
    """The tools of a schemas artefact by `<server>.<tool>`; UserError where there is none."""
    manifest = artifacts.require(path, "schemas")
    tools = {}
    for name in sorted(manifest["files"]):
        answer = json.loads((path / name).read_text(encoding="utf-8"))
        for tool in answer["tools"]:
            tools[f"{answer['server']}.{tool['name']}"] = ToolSchema(
                server=answer["server"],
                name=tool["name"],
                description=tool["description"],
                parameters=tool["inputSchema"],
                sha256=tool["sha256"],
            )
    return tools


def read_config(path: Path) -> list[Server]:
    """The servers of a Claude Code config, in its order.

    Raises UserError on broken JSON, a missing or mistyped entry, a variable that is not set.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: broken JSON ({error.msg}); mend that line") from None
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict) or not servers:
        raise UserError(f'{path}: no server in "mcpServers"; see examples/mcp.json for the format')
    return [_server(name, entry, f"{path}: server {name}") for name, entry in servers.items()]


def shown(schema: Any) -> Any:
    """A JSON schema without the keywords that the model does not see; order kept, input untouched."""
    if isinstance(schema, list):
        return [shown(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key in HIDDEN:
            continue
        if key in NAMED and isinstance(value, dict):
            kept[key] = {name: shown(part) for name, part in value.items()}
        else:
            kept[key] = value if key in DATA else shown(value)
    return kept


def ask_all(servers: Sequence[Server]) -> dict[str, dict[str, Any] | Failure]:
    """What each server answers, all asked at once: the content of its file, or why there is none."""
    import anyio

    # The SDK logs a traceback for each line it cannot parse; the failure's reason says it in one line.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    answers: dict[str, dict[str, Any] | Failure] = {}

    async def ask_one(server: Server) -> None:
        answers[server.name] = await _answer(server)

    async def ask_each() -> None:
        async with anyio.create_task_group() as group:
            for server in servers:
                group.start_soon(ask_one, server)

    anyio.run(ask_each)
    return {server.name: answers[server.name] for server in servers}


def main(words: list[str]) -> int:
    """The stage; UserError when any server fails, and then nothing is written."""
    settings = config.parse(SchemasSettings, words)
    path, source = settings.data_dir / "schemas", settings.mcp_config
    if not source.is_file():
        raise UserError(f"MCP_CONFIG={source}: no such file; give a Claude Code config with mcpServers")
    recorded = config.recorded(settings)
    inputs = {"config": {"path": str(source), "sha256": artifacts.file_sha256(source)}}
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"schemas: up to date ({path})")
        return errors.DONE
    servers = read_config(source)
    answers = ask_all(servers)
    _report(servers, answers)
    failed = [name for name, answer in answers.items() if isinstance(answer, Failure)]
    if failed:
        raise UserError(
            f"{source}: {len(failed)} of {len(servers)} servers failed ({', '.join(failed)}), "
            "nothing was written; mend or delete them and run again"
        )
    with artifacts.create(
        path,
        kind="schemas",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        for name, answer in answers.items():
            assert isinstance(answer, dict)
            text = json.dumps(answer, indent=1, ensure_ascii=False) + "\n"
            (draft.path / f"{name}.json").write_text(text, encoding="utf-8")
            draft.counts[name] = len(answer["tools"])
    print(f"schemas: {sum(draft.counts.values())} tools in {path}")
    return errors.DONE


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


async def _answer(server: Server) -> dict[str, Any] | Failure:
    import anyio

    statuses: list[int] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        try:
            with anyio.fail_after(TIMEOUT_SECONDS):
                answer = await _ask(server, stderr, statuses)
        # A foreign program or site fails in any way it likes, most often inside an exception group.
        except Exception as error:
            return Failure(_reason(server, error, statuses) + _last_words(stderr))
    names = [tool["name"] for tool in answer["tools"]]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return Failure(f"lists {twice[0]} twice; update the server")
    answer["tools"] = [_tool(tool) for tool in answer["tools"]]
    return answer


async def _ask(server: Server, stderr: TextIO, statuses: list[int]) -> dict[str, Any]:
    from mcp import Client

    # `legacy` is the handshake that deployed harnesses speak; the newest revision makes the same server
    # write the keys of its schemas in another order, and the model sees that order.
    async with Client(_connect(server, stderr, statuses), mode="legacy") as client:
        tools, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        info = client.server_info
        return {
            "server": server.name,
            "protocol_version": client.protocol_version,
            "instructions": client.instructions,
            "server_info": info.model_dump(by_alias=True, exclude_none=True) if info else None,
            "tools": [tool.model_dump(by_alias=True) for tool in tools],
        }


@contextlib.asynccontextmanager
async def _connect(server: Server, stderr: TextIO, statuses: list[int]) -> AsyncIterator[Any]:
    import httpx2
    from mcp import StdioServerParameters, stdio_client
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    async def note_status(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    def http_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        hooks = {"response": [note_status]}
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=hooks)

    if server.transport == "stdio":
        environment = {**os.environ, **server.env}
        parameters = StdioServerParameters(command=server.command, args=server.args, env=environment)
        async with stdio_client(parameters, errlog=stderr) as streams:
            yield streams
    elif server.transport == "sse":
        async with sse_client(
            server.url, headers=server.headers, httpx_client_factory=http_client
        ) as streams:
            yield streams
    else:
        async with (
            http_client(server.headers, httpx2.Timeout(TIMEOUT_SECONDS)) as client,
            streamable_http_client(server.url, http_client=client) as streams,
        ):
            yield streams


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    seen = {
        "name": tool["name"],
        "description": tool["description"] or "",
        "inputSchema": shown(tool["inputSchema"]),
    }
    canonical = json.dumps(seen, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {**seen, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}


def _reason(server: Server, error: Exception, statuses: list[int]) -> str:
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    detail = " ".join(str(cause).split())[:300]
    # The query of a url may carry a token.
    target = server.command or server.url.partition("?")[0]
    if isinstance(cause, TimeoutError):
        return f"no answer from {target} within {TIMEOUT_SECONDS:g} s; start it by hand to see why"
    if isinstance(cause, FileNotFoundError):
        return f"command {target} not found; install it or correct the command"
    if isinstance(cause, PermissionError):
        return f"command {target} is not executable; correct the command or its mode"
    if statuses and statuses[-1] in (401, 403):
        return f"{target} refused us with HTTP {statuses[-1]}; set its token in headers"
    if statuses and statuses[-1] >= 400:
        return f"{target} answered HTTP {statuses[-1]}; correct the url or the type"
    if server.transport != "stdio" and not statuses:
        return f"cannot reach {target} ({detail}); start the server or correct the url"
    return f"{target} failed ({detail}); start it by hand to see why"


def _last_words(stderr: TextIO) -> str:
    stderr.seek(0)
    lines = [line.strip() for line in stderr if line.strip()]
    return f" (it said: {' | '.join(lines[-3:])[-300:]})" if lines else ""


def _report(servers: Sequence[Server], answers: dict[str, dict[str, Any] | Failure]) -> None:
    width = max(len("server"), *(len(server.name) for server in servers))
    print(f"{'server':<{width}}  tools  transport  protocol")
    for server in servers:
        answer = answers[server.name]
        if isinstance(answer, Failure):
            tools, version = "-", "failed"
            print(f"{server.name}: {answer.reason}", file=sys.stderr)
        else:
            tools, version = len(answer["tools"]), answer["protocol_version"]
        print(f"{server.name:<{width}}  {tools:>5}  {server.transport:<9}  {version}")


if __name__ == "__main__":
    errors.run(main)
