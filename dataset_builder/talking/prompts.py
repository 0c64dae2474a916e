"""What a prompt shows around a request: the tools at hand and what their servers say of themselves."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from core.chat import Tool
from dataset_builder import sources as src
from dataset_builder.drawing import methods
from dataset_builder.schemas import ServerInfo, ToolSchema
from dataset_builder.talking.tool_names import act_of

TWIN = 0.5
"""How often a tool's namesake on another server is shown beside it."""


def shown(sources: src.Sources, keys: list[str], rng: random.Random) -> list[Tool]:
    """The tools of a prompt: those of `keys`, often a namesake of another server, and distractors."""
    keys = list(dict.fromkeys(keys))
    names = {sources.tools[key].name for key in keys}
    twins = [key for key, tool in sources.tools.items() if tool.name in names and key not in keys]
    if twins and len(keys) < sources.tools_shown and rng.random() < TWIN:
        keys = [*keys, rng.choice(twins)]
    return src.show(sources, keys, rng)


def system(servers: Mapping[str, ServerInfo], tools: Iterable[Tool], rng: random.Random) -> str:
    """The system text: a common opening or none, and the instructions of each server that is shown."""
    names = dict.fromkeys(sorted(tool["function"]["name"].split("__")[1] for tool in tools))
    told = [
        f"## {name}\n{servers[name].instructions.strip()}"
        for name in names
        if name in servers and servers[name].instructions.strip()
    ]
    parts = [rng.choice(src.SYSTEMS), "# MCP servers\n\n" + "\n\n".join(told) if told else ""]
    return "\n\n".join(part for part in parts if part)


def is_ambiguous(sources: src.Sources, key: str, arguments: dict[str, Any], tools: Iterable[Tool]) -> bool:
    """Whether a shown tool of another server does the like, so that a request must name the product."""
    tool, names = sources.tools[key], {one["function"]["name"] for one in tools}
    act = act_of(tool, arguments)
    return any(
        act in acts_of(other) or other.name == tool.name
        for other in sources.tools.values()
        if other.shown_name in names and _family(other) != _family(tool)
    )


def acts_of(tool: ToolSchema) -> set[tuple[str, str]]:
    """What a tool can do: (verb, noun) for each of its methods."""
    chooser = methods.selector(tool.properties)
    if chooser is None:
        return {act_of(tool, {})}
    return {act_of(tool, {chooser: method}) for method in tool.properties[chooser]["enum"]}


def _family(tool: ToolSchema) -> str:
    """Server, and product where one server speaks for several."""
    prefix = tool.name.partition("_")[0]
    return f"{tool.server} {prefix}" if prefix in ("jira", "confluence") else tool.server
