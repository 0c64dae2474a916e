"""Asks MCP servers for their tools, over stdio, streamable HTTP or SSE; keeps what the model sees."""

import contextlib
import hashlib
import json
import logging
import os
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from dataset_builder.servers.mcp_config import Server

if TYPE_CHECKING:
    from mcp import Client

TIMEOUT_SECONDS = 30.0

HIDDEN = ("$schema", "title")
"""Schema keywords that the harness does not show the model."""
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords whose value maps names, not keywords, to schemas."""
DATA = ("default", "const", "enum", "examples", "dependentRequired")
"""Keywords whose value is no schema."""
GUIDE = re.compile("overview|guide|instructions")


@dataclass(frozen=True)
class Failure:
    """Why a server gave no tools and what mends it, in one line."""

    reason: str


class _Unusable(Exception):
    """The server answers, but its answer is of no use; the text says why and what mends it."""


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


def as_shown(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool of `tools/list` as the model sees it, with the sha256 of its canonical JSON."""
    seen = {
        "name": tool["name"],
        "description": tool.get("description") or "",
        "inputSchema": shown(tool["inputSchema"]),
    }
    canonical = json.dumps(seen, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {**seen, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}


async def _answer(server: Server) -> dict[str, Any] | Failure:
    import anyio

    statuses: list[int] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        try:
            with anyio.fail_after(TIMEOUT_SECONDS):
                return await _ask(server, stderr, statuses)
        # A foreign program or site fails in any way it likes, most often inside an exception group.
        except Exception as error:
            cause = _cause(error)
            if isinstance(cause, _Unusable):
                return Failure(str(cause))
            return Failure(_reason(server, cause, statuses) + _last_words(stderr))


async def _ask(server: Server, stderr: TextIO, statuses: list[int]) -> dict[str, Any]:
    from mcp import Client

    # `legacy` is the handshake that deployed harnesses speak; the newest revision makes the same server
    # write the keys of its schemas in another order, and the model sees that order.
    async with Client(_connect(server, stderr, statuses), mode="legacy") as client:
        tools = await _tools(client)
        info = client.server_info
        return {
            "server": server.name,
            "protocol_version": client.protocol_version,
            "instructions": client.instructions,
            "overview": await _overview(client, tools),
            "server_info": info.model_dump(by_alias=True, exclude_none=True) if info else None,
            "tools": [as_shown(tool) for tool in tools],
        }


async def _tools(client: "Client") -> list[dict[str, Any]]:
    """All pages of `tools/list`; _Unusable where they make no usable list."""
    tools: list[dict[str, Any]] = []
    cursors: list[str | None] = [None]
    while True:
        page = await client.list_tools(cursor=cursors[-1])
        tools += [tool.model_dump(by_alias=True) for tool in page.tools]
        if not page.next_cursor:
            break
        if page.next_cursor in cursors:
            raise _Unusable("its pages of tools never end; update the server")
        cursors.append(page.next_cursor)
    twice = [name for name, count in Counter(tool["name"] for tool in tools).items() if count > 1]
    if twice:
        raise _Unusable(f"lists {twice[0]} twice; update the server")
    if not tools:
        raise _Unusable("lists no tools; check what its token may do and which toolsets are on")
    return tools


async def _overview(client: "Client", tools: Sequence[dict[str, Any]]) -> str | None:
    """The text of the guide that the server's instructions name, where there is one.

    Some servers keep their rules there (Penpot's `high_level_overview`). Only a tool without parameters
    whose name says that it is a guide is called: no other can be called without asking the user.
    """
    from mcp import MCPError

    for tool in tools:
        named = tool["name"] in (client.instructions or "") and GUIDE.search(tool["name"])
        if not named or tool["inputSchema"].get("properties"):
            continue
        try:
            result = await client.call_tool(tool["name"])
        except MCPError:
            return None
        texts = [block.text for block in result.content if block.type == "text"]
        return None if result.is_error else "\n".join(texts)
    return None


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
        # mcp-atlassian 0.23 joins a set into a default: without a fixed seed each start looks like a change.
        environment = {"PYTHONHASHSEED": "0", **os.environ, **server.env}
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


def _cause(error: Exception) -> BaseException:
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause


def _reason(server: Server, cause: BaseException, statuses: list[int]) -> str:
    # The query of a url, and what stands before an @, may carry a secret.
    target = server.command or re.sub(r"//[^/@]*@", "//", server.url.partition("?")[0])
    detail = " ".join(str(cause).replace(server.url or "\0", target).split())[:300]
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
