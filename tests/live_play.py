"""Scripted models for the tasks of examples/live.yaml: the right calls, and the ways to fail them."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core import chat
from core.chat import Message, Row, Tool
from core.yaml_files import read_yaml
from dataset_builder.buckets.skills import prompt
from dataset_builder.documents.skills import load_skills
from dataset_builder.talking.requests import fill
from eval.agent import Ask
from eval.live import tasks
from eval.live.tasks import Task

ROOT = Path(__file__).parents[1]
SKILLS = {skill.name: skill for skill in load_skills([ROOT / "examples/skills"])}
LIVE, MCP_CONFIG = ROOT / "examples/live.yaml", ROOT / "examples/mcp.json"

Step = tuple[str, dict[str, Any]]
"""A tool, by the server's name for it, and its arguments; slots as in the task."""

SINGLE: dict[str, Step] = {
    "crear-rama-nueva": ("git_create_branch", {"repo_path": "{repo}", "branch_name": "{rama}"}),
    "crear-rama-desde": (
        "git_create_branch",
        {"repo_path": "{repo}", "branch_name": "{rama}", "base_branch": "{base}"},
    ),
    "cambiar-de-rama": ("git_checkout", {"repo_path": "{repo}", "branch_name": "{base}"}),
    "preparar-fichero": ("git_add", {"repo_path": "{repo}", "files": ["{fichero}"]}),
    "hacer-commit": ("git_commit", {"repo_path": "{repo}", "message": "{mensaje}"}),
    "vaciar-indice": ("git_reset", {"repo_path": "{repo}"}),
}


@functools.cache
def rows() -> list[Row]:
    """Held-out rows of every example skill."""
    return [
        Row(
            id=f"skills-eval-{number:05d}",
            bucket="skills",
            group=skill.name,
            split="eval",
            tools=[],
            skill=skill.name,
            source=str(skill.path),
            messages=[*chat.system(prompt(skill, "body")), chat.user("Haz el trabajo.")],
        )
        for number, skill in enumerate(SKILLS.values())
    ]


@functools.cache
def loaded() -> list[Task]:
    """The tasks of the examples."""
    found, skipped = tasks.load(LIVE, MCP_CONFIG, rows())
    assert not skipped
    return found


def template(task: Task) -> str:
    """The id of the entry that a task was made from."""
    return re.sub(r"-\d+$", "", task.id)


def first_of_each() -> list[Task]:
    """The first task of every entry."""
    return list({template(task): task for task in reversed(loaded())}.values())


def right_steps(task: Task) -> list[Step]:
    """The calls that do a task."""
    if task.skill is None:
        steps = [SINGLE[template(task)]]
    else:
        steps = [(step["call"].partition(".")[2], step["args"]) for step in scenario(task.skill)["steps"]]
    return [(tool, _numbers(fill(args, task.values))) for tool, args in steps]


def wrong_value(steps: Sequence[Step]) -> list[Step]:
    """The same calls, the last value of the last one another."""
    *before, (tool, arguments) = steps
    name, value = list(arguments.items())[-1]
    other = ["uno.md"] if isinstance(value, list) else f"{value}-otra"
    return [*before, (tool, {**arguments, name: other})]


def player(task: Task, steps: Sequence[Step]) -> Ask:
    """A model that makes these calls one after the other, and then says that all is done."""

    async def ask(messages: list[Message], tools: list[Tool]) -> Message:
        done = [message for message in messages if message["role"] == "assistant"]
        if len(done) < len(steps):
            tool, arguments = steps[len(done)]
            return chat.call(f"mcp__{task.server}__{tool}", arguments, think="Sigo.")
        return chat.say(_report(task, messages), think="Ya está.")

    return ask


def _report(task: Task, messages: list[Message]) -> str:
    if task.skill is None:
        return "Hecho."
    times = re.findall(r"T(\d\d:\d\d)", messages[-1]["content"])
    slots = {"hora_local": times[-1] if times else "12:00", **task.values}
    return fill(scenario(task.skill)["report"], slots)


def scenario(skill: str) -> dict[str, Any]:
    """The demonstration of an example skill, as its file has it."""
    return read_yaml(SKILLS[skill].path.with_name("scenario.yaml"))


def _numbers(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: int(value) if name == "max_count" else value for name, value in arguments.items()}
