"""Gold demonstrations of the example skills, made as the dataset makes them."""

import functools
import random
from dataclasses import replace
from pathlib import Path

from core.chat import Message, Row
from dataset_builder import schemas
from dataset_builder.buckets import skills
from dataset_builder.documents.skills import load_scenario, load_skills
from dataset_builder.schemas import Failure, ToolSchema
from dataset_builder.sources import Sources

ROOT = Path(__file__).parents[1]
SKILLS = load_skills([ROOT / "examples/skills"])


@functools.cache
def rows(split: str, count: int = 60) -> list[Row]:
    """Rows of the bucket `skills` over every skill and wording of a split."""
    tools = _tools()
    scenarios = [(skill, load_scenario(skill, tools)) for skill in SKILLS]
    sources = Sources(
        tools=tools,
        requests=[],
        scenarios=[(skill, scenario) for skill, scenario in scenarios if scenario],
        tools_shown=4,
        skill_prompt="body",
        held_out_skills=(),
    )
    return skills.rows(sources, random.Random(f"rules {split}"), split, count)


def opening(row: Row) -> int:
    """Position just after the user's request."""
    return next(i for i, message in enumerate(row.messages, 1) if message["role"] == "user")


def request(row: Row) -> str:
    """What the user asks."""
    return row.messages[opening(row) - 1]["content"]


def gold(row: Row) -> list[Message]:
    """What follows the request: the demonstration itself."""
    return row.messages[opening(row) :]


@functools.cache
def _tools() -> dict[str, ToolSchema]:
    servers = schemas.read_config(ROOT / "examples/mcp.json")
    servers = [replace(server, command=str(ROOT / server.command)) for server in servers]
    tools = {}
    for name, answer in schemas.ask_all(servers).items():
        assert not isinstance(answer, Failure), f"{name}: {answer}; make env installs the example's servers"
        for tool in answer["tools"]:
            tools[f"{name}.{tool['name']}"] = ToolSchema(
                server=name,
                name=tool["name"],
                description=tool["description"],
                parameters=tool["inputSchema"],
                sha256=tool["sha256"],
            )
    return tools
