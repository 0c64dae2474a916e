"""Stands in for `claude -p --output-format stream-json --verbose`: makes the calls that it is given as JSON.

`[[server, tool, arguments], ...]` is its argument. It starts each server as FORJA_MCP_CONFIG says, really
calls it, and prints what Claude Code would print: a line a block, and lines that Forja need not know.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client


def say(kind: str, **more: Any) -> None:
    """Print one line."""
    print(json.dumps({"type": kind, "session_id": "s", **more}), flush=True)


def block(number: int, **content: Any) -> None:
    """Print one block of the assistant's message of this number."""
    message = {"id": f"msg_{number}", "role": "assistant", "model": "stand-in", "content": [content]}
    say("assistant", message=message, parent_tool_use_id=None)


async def main(calls: list[tuple[str, str, dict[str, Any]]]) -> None:
    """Make the calls and tell of them."""
    servers = json.loads(Path(os.environ["FORJA_MCP_CONFIG"]).read_text(encoding="utf-8"))["mcpServers"]
    skills = sorted(path.parent.name for path in Path().glob(".claude/skills/*/SKILL.md"))
    say("system", subtype="init", cwd=os.getcwd(), mcp_servers=list(servers), skills=skills)
    say("stream_event", event={"type": "message_start"})
    for number, (server, tool, arguments) in enumerate(calls):
        block(number, type="thinking", thinking=f"Uso {tool}.", signature="x")
        block(number, type="tool_use", id=f"toolu_{number}", name=f"mcp__{server}__{tool}", input=arguments)
        entry = servers[server]
        process = StdioServerParameters(command=entry["command"], args=entry["args"], env=dict(os.environ))
        async with Client(stdio_client(process), mode="legacy") as client:
            result = await client.call_tool(tool, arguments)
        texts = [{"type": "text", "text": one.text} for one in result.content if one.type == "text"]
        content = {"tool_use_id": f"toolu_{number}", "type": "tool_result", "content": texts}
        content |= {"is_error": True} if result.is_error else {}
        say("user", message={"role": "user", "content": [content]}, parent_tool_use_id=None)
    told = {name: os.environ.get(name) for name in ("FORJA_ENDPOINT", "FORJA_MODEL", "FORJA_SKILL")}
    block(len(calls), type="text", text=json.dumps({"request": sys.stdin.read(), "skills": skills, **told}))
    say("result", subtype="success", is_error=False, num_turns=len(calls) + 1, result="Hecho.")


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
