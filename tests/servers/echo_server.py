"""A small real MCP server: three tools on two pages; `stdio`, or `web TOKEN` for /mcp and /sse.

`web` prints its port and answers 401 to any request without `Authorization: Bearer TOKEN`.
"""

import socket
import sys
from typing import Any

import anyio
import mcp.types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

NOTE = types.Tool(
    name="save_note",
    title="Save a note",
    description="Keep a note.",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "NoteArguments",
        "type": "object",
        "properties": {
            "title": {"title": "Title", "type": "string"},
            "tags": {"title": "Tags", "type": "array", "items": {"$ref": "#/$defs/title"}},
            "extra": {"type": "object", "title": "Extra", "default": {"title": "none"}},
        },
        "required": ["title"],
        "$defs": {"title": {"title": "Word", "type": "string", "minLength": 1}},
        "additionalProperties": False,
    },
    output_schema={"type": "object", "properties": {"id": {"type": "integer"}}},
    annotations=types.ToolAnnotations(read_only_hint=False),
)
ECHO = types.Tool(
    name="echo",
    description="Say it again: «ñ».",
    input_schema={"properties": {"text": {"type": "string"}}, "type": "object", "required": ["text"]},
)
PING = types.Tool(name="ping", input_schema={"type": "object"})
PAGES: dict[str | None, tuple[list[types.Tool], str | None]] = {
    None: ([NOTE, ECHO], "second"),
    "second": ([PING], None),
}


async def list_tools(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """One page of the tools."""
    tools, next_cursor = PAGES[params.cursor if params else None]
    return types.ListToolsResult(tools=tools, next_cursor=next_cursor)


server = Server("echo", version="1.0", instructions="Echo kindly.", on_list_tools=list_tools)


async def serve_stdio() -> None:
    """Serve until stdin closes."""
    print("noise that nobody asked for", file=sys.stderr)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def web_app(token: str) -> ASGIApp:
    """Streamable HTTP at /mcp and SSE at /sse, behind one bearer token."""
    sse = SseServerTransport("/messages/")

    async def serve_sse(request: Request) -> Response:
        async with sse.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    app = server.streamable_http_app()
    app.routes.extend([Route("/sse", serve_sse), Mount("/messages/", app=sse.handle_post_message)])

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("authorization") != f"Bearer {token}":
            await Response("who are you?", status_code=401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded


def serve_web(token: str) -> None:
    """Serve on a free port of 127.0.0.1 until killed."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(web_app(token), log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(serve_stdio)
    else:
        serve_web(sys.argv[2])
