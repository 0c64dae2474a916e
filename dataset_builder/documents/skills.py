"""Skills (`<name>/SKILL.md`) and their scenarios (`scenario.yaml` beside it): demonstrations to learn from.

Whatever Claude Code loads is read: its keys beside those of agentskills.io, plugins' nested folders, a name
that is not the folder's, a description out of bounds.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError, did_you_mean
from core.yaml_files import known, mapping, read_yaml, text
from dataset_builder.documents import front_matter
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking.requests import (
    claim_wordings,
    examples,
    expanded,
    fill,
    kinds,
    slots_in,
    wordings_by_split,
)

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
NAME_LIMIT, DESCRIPTION_LIMIT = 64, 1024
BUNDLED = ("references", "scripts", "assets")
"""Folders of a skill whose files belong to it; other files do where its text names them."""
OURS = ("SKILL.md", "rules.yaml", "scenario.yaml", "near_miss.yaml", "calibration.yaml")
SKIPPED = ("node_modules", ".git", ".venv")
SPLITS = ("train", "dev", "eval")
SCENARIO_KEYS = ("skill", "values", "requests", "steps", "think", "report")
STEP_KEYS = ("think", "call", "args", "result")


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A SKILL.md."""

    name: str
    description: str
    """With Claude Code's `when_to_use` after it, as its prompts have it."""
    body: str
    """Markdown after the front matter."""
    path: Path
    body_line: int = 1
    """Line of the file at which the body begins."""
    references: tuple[Path, ...] = ()
    """The files that come with it, sorted."""
    deviations: tuple[str, ...] = ()
    """Where it leaves the specification, for people to read."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One tool call of a scenario and its simulated result, as templates with {slot}s."""

    think: str
    call: str
    """`<server>.<tool>`"""
    args: dict[str, Any]
    result: str


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A hand-written demonstration of a skill, as templates with {slot}s."""

    skill: str
    values: dict[str, str]
    """Kind of each slot."""
    requests: dict[str, tuple[str, ...]]
    """The user's wordings by split."""
    steps: tuple[Step, ...]
    think: str
    """Thought before the report."""
    report: str


def load_skills(directories: Iterable[Path]) -> list[Skill]:
    """The skills anywhere under `directories`, sorted by name; of equal copies the first.

    Raises UserError on a directory without any skill, a broken skill, two skills of one name.
    """
    skills: dict[str, Skill] = {}
    for directory in directories:
        files = list(skill_files(directory))
        if not files:
            raise UserError(f"SKILLS_DIRS: no <skill>/SKILL.md in {directory}; correct the path")
        for file in files:
            skill = load_skill(file)
            other = skills.setdefault(skill.name, skill)
            if (other.description, other.body) != (skill.description, skill.body):
                raise UserError(
                    f"{file}: {skill.name} is also {other.path}; rename one, or leave it out of SKILLS_DIRS"
                )
    return [skills[name] for name in sorted(skills)]


def skill_files(directory: Path, _above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Every SKILL.md under a directory, in order of path; none within another skill's folder.

    Links are followed, since that is how skills are shared between projects; a loop of them is left.
    """
    real = directory.resolve()
    if not directory.is_dir() or real in _above:
        return
    if (directory / "SKILL.md").is_file():
        yield directory / "SKILL.md"
        return
    for child in sorted(directory.iterdir()):
        if child.name not in SKIPPED:
            yield from skill_files(child, (*_above, real))


def load_skill(path: Path) -> Skill:
    """One SKILL.md; UserError where its front matter is broken or nothing can be its name or description.

    As in Claude Code, what the front matter does not say is the folder's name and the first paragraph.
    """
    document = front_matter.read(path)
    head, body = document.head, document.body
    named, folder = head.get("name"), path.parent.name
    name = next((one for one in (named, folder) if _is_name(one)), None)
    if name is None:
        raise UserError(
            f"{path}: name {named!r}: expected 1 to {NAME_LIMIT} of a-z, 0-9 and single dashes between them"
        )
    description = head.get("description") or _first_paragraph(body)
    if not isinstance(description, str) or not description.strip():
        raise UserError(f"{path}: description is missing; say when to use the skill and when not")
    when = head.get("when_to_use")
    description = f"{description.strip()} {when.strip() if isinstance(when, str) else ''}".strip()
    deviations = [
        (not head, "no front matter"),
        (bool(head) and named != folder, f"name {named!r} is not its directory's, {folder!r}"),
        (bool(head) and not head.get("description"), "description is missing"),
        (
            len(description) > DESCRIPTION_LIMIT,
            f"description has {len(description)} characters, at most {DESCRIPTION_LIMIT}",
        ),
    ]
    return Skill(
        name=name,
        description=description,
        body=body,
        path=path,
        body_line=document.body_line,
        references=_references(path.parent, body),
        deviations=tuple(text for is_so, text in deviations if is_so),
    )


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None and len(name) <= NAME_LIMIT


def _first_paragraph(body: str) -> str:
    return re.sub(r"^#.*$", "", body, flags=re.MULTILINE).strip().partition("\n\n")[0]


def _references(folder: Path, body: str) -> tuple[Path, ...]:
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    own = {name: path for name, path in names.items() if name not in OURS}
    return tuple(own[n] for n in sorted(own) if n.startswith(tuple(f"{b}/" for b in BUNDLED)) or n in body)


def load_scenario(skill: Skill, tools: Mapping[str, ToolSchema]) -> Scenario | None:
    """The scenario beside a skill, or None where there is no such file; `tools` by `<server>.<tool>`.

    Raises UserError naming file and step: a key missing or unknown, a slot that is not declared or that
    nothing has told the model by then, an unknown tool, arguments that its schema refuses.
    """
    path = skill.path.with_name("scenario.yaml")
    if not path.exists():
        return None
    entry = _entry(read_yaml(path), SCENARIO_KEYS, str(path))
    if entry["skill"] != skill.name:
        raise UserError(f"{path}: skill {entry['skill']!r} is not the skill beside it, {skill.name!r}")
    if not isinstance(entry["steps"], list) or not entry["steps"]:
        raise UserError(f"{path}: steps must be a list of calls; add at least one")
    scenario = Scenario(
        skill=skill.name,
        values=kinds(entry["values"], f"{path}: values"),
        requests=wordings_by_split(
            mapping(entry["requests"], f"{path}: requests"), SPLITS, f"{path}: requests"
        ),
        steps=tuple(_step(step, f"{path}: step {i}") for i, step in enumerate(entry["steps"], 1)),
        think=text(entry["think"], f"{path}: think"),
        report=text(entry["report"], f"{path}: report"),
    )
    claim_wordings(scenario.requests, {}, path)
    _check_slots(scenario, path)
    _check_calls(scenario, tools, path)
    return scenario


def _step(value: Any, where: str) -> Step:
    entry = _entry(value, STEP_KEYS, where)
    return Step(
        think=text(entry["think"], f"{where}: think"),
        call=text(entry["call"], f"{where}: call"),
        args=mapping(entry["args"], f"{where}: args") if entry["args"] else {},
        result=text(entry["result"], f"{where}: result"),
    )


def _entry(value: Any, keys: tuple[str, ...], where: str) -> dict[str, Any]:
    entry = known(value, keys, where)
    for key in keys:
        if key not in entry:
            raise UserError(f"{where}: {key} is missing; each has {', '.join(keys)}")
    return entry


def _check_slots(scenario: Scenario, path: Path) -> None:
    """Every slot is declared, and the model can know it where it has to write it."""
    wordings = [one for texts in scenario.requests.values() for text in texts for one in expanded(text)]
    written = [[step.think, step.args] for step in scenario.steps] + [[scenario.think, scenario.report]]
    told = [step.result for step in scenario.steps]
    undeclared = sorted(slots_in([wordings, written, told]) - scenario.values.keys())
    if undeclared:
        raise UserError(f"{path}: {{{undeclared[0]}}} is used, but values does not declare it")
    for wording in wordings:
        known = slots_in(wording)
        for number, (turn, result) in enumerate(zip(written, [*told, ""], strict=True), 1):
            unknown = sorted(slots_in(turn) - known)
            if unknown:
                place = f"step {number}" if number <= len(told) else "the report"
                raise UserError(
                    f"{path}: {place} writes {{{unknown[0]}}}, which neither {wording!r} "
                    "nor a result before it tells; add it to the wording"
                )
            known |= slots_in(result)


def _check_calls(scenario: Scenario, tools: Mapping[str, ToolSchema], path: Path) -> None:
    values = examples(scenario.values)
    for number, step in enumerate(scenario.steps, 1):
        where = f"{path}: step {number}"
        if step.call not in tools:
            raise UserError(
                f"{where}: {step.call} is not among the dumped tools{did_you_mean(step.call, tools)}"
            )
        fault = tools[step.call].fault_in(fill(step.args, values))
        if fault:
            raise UserError(f"{where}: {step.call} refuses these args, {fault}")
