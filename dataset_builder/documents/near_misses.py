"""What a skill is not for (`near_miss.yaml` beside SKILL.md): requests near it that must not start it.

The file is a list of cases. Each has a `quote`, the passage of SKILL.md that excludes it, word for word, and
says what such a request gets instead. With `call`, one tool answers it: it is asked for in the words that
REQUESTS has for that tool, gives back `result`, and the assistant closes with `say`. Without, no tool does
it: `requests` has the users' words by split, and `say` is the whole answer. `values` has the kind of each
{slot} that is not a required argument of the call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import UserError, did_you_mean
from core.yaml_files import known, mapping, read_yaml, text
from dataset_builder.documents.skills import SPLITS, Skill
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking.requests import claim_wordings, expanded, kinds, slots_in, wordings_by_split

FILE = "near_miss.yaml"
CALLED, SAID = ("quote", "call", "result", "say"), ("quote", "requests", "say")


@dataclass(frozen=True, kw_only=True)
class NearMiss:
    """One case, as templates with {slot}s."""

    skill: Skill
    quote: str
    values: dict[str, str]
    """Kind of each slot beside the call's arguments."""
    wordings: dict[str, tuple[str, ...]]
    """What the user says, by split; none where a tool is called."""
    call: str
    """`<server>.<tool>`; blank where words alone are due."""
    result: str
    say: str


def load_near_misses(skill: Skill, tools: Mapping[str, ToolSchema]) -> list[NearMiss]:
    """The cases beside a skill, none where there is no such file; `tools` by `<server>.<tool>`.

    Raises UserError naming file and case: a key missing or unknown, a quote that is not in SKILL.md, an
    unknown tool, a slot that nothing gives.
    """
    path = skill.path.with_name(FILE)
    if not path.exists():
        return []
    entries = read_yaml(path)
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path}: expected a list of cases, `- quote: ...`, got {entries!r}")
    cases = [_case(entry, skill, tools, f"{path}: case {n}") for n, entry in enumerate(entries, 1)]
    places: dict[str, str] = {}
    for number, case in enumerate(cases, 1):
        claim_wordings(case.wordings, places, path, f"case {number} ")
    return cases


def _case(value: Any, skill: Skill, tools: Mapping[str, ToolSchema], where: str) -> NearMiss:
    needed = CALLED if "call" in mapping(value, where) else SAID
    entry = known(value, (*needed, "values"), where)
    for key in needed:
        if key not in entry:
            raise UserError(f"{where}: {key} is missing; a case has {', '.join(CALLED)} or {', '.join(SAID)}")
    case = NearMiss(
        skill=skill,
        quote=text(entry["quote"], f"{where}: quote"),
        values=kinds(entry["values"], f"{where}: values") if "values" in entry else {},
        wordings=_wordings(entry["requests"], f"{where}: requests") if "requests" in entry else {},
        call=text(entry["call"], f"{where}: call") if "call" in entry else "",
        result=text(entry["result"], f"{where}: result") if "call" in entry else "",
        say=text(entry["say"], f"{where}: say"),
    )
    if case.quote not in f"{skill.description}\n{skill.body}":
        raise UserError(f"{where}: quote {case.quote!r} is not in SKILL.md; copy it word for word")
    if case.call and case.call not in tools:
        hint = did_you_mean(case.call, tools)
        raise UserError(f"{where}: {case.call} is not among the dumped tools{hint}")
    told = set(case.values) | set(tools[case.call].required if case.call else ())
    wordings = [one for texts in case.wordings.values() for wording in texts for one in expanded(wording)]
    unknown = sorted(slots_in([*wordings, case.result, case.say]) - told)
    if unknown:
        raise UserError(f"{where}: {{{unknown[0]}}} is neither in values nor a required argument of the call")
    return case


def _wordings(value: Any, where: str) -> dict[str, tuple[str, ...]]:
    return wordings_by_split(mapping(value, where), SPLITS, where)
