"""Skills (`<name>/SKILL.md`) and their scenarios (`scenario.yaml` beside it): demonstrations to learn from.

A skill follows the specification of agentskills.io; the keys that Claude Code adds to it are let through.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError, did_you_mean
from dataset_builder.requests import (
    claim_wordings,
    examples,
    expanded,
    fill,
    kinds,
    mapping,
    parse_yaml,
    read_text,
    read_yaml,
    slots_in,
    text,
    wordings_by_split,
)
from dataset_builder.schemas import ToolSchema

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
NAME_LIMIT, DESCRIPTION_LIMIT = 64, 1024
FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*$\n?(.*)", re.DOTALL | re.MULTILINE)
SPLITS = ("train", "dev", "eval")
SCENARIO_KEYS = ("skill", "values", "requests", "steps", "think", "report")
STEP_KEYS = ("think", "call", "args", "result")


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A SKILL.md."""

    name: str
    description: str
    body: str
    """Markdown after the front matter."""
    path: Path


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
    """The skills in the subdirectories of `directories`, sorted by name.

    Raises UserError on a missing directory, one without any skill, a broken skill, a name taken twice.
    """
    skills: dict[str, Skill] = {}
    for directory in directories:
        files = sorted(directory.glob("*/SKILL.md"))
        if not files:
            raise UserError(f"SKILLS_DIRS: no <skill>/SKILL.md in {directory}; correct the path")
        for file in files:
            skill = load_skill(file)
            if skill.name in skills:
                raise UserError(f"{file}: {skill.name} is also {skills[skill.name].path}; rename one of them")
            skills[skill.name] = skill
    return [skills[name] for name in sorted(skills)]


def load_skill(path: Path) -> Skill:
    """One SKILL.md; UserError where its front matter or its name breaks the specification."""
    match = FRONT_MATTER.fullmatch(read_text(path))
    if not match:
        raise UserError(f"{path}: no front matter; begin with --- lines around name and description")
    head = mapping(parse_yaml(match[1], path, first_line=2), str(path))
    name, description = head.get("name"), head.get("description")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > NAME_LIMIT:
        raise UserError(
            f"{path}: name {name!r}: expected 1 to {NAME_LIMIT} of a-z, 0-9 and single dashes between them"
        )
    if name != path.parent.name:
        raise UserError(f"{path}: name {name!r} is not its directory's, {path.parent.name!r}; rename one")
    if not isinstance(description, str) or not description.strip():
        raise UserError(f"{path}: description is missing; say when to use the skill and when not")
    if len(description) > DESCRIPTION_LIMIT:
        raise UserError(
            f"{path}: description has {len(description)} characters, at most {DESCRIPTION_LIMIT}; shorten it"
        )
    return Skill(name=name, description=description.strip(), body=match[2].strip(), path=path)


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
    entry = mapping(value, where)
    for key in entry:
        if key not in keys:
            raise UserError(f"{where}: unknown key {key!r}{did_you_mean(key, keys)}; have {', '.join(keys)}")
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
