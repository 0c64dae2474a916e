"""One MCP server and the connection to it, made anew when the server has died."""

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from core import mcp_connection
from core.errors import UserError
from core.mcp_config import Server

if TYPE_CHECKING:
    from anyio.abc import TaskGroup, TaskStatus
    from mcp import Client
    from mcp.types import CallToolResult


RESULT_LIMIT = 100_000
"""Characters of a result that the model sees: about the 25,000 tokens that Claude Code lets through."""


class Disturbed(Exception):
    """Something else than the model failed, so that the sample says nothing of the model."""


class Link:
    """A server and its tools; `group` is the task group in which the connection lives."""

    def __init__(self, server: Server, directory: Path, group: "TaskGroup") -> None:
        import anyio

        self.server, self.directory, self.group = server, directory, group
        self.tools: list[dict[str, Any]] = []
        """What `tools/list` gives."""
        self.client: Client | None = None
        self.starting = anyio.Lock()

    async def start(self) -> "Client":
        """Start the server in its directory where it is not running; UserError where it gives no tools."""
        async with self.starting:
            client = self.client or await self.group.start(self._serve)
            self.client = client
            return client

    def stop(self) -> None:
        """Let the server end."""
        if self.client is not None:
            self.client = None
            self.ended.set()

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """The text of a call's result, or of its error or its delay, which begins with `Error`.

        Raises Disturbed where the server dies of it, or is dead; the next call starts it again.
        """
        import anyio
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        client, seconds = await self.start(), mcp_connection.TIMEOUT_SECONDS
        try:
            with anyio.fail_after(seconds):
                return _text(await client.call_tool(tool, arguments))
        except TimeoutError:
            return f"Error: no answer from {self.server.name} within {seconds:g} s"
        # A foreign program fails in any way it likes.
        except Exception as error:
            if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
                return f"Error: {error.message}"
            words = "" if self.stderr.closed else mcp_connection.last_words(self.stderr)
            if client is self.client:
                self.stop()
            raise Disturbed(f"server {self.server.name} died during {tool}{words}") from None

    async def _serve(self, *, task_status: "TaskStatus[Client]") -> None:
        """Hold the connection until `stop`; what breaks it after the start is for `call` to find."""
        import anyio
        from mcp import Client

        statuses: list[int] = []
        ended, started = anyio.Event(), False
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
            streams = mcp_connection.connect(self.server, stderr, statuses, self.directory)
            try:
                with anyio.fail_after(mcp_connection.TIMEOUT_SECONDS) as limit:
                    # The handshake of deployed harnesses, as for the schemas.
                    async with Client(streams, mode="legacy") as client:
                        self.tools = await mcp_connection.all_tools(client)
                        self.ended: anyio.Event = ended
                        self.stderr: TextIO = stderr
                        limit.deadline, started = math.inf, True
                        task_status.started(client)
                        await ended.wait()
            except Exception as error:
                if not started:
                    reason = mcp_connection.why(self.server, error, stderr, statuses)
                    raise UserError(f"MCP_CONFIG: server {self.server.name}: {reason}") from None
            finally:
                if started and self.ended is ended:
                    self.client = None


def _text(result: "CallToolResult") -> str:
    """A result as the harness puts it back."""
    text = "\n".join(b.text if b.type == "text" else f"[{b.type}]" for b in result.content)
    if len(text) > RESULT_LIMIT:
        text = f"{text[:RESULT_LIMIT]}\n[... {len(text) - RESULT_LIMIT} more characters]"
    if result.is_error and not text.startswith(("Error", "Input validation error")):
        return f"Error: {text}"
    return text
