"""Live tasks as cases of an evaluation: done by our loop, or by the user's own agent."""

import functools
from collections.abc import Sequence
from dataclasses import asdict

from core.chat import Message
from core.endpoint import Endpoint
from eval.agent import Ask
from eval.cases import Case, Found
from eval.live import agent_cmd, run
from eval.live.tasks import Task
from eval.live.world import World

KIND = "live"
BUCKETS = {False: "live_servers", True: "live_skills"}
"""By whether a task follows a skill."""


def of(tasks: Sequence[Task], world: World, command: str, server: Endpoint | None) -> list[Case]:
    """A case a task; with `command`, AGENT_CMD does it with the model that `server` serves."""
    return [_case(task, world, command, server) for task in tasks]


def _case(task: Task, world: World, command: str, server: Endpoint | None) -> Case:
    async def by_agent(ask: Ask) -> list[Message]:
        assert server is not None
        return await agent_cmd.run(task, world, command, endpoint=server.url, model=server.model)

    async def judge(trace: list[Message]) -> Found:
        return asdict(await run.score(task, world, trace)) | {"server": task.server}

    return Case(
        kind=KIND,
        id=task.id,
        bucket=BUCKETS[task.row is not None],
        skill=task.skill,
        opening=run.opening(task),
        repeatable=False,
        act=by_agent if command else functools.partial(run.run, task, world),
        judge=judge,
    )
