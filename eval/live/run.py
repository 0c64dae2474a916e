"""One live task: prepared, given to the model, and judged by what the world looks like afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core import chat, selectors
from core.chat import Message
from core.errors import UserError
from core.toolcalls import ToolCall
from eval import agent
from eval.agent import Ask
from eval.gates import skills
from eval.live.tasks import Task
from eval.live.world import NOT_FOUND, World

TURNS = 12
"""Turns that a model may take; the longest of the examples needs four."""
ERRORS = ("Error", "Input validation error")


@dataclass(frozen=True)
class Score:
    """Whether a task was done, what is wrong where not, and every rule of its skill."""

    right: bool
    explanation: str
    findings: list[dict[str, Any]] = field(default_factory=list)
    """As in eval/gates/skills.py."""


async def run(task: Task, world: World, ask: Ask, turns: int = TURNS) -> list[Message]:
    """Prepare the task and let the model do it: the messages that follow the request.

    Raises what `ask` raises, Disturbed where a server died, and UserError where `setup` fails.
    """
    await prepare(task, world)
    tools = world.tools(task)
    names = {tool["function"]["name"] for tool in tools}

    async def execute(call: ToolCall) -> str:
        return await world.call(call) if call.name in names else NOT_FOUND

    return await agent.converse(opening(task), tools, ask, execute, turns)


def opening(task: Task) -> list[Message]:
    """What the model is told: the skill as the dataset shows it, and the request."""
    shown = [message for message in task.row.messages if message["role"] == "system"] if task.row else []
    return [*shown, chat.user(task.request)]


async def prepare(task: Task, world: World) -> None:
    """Run the task's `setup`; UserError where it fails."""
    try:
        done = await world.bash(task.setup, task.values)
    except TimeoutError as error:
        raise UserError(f"LIVE: task {task.id}: setup {error}; mend it") from None
    if done.code:
        raise UserError(f"LIVE: task {task.id}: setup failed: {done.last_line}; mend it")


async def score(task: Task, world: World, trace: Sequence[Message]) -> Score:
    """Judge the world after a task, and the trace by the rules of the task's skill.

    A task without `check` is right where its server gave it a result that is no error; one that has a skill
    is wrong where a rule is broken. UserError where `check` does not end.
    """
    wrong = await _undone(task, world, trace)
    if task.row is None:
        return Score(not wrong, wrong)
    followed = skills.score(skills.rules_of(task.row), trace, task.request)
    return Score(not wrong and followed.right, wrong or followed.explanation, followed.findings)


async def _undone(task: Task, world: World, trace: Sequence[Message]) -> str:
    """What of the task is not done; blank where all is."""
    if task.check:
        try:
            done = await world.bash(task.check, task.values)
        except TimeoutError as error:
            raise UserError(f"LIVE: task {task.id}: check {error}; mend it") from None
        return done.last_line if done.code else ""
    if task.server:
        called = (one for one in selectors.events(trace, task.request) if one.kind == "result")
        results = [one.text for one in called if one.tool.startswith(f"mcp__{task.server}__")]
        if not results:
            return f"no call to server {task.server}"
        if all(result.startswith(ERRORS) for result in results):
            return f"every call to server {task.server} failed: {selectors.one_line(results[-1])}"
    return ""
