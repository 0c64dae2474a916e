"""Where the rules that rows must hold are read from."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from core import rules
from core.rules import Rule
from dataset_builder.skills import Skill

Rulebook = Mapping[str, Sequence[Rule]]
"""Rules by the name of the skill or server whose rows must hold them."""


def of_skills(skills: Iterable[Skill], drafts: Path) -> dict[str, list[Rule]]:
    """Rules by skill: `rules.yaml` beside SKILL.md, else `<drafts>/<skill>.yaml`, else none.

    UserError on a file that is no rules file, or whose quotes are not in SKILL.md.
    """
    found = {}
    for skill in skills:
        beside = skill.path.with_name("rules.yaml")
        path = beside if beside.exists() else drafts / f"{skill.name}.yaml"
        if path.exists():
            found[skill.name] = rules.read(path, skill.path.read_text(encoding="utf-8"))
    return found
