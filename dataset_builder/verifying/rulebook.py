"""The rules that rows must hold: those of the skill that they follow, those that their server states."""

from collections.abc import Mapping, Sequence

from core.rules import Rule
from dataset_builder.schemas import ServerInfo, ToolSchema
from dataset_builder.servers import server_rules

Rulebook = Mapping[str, Sequence[Rule]]
"""Rules by the name of the skill or server whose rows must hold them."""


def of(
    skills: Mapping[str, list[Rule]], tools: Mapping[str, ToolSchema], servers: Mapping[str, ServerInfo]
) -> dict[str, list[Rule]]:
    """The rules of the skills, by skill, and those that the deployed servers state, by server."""
    return dict(skills) | server_rules.deployed(tools.values(), servers)
