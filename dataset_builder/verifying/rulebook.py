"""The rules that rows must hold: those of the skill that they follow, those that their server states."""

from collections.abc import Mapping, Sequence

from core.chat import Row
from core.rules import Rule
from dataset_builder.schemas import ServerInfo, ToolSchema
from dataset_builder.servers import server_rules

Rulebook = Mapping[str, Sequence[Rule]]
"""Rules by the name of the skill or server whose rows must hold them."""
NOT_DUE = "skill_not_due"
"""The `kind`, in a row's `meta`, of a request near the skill of its prompt that must not start it."""


def of(
    skills: Mapping[str, list[Rule]], tools: Mapping[str, ToolSchema], servers: Mapping[str, ServerInfo]
) -> dict[str, list[Rule]]:
    """The rules of the skills, by skill, and those that the deployed servers state, by server."""
    return dict(skills) | server_rules.deployed(tools.values(), servers)


def binding(row: Row, rules_of: Rulebook) -> Rulebook:
    """The rules that a row must hold: its server's, and its skill's where that is due."""
    names = (row.server, None if row.meta.get("kind") == NOT_DUE else row.skill)
    return {name: rules for name, rules in rules_of.items() if name in names}
