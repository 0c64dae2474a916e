"""Five servers as `make schemas` dumps them, and a stand-in for the sources that buckets read."""

import functools
import importlib
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.chat import Row
from dataset_builder.schemas import ServerInfo, ToolSchema
from dataset_builder.servers import server_rules
from dataset_builder.verifying import checks
from dataset_builder.verifying.checks import Drop

SCHEMAS = Path(__file__).parent / "data/schemas"
DUMPS = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(SCHEMAS.glob("*.json"))]
TOOLS = {
    f"{dump['server']}.{tool['name']}": ToolSchema(
        server=dump["server"],
        name=tool["name"],
        description=tool["description"],
        parameters=tool["inputSchema"],
        sha256=tool.get("sha256", "0"),
    )
    for dump in DUMPS
    for tool in dump["tools"]
}
SERVERS = {
    dump["server"]: ServerInfo(
        name=dump["server"],
        instructions=dump["instructions"] or "",
        overview=dump.get("overview") or "",
        protocol_version=dump["protocol_version"],
        version=dump["server_info"]["version"],
    )
    for dump in DUMPS
}


@dataclass(frozen=True)
class StandIn:
    """What the buckets of calls read of `sources.Sources`."""

    tools: dict[str, ToolSchema] = field(default_factory=lambda: TOOLS)
    servers: dict[str, ServerInfo] = field(default_factory=lambda: SERVERS)
    skills: list[Any] = field(default_factory=list)
    procedures: dict[str, Any] = field(default_factory=dict)
    tools_shown: int = 8
    skill_prompt: str = "description"
    held_out_skills: tuple[str, ...] = ()
    drafts: Path = Path("rules")


def all_five() -> Any:
    """The stand-in with all tools."""
    return StandIn()


def only(*servers: str) -> Any:
    """The stand-in with the tools of some servers alone."""
    own = StandIn()
    return replace(own, tools={key: tool for key, tool in TOOLS.items() if tool.server in servers})


@functools.cache
def made(bucket: str, split: str, count: int) -> tuple[Row, ...]:
    """Rows of a bucket, from all five servers."""
    make = importlib.import_module(f"dataset_builder.buckets.{bucket}").rows
    return tuple(make(all_five(), random.Random(f"{bucket} {split}"), split, count))


def kept(rows: Iterable[Row]) -> tuple[list[Row], list[Drop]]:
    """What the checks of `make dataset` keep of rows and what they drop, server rules included."""
    sha256 = {tool.shown_name: tool.sha256 for tool in TOOLS.values()}
    return checks.keep(rows, sha256=sha256, rules_of=server_rules.deployed(TOOLS.values(), SERVERS))
