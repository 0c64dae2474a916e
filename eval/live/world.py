"""Where live tasks happen: a scratch directory, and the MCP servers started in it."""

import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from core import chat
from core.chat import Tool
from core.errors import UserError, did_you_mean
from core.mcp_config import from_anywhere, read_config
from core.mcp_tools import as_shown, shown_name
from core.toolcalls import ToolCall
from eval.live.link import Link
from eval.live.tasks import Task

NOT_FOUND = "Error: tool not found"
SCRIPT_SECONDS = 60.0
AGENTS = 4
NO_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
"""Scripts see no git configuration but a repository's own, so that they do the same everywhere."""
ANSWERS = ("rules.yaml", "scenario.yaml", "near_miss.yaml", "calibration.yaml")
"""Beside a SKILL.md, and not for the model to see."""


@dataclass(frozen=True)
class Done:
    """How a script ended."""

    code: int
    output: str

    @property
    def last_line(self) -> str:
        """The last line that it wrote, or its exit code."""
        return next(reversed(self.output.split("\n")), "") or f"exit code {self.code}"


class World:
    """A scratch directory and the servers that tasks need; see `world`."""

    def __init__(self, root: Path, tools_shown: int) -> None:
        import anyio

        self.directory = root / "work"
        """Where scripts, servers and agents run."""
        self.mcp_config = root / "mcp.json"
        """MCP_CONFIG for an agent that runs there."""
        self.tools_shown = tools_shown
        self.links: dict[str, Link] = {}
        """By the server's name."""
        self.agents = anyio.CapacityLimiter(AGENTS)
        """Turnstile of the agents that run at once."""

    def tools(self, task: Task) -> list[Tool]:
        """The tools of a task's prompt: its own and others of its server, the same ones in every run.

        UserError where the server has not one of its own.
        """
        if task.server is None:
            return []
        dumped = {tool["name"]: as_shown(tool) for tool in self.links[task.server].tools}
        for name in task.tools:
            if name not in dumped:
                hint = did_you_mean(name, dumped)
                raise UserError(f"LIVE: task {task.id}: server {task.server} has no tool {name}{hint}")
        rng = Random(task.id)
        others = [name for name in dumped if name not in task.tools]
        room = max(0, min(self.tools_shown - len(task.tools), len(others)))
        chosen = [*task.tools, *rng.sample(others, room)]
        rng.shuffle(chosen)
        return [
            chat.tool(shown_name(task.server, name), dumped[name]["description"], dumped[name]["inputSchema"])
            for name in chosen
        ]

    async def call(self, call: ToolCall) -> str:
        """Do a call on its server and give the text that a harness puts back; errors begin with `Error`.

        Raises Disturbed where the server dies of it, or is dead; the next call starts it again.
        """
        for server, link in self.links.items():
            for tool in link.tools:
                if shown_name(server, tool["name"]) == call.name:
                    return await link.call(tool["name"], call.arguments)
        return NOT_FOUND

    async def bash(self, script: str, values: Mapping[str, str]) -> Done:
        """Run a script in the scratch directory; `values` are its variables.

        TimeoutError, saying so, where it takes longer than SCRIPT_SECONDS.
        """
        import anyio

        try:
            with anyio.fail_after(SCRIPT_SECONDS):
                done = await anyio.run_process(
                    ["bash", "-eu", "-o", "pipefail", "-c", script],
                    cwd=self.directory,
                    env={**os.environ, **NO_CONFIG, **values},
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
        except TimeoutError:
            raise TimeoutError(f"did not end within {SCRIPT_SECONDS:g} s") from None
        return Done(done.returncode, done.stdout.decode("utf-8", "replace").strip())


@asynccontextmanager
async def world(
    mcp_config: Path, tasks: Sequence[Task], tools_shown: int, *, for_agent: bool = False
) -> AsyncIterator[World]:
    """A fresh world, which is gone afterwards, however it ends.

    Every server that a task needs is started once, in the scratch directory; `for_agent` starts none, but
    puts there what the user's agent starts from: MCP_CONFIG and the tasks' skills. UserError where a server
    does not start or has not a tool that a task needs.
    """
    import anyio

    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # a traceback for each line that is no JSON
    needed = {task.server for task in tasks}
    with tempfile.TemporaryDirectory(prefix="forja-live-") as scratch:
        made = World(Path(scratch).resolve(), tools_shown)
        made.directory.mkdir()
        if for_agent:
            _equip(made, mcp_config, tasks)
            yield made
            return
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            servers = [one for one in read_config(mcp_config) if one.name in needed]
            made.links = {one.name: Link(from_anywhere(one), made.directory, group) for one in servers}
            try:
                async with anyio.create_task_group() as starting:
                    for link in made.links.values():
                        starting.start_soon(link.start)
                for task in tasks:
                    made.tools(task)
                yield made
            # Kept for after the group, which would wrap it.
            except Exception as error:
                failed = error
            for link in made.links.values():
                link.stop()
        if failed:
            raise _first(failed)


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _equip(made: World, mcp_config: Path, tasks: Iterable[Task]) -> None:
    """Put MCP_CONFIG and the tasks' skills where an agent finds them that runs in the world's directory."""
    # The user's own text, so that no variable's value is written down.
    entries = json.loads(mcp_config.read_text(encoding="utf-8"))["mcpServers"]
    for server in read_config(mcp_config):
        entry, moved = entries[server.name], from_anywhere(server)
        if server.transport == "stdio":
            entry["command"] = moved.command if moved.command != server.command else entry["command"]
            pairs = zip(entry.get("args", []), server.args, moved.args, strict=True)
            entry["args"] = [there if there != here else written for written, here, there in pairs]
    made.mcp_config.write_text(json.dumps({"mcpServers": entries}, indent=1), encoding="utf-8")
    for task in tasks:
        if task.row:
            place = made.directory / ".claude" / "skills" / str(task.skill)
            if not place.exists():
                folder = Path(task.row.source).parent
                shutil.copytree(folder, place, ignore=shutil.ignore_patterns(*ANSWERS))
