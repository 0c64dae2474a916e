"""Asks MCP servers for their tools, over stdio, streamable HTTP or SSE; keeps what the model sees."""

import logging
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from core import mcp_connection
from core.mcp_config import Server
from core.mcp_tools import as_shown

if TYPE_CHECKING:
    from mcp import Client

GUIDE = re.compile("overview|guide|instructions")


@dataclass(frozen=True)
class Failure:
    """Why a server gave no tools and what mends it, in one line."""

    reason: str


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


async def _answer(server: Server) -> dict[str, Any] | Failure:
    import anyio

    statuses: list[int] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        try:
            with anyio.fail_after(mcp_connection.TIMEOUT_SECONDS):
                return await _ask(server, stderr, statuses)
        # A foreign program or site fails in any way it likes, most often inside an exception group.
        except Exception as error:
            return Failure(mcp_connection.why(server, error, stderr, statuses))


async def _ask(server: Server, stderr: TextIO, statuses: list[int]) -> dict[str, Any]:
    from mcp import Client

    # `legacy` is the handshake that deployed harnesses speak; the newest revision makes the same server
    # write the keys of its schemas in another order, and the model sees that order.
    async with Client(mcp_connection.connect(server, stderr, statuses), mode="legacy") as client:
        tools = await mcp_connection.all_tools(client)
        info = client.server_info
        return {
            "server": server.name,
            "protocol_version": client.protocol_version,
            "instructions": client.instructions,
            "overview": await _overview(client, tools),
            "server_info": info.model_dump(by_alias=True, exclude_none=True) if info else None,
            "tools": [as_shown(tool) for tool in tools],
        }


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
