"""The connection to an MCP server, over stdio, streamable HTTP or SSE, and why there is none, in one line."""

import contextlib
import os
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from core.mcp_config import Server

if TYPE_CHECKING:
    from mcp import Client

TIMEOUT_SECONDS = 30.0


class Unusable(Exception):
    """The server answers, but its answer is of no use; the text says why and what mends it."""


@contextlib.asynccontextmanager
async def connect(
    server: Server, stderr: TextIO, statuses: list[int], cwd: Path | None = None
) -> AsyncIterator[Any]:
    """The streams to a server, for `mcp.Client`; a server over stdio is started in `cwd` and ended with them.

    What a server over stdio writes beside the protocol goes to `stderr`, a real file; the HTTP statuses of
    the others' answers go to `statuses`.
    """
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
        parameters = StdioServerParameters(command=server.command, args=server.args, env=environment, cwd=cwd)
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


async def all_tools(client: "Client") -> list[dict[str, Any]]:
    """All pages of `tools/list`; Unusable where they make no usable list."""
    tools: list[dict[str, Any]] = []
    cursors: list[str | None] = [None]
    while True:
        page = await client.list_tools(cursor=cursors[-1])
        tools += [tool.model_dump(by_alias=True) for tool in page.tools]
        if not page.next_cursor:
            break
        if page.next_cursor in cursors:
            raise Unusable("its pages of tools never end; update the server")
        cursors.append(page.next_cursor)
    twice = [name for name, count in Counter(tool["name"] for tool in tools).items() if count > 1]
    if twice:
        raise Unusable(f"lists {twice[0]} twice; update the server")
    if not tools:
        raise Unusable("lists no tools; check what its token may do and which toolsets are on")
    return tools


def why(server: Server, error: Exception, stderr: TextIO, statuses: list[int]) -> str:
    """Why a server gave no answer and what mends it, in one line without a secret of its url."""
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, Unusable):
        return str(cause)
    return _reason(server, cause, statuses) + last_words(stderr)


def last_words(stderr: TextIO) -> str:
    """What a server wrote last beside the protocol, in brackets; blank where it wrote nothing."""
    stderr.seek(0)
    lines = [line.strip() for line in stderr if line.strip()]
    return f" (it said: {' | '.join(lines[-3:])[-300:]})" if lines else ""


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
