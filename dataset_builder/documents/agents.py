"""Subagent definitions of Claude Code: `.claude/agents/*.md`, front matter over the agent's own prompt."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.yaml_files import text
from dataset_builder.documents import front_matter

KEYS = (
    "name",
    "description",
    "tools",
    "disallowedTools",
    "model",
    "permissionMode",
    "skills",
    "color",
    "memory",
)
COMMA = re.compile(r"\s*,\s*(?![^()]*\))")
"""Between tools; `Bash(git add:*, git log:*)` is one."""


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A subagent that the model can delegate to."""

    name: str
    description: str
    """When to delegate to it."""
    tools: tuple[str, ...]
    """What it may call; empty = whatever the one that delegates may."""
    body: str
    """Its system prompt, as Markdown."""
    path: Path


def load_agents(directories: Iterable[Path]) -> list[Agent]:
    """The subagents of `directories`, sorted by name; of a plugin or project, those in its `agents` folders.

    Of equal copies the first. Raises UserError on a directory without any, a broken definition, two of one
    name.
    """
    agents: dict[str, Agent] = {}
    for directory in directories:
        folders = sorted(folder for folder in directory.rglob("agents") if folder.is_dir())
        files = {file for folder in folders or [directory] for file in folder.rglob("*.md")}
        found = [agent for agent in map(load_agent, sorted(files)) if agent]
        if not found:
            raise UserError(f"AGENTS_DIRS: no <agent>.md with front matter in {directory}; correct the path")
        for agent in found:
            other = agents.setdefault(agent.name, agent)
            if (other.description, other.body) != (agent.description, agent.body):
                raise UserError(
                    f"{agent.path}: {agent.name} is also {other.path};"
                    " rename one, or leave it out of AGENTS_DIRS"
                )
    return [agents[name] for name in sorted(agents)]


def load_agent(path: Path) -> Agent | None:
    """One definition, or None for what is no agent: Markdown without front matter, a skill.

    Raises UserError where the description is missing or an entry has the wrong type.
    """
    document = front_matter.read(path, keys=KEYS)
    if not document.head or path.name == "SKILL.md":
        return None
    return Agent(
        name=text(document.head.get("name") or path.stem, f"{path}: name"),
        description=text(document.head.get("description"), f"{path}: description"),
        tools=_tools(document.head.get("tools"), f"{path}: tools"),
        body=document.body,
        path=path,
    )


def _tools(value: Any, where: str) -> tuple[str, ...]:
    listed = COMMA.split(value.strip("[] \t")) if isinstance(value, str) else value or []
    if not isinstance(listed, list) or not all(isinstance(tool, str) for tool in listed):
        raise UserError(f"{where}: expected names, separated by commas or as a list, got {value!r}")
    tools = tuple(tool.strip(" \"'") for tool in listed)
    return () if tools in (("*",), ("",)) else tools
