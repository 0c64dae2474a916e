"""A real MCP server that says what a JSON file tells it to: `stdio FILE`, or `web` for any file by its path.

`{"pages": [[tool, ...], ...], "instructions", "version", "results": {tool: text}, "end"}`. After the last
page `"end": "exit"` ends the process, and `"end": "loop"` names the first page as the next one. A call of the
tool `"dies_of"` ends the process, one of `"hangs_at"` is never answered.
`web` prints its port and answers at `http://127.0.0.1:PORT/path/of/the/file`, read anew for each request.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp.types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import Response
from starlette.types import Receive, Scope, Send


def server_of(script: dict[str, Any]) -> Server[Any]:
    """The server that a script describes."""
    pages = script["pages"]

    async def list_tools(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        number = int(params.cursor or 0) if params else 0
        if number == len(pages):
            os._exit(1)
        following = number + 1
        if following == len(pages):
            following = {"exit": following, "loop": 0}.get(script.get("end", ""))
        return types.ListToolsResult(
            tools=[types.Tool.model_validate(tool) for tool in pages[number]],
            next_cursor=None if following is None else str(following),
        )

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name == script.get("dies_of"):
            print("out of memory", file=sys.stderr, flush=True)
            os._exit(1)
        if params.name == script.get("hangs_at"):
            await anyio.sleep_forever()
        text = script.get("results", {}).get(params.name)
        content = [types.TextContent(type="text", text=text or "not in the script")]
        return types.CallToolResult(content=[*content], is_error=text is None)

    return Server(
        "scripted", version=script.get("version", "1"), instructions=script.get("instructions"),
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


async def serve_stdio(file: str) -> None:
    """Serve one script until stdin closes."""
    server = server_of(json.loads(Path(file).read_text(encoding="utf-8")))
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request by the script that its path names."""
    file = Path(scope["path"])
    if not file.is_file():
        await Response("no such script", status_code=404)(scope, receive, send)
        return
    server = server_of(json.loads(file.read_text(encoding="utf-8")))
    manager = StreamableHTTPSessionManager(app=server, stateless=True)
    async with manager.run():
        await manager.handle_request(scope, receive, send)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(serve_stdio, sys.argv[2])
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning")).run(sockets=[listener])
