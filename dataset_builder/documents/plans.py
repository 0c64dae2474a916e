"""The user's own plans and reports: Markdown files whose titles show the form that they expect."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from core.yaml_files import read_text
from dataset_builder.documents import front_matter, markdown


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan."""

    title: str
    sections: tuple[str, ...]
    """Its headings of the level under the title, `## Contexto`, in order."""
    text: str
    """The Markdown, without front matter."""
    path: Path


def load_plans(directories: Iterable[Path]) -> list[Plan]:
    """The plans anywhere under `directories`, in order of path; empty files are left out.

    Raises UserError on a directory without any, a file that is not UTF-8.
    """
    plans = []
    for directory in directories:
        found = [load_plan(file) for file in sorted(directory.rglob("*.md"))]
        if not any(plan.text for plan in found):
            raise UserError(f"PLANS_DIRS: no <plan>.md in {directory}; correct the path")
        plans += [plan for plan in found if plan.text]
    return plans


def load_plan(path: Path) -> Plan:
    """One plan; its title is its first heading of the first level, else the file's name."""
    text = front_matter.split(read_text(path))[1].strip()
    headings = [block for block in markdown.blocks(text) if block.kind == "heading"]
    title = next((heading for heading in headings if heading.level == 1), None)
    others = [heading for heading in headings if heading is not title]
    level = min((heading.level for heading in others), default=0)
    return Plan(
        title=title.text if title else path.stem,
        sections=tuple(f"{'#' * level} {heading.text}" for heading in others if heading.level == level),
        text=text,
        path=path,
    )
