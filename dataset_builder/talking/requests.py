"""How users ask for each tool: hand-written wordings with {slot}s, by split.

The mapping of the file is server -> tool -> `values` (kind of each slot) and one list of wordings a split.
Where a wording says `(a|b|)`, one of them is drawn each time.
"""

import itertools
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError, did_you_mean
from core.yaml_files import mapping, read_yaml, text
from dataset_builder.drawing.values import KINDS
from dataset_builder.schemas import ToolSchema

SPLITS = ("train", "dev", "eval", "synonyms")
SLOT = re.compile(r"\{([A-Za-z_][\w-]*)\}")
ALTERNATIVES = re.compile(r"\(([^()]*\|[^()]*)\)")


@dataclass(frozen=True, kw_only=True)
class ToolRequests:
    """The ways to ask for one tool."""

    server: str
    tool: str
    values: dict[str, str]
    """Kind of each argument that a wording may name."""
    wordings: dict[str, tuple[str, ...]]
    """By split."""


def load_requests(path: Path, tools: Mapping[str, ToolSchema]) -> list[ToolRequests]:
    """The requests of a file, in its order; `tools` are the dumped ones by `<server>.<tool>`.

    Raises UserError naming file, server and tool: an unknown tool, split or kind; values that make no valid
    call; a wording without a required slot, with one that is not declared, or written twice in the file.
    """
    found: list[ToolRequests] = []
    places: dict[str, str] = {}
    for server, entries in mapping(read_yaml(path), str(path)).items():
        for tool, entry in mapping(entries, f"{path}: {server}").items():
            name = f"{server}.{tool}"
            request = _tool_requests(server, tool, entry, tools, f"{path}: {name}")
            claim_wordings(request.wordings, places, path, f"{name} ")
            found.append(request)
    return found


def claim_wordings(
    wordings: Mapping[str, Iterable[str]], places: dict[str, str], path: Path, owner: str = ""
) -> None:
    """Note in `places` where each wording stands; UserError where one of them stands already."""
    for split, texts in wordings.items():
        for asked in (one for wording in texts for one in expanded(wording)):
            other = places.get(asked.casefold())
            if other:
                raise UserError(
                    f"{path}: {asked!r} stands in {owner}{split} and in {other}; reword one of them"
                )
            places[asked.casefold()] = f"{owner}{split}"


def expanded(wording: str) -> list[str]:
    """Every text that a wording stands for: one for each choice among its alternatives."""
    parts = ALTERNATIVES.split(wording)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def one_of(wording: str, rng: random.Random) -> str:
    """One of the texts that a wording stands for."""
    return ALTERNATIVES.sub(lambda match: rng.choice(match[1].split("|")), wording)


def kinds(value: Any, where: str) -> dict[str, str]:
    """`value` as a mapping from slots to names of `values.KINDS`; UserError otherwise."""
    for slot, kind in mapping(value, where).items():
        if kind not in KINDS:
            raise UserError(f"{where}: {slot} has the unknown kind {kind!r}; have {', '.join(KINDS)}")
    return value


def wordings_by_split(entry: dict[str, Any], splits: Iterable[str], where: str) -> dict[str, tuple[str, ...]]:
    """The lists of wordings of `entry`, one for each of `splits`; UserError on any other key."""
    splits = tuple(splits)
    for split in entry:
        if split not in splits:
            raise UserError(f"{where}: unknown split {split!r}; have {', '.join(splits)}")
    for split in splits:
        if not isinstance(entry.get(split), list) or not entry[split]:
            raise UserError(f"{where}: {split} must be a list of wordings; add at least one")
    return {split: tuple(text(one, f"{where}: {split}") for one in entry[split]) for split in splits}


def slots_in(template: Any) -> set[str]:
    """The names of the {slot}s in a text, or in the texts of a list or mapping."""
    if isinstance(template, dict):
        template = list(template.values())
    if isinstance(template, list | tuple):
        return set().union(*map(slots_in, template))
    return set(SLOT.findall(template)) if isinstance(template, str) else set()


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """The template with its slots replaced; a text that is one slot alone takes the value as it is."""
    if isinstance(template, dict):
        return {key: fill(part, values) for key, part in template.items()}
    if isinstance(template, list):
        return [fill(part, values) for part in template]
    if not isinstance(template, str):
        return template
    whole = SLOT.fullmatch(template)
    return values[whole[1]] if whole else SLOT.sub(lambda match: str(values[match[1]]), template)


def examples(kind_by_slot: Mapping[str, str]) -> dict[str, Any]:
    """A value for each slot, of its kind: enough to try a template against a schema."""
    return {slot: KINDS[kind](random.Random(0)) for slot, kind in kind_by_slot.items()}


def _tool_requests(
    server: str, tool: str, entry: Any, tools: Mapping[str, ToolSchema], where: str
) -> ToolRequests:
    name = f"{server}.{tool}"
    if name not in tools:
        raise UserError(
            f"{where}: not among the dumped tools{did_you_mean(name, tools)}; "
            "correct the name, or add its server to MCP_CONFIG and make schemas"
        )
    entry = dict(mapping(entry, where))
    values = kinds(entry.pop("values", None), f"{where}: values")
    fault = tools[name].fault_in(examples(values))
    if fault:
        raise UserError(f"{where}: values make no valid call, {fault}; correct the slots or their kinds")
    wordings = wordings_by_split(entry, SPLITS, where)
    for split, texts in wordings.items():
        for wording in (one for written in texts for one in expanded(written)):
            _check_slots(wording, values, tools[name].required, f"{where}: {split}")
    return ToolRequests(server=server, tool=tool, values=values, wordings=wordings)


def _check_slots(wording: str, values: dict[str, str], required: Iterable[str], where: str) -> None:
    slots = slots_in(wording)
    undeclared = sorted(slots - values.keys())
    if undeclared:
        raise UserError(f"{where}: {wording!r} has {{{undeclared[0]}}}, which values does not declare")
    missing = sorted(set(required) - slots)
    if missing:
        raise UserError(f"{where}: {wording!r} lacks {{{missing[0]}}}, which the tool requires")
