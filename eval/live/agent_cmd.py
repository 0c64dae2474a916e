"""AGENT_CMD: the user's own agent does the task instead of our loop.

The command runs in the scratch directory, the request on its stdin, and prints stream-json. It finds in its
environment FORJA_ENDPOINT (the served model, up to /v1), FORJA_MODEL, FORJA_MCP_CONFIG (MCP_CONFIG with
absolute paths) and, where the task is of a skill, FORJA_SKILL; the tasks' skills lie in `.claude/skills`.
"""

import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from core.chat import Message
from core.errors import UserError
from eval.live import stream_json
from eval.live.link import Disturbed
from eval.live.run import prepare
from eval.live.tasks import Task
from eval.live.world import World

if TYPE_CHECKING:
    from anyio.abc import Process

AGENT_SECONDS = 900.0
"""How long an agent may take for a task."""
GRACE_SECONDS = 5.0
"""How long it then has to end by itself."""


@dataclass(frozen=True)
class _Ended:
    """How an agent's process ended, and what it printed."""

    code: int | None
    """Exit code; None where it was ended because its time was over."""
    output: str
    errors: str


async def run(
    task: Task, world: World, command: str, *, endpoint: str, model: str, seconds: float = AGENT_SECONDS
) -> list[Message]:
    """Prepare the task and let the agent do it: what its transcript says of it.

    An agent that does not end within `seconds` is ended; what it did until then counts. Raises UserError
    where `setup` fails, or where nothing that it prints is stream-json; Disturbed where the agent itself
    says that it failed, for want of its endpoint for instance.
    """
    environment = {
        **os.environ,
        "FORJA_ENDPOINT": endpoint,
        "FORJA_MODEL": model,
        "FORJA_MCP_CONFIG": str(world.mcp_config),
        **({"FORJA_SKILL": task.skill} if task.skill else {}),
    }
    async with world.agents:
        await prepare(task, world)
        ended = await _ended(command, task.request, world, environment, seconds)
    if ended.code is None and not ended.output.strip():
        return []
    try:
        transcript = stream_json.parse(ended.output)
    except UserError as error:
        words = " ".join(ended.errors.split())[-300:]
        raise UserError(f"{error} (exit code {ended.code}{f', it said: {words}' if words else ''})") from None
    if transcript.failure:
        raise Disturbed(f"the agent failed: {transcript.failure}")
    return transcript.trace


async def _ended(
    command: str, request: str, world: World, environment: Mapping[str, str], seconds: float
) -> _Ended:
    import anyio

    # Files, not pipes: what it prints before it hangs is there to read.
    with contextlib.ExitStack() as stack:
        stdin, stdout, stderr = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        stdin.write(request.encode())
        stdin.seek(0)
        process = await anyio.open_process(
            ["bash", "-c", command],
            cwd=world.directory,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            with anyio.move_on_after(seconds) as limit:
                await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
        code = None if limit.cancelled_caught else process.returncode
        return _Ended(code, _text(stdout), _text(stderr))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


async def _end(process: "Process") -> None:
    """End the process, and all that it started and that stayed in its group."""
    import anyio

    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            with anyio.move_on_after(GRACE_SECONDS):
                await process.wait()
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
