"""What a judge must get right first: `calibration.yaml` beside a SKILL.md.

The file has for each rule of kind `judge`, by its id,

request  what the user asked
keeps    a list of traces that keep the rule
breaks   a list of traces that break it

A trace is its closing text, or a mapping: `steps`, each with `call`, `result` and perhaps `args`, and `say`,
the closing text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import chat
from core.chat import Message, Row
from core.errors import UserError, did_you_mean
from core.rules import Rule
from core.yaml_files import known, mapping, read_yaml, text

SIDES = {"keeps": True, "breaks": False}
ENTRY, STEP = ("request", *SIDES), ("call", "result")


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """A trace of which it is known whether it keeps a rule."""

    name: str
    """As `breaks 2`."""
    rule: Rule
    request: str
    trace: list[Message]
    holds: bool


def beside(row: Row) -> Path:
    """Where the fixtures of the row's skill are, if it has any."""
    return Path(row.source).with_name("calibration.yaml")


def load(path: Path, own: Sequence[Rule]) -> dict[str, list[Fixture]]:
    """The fixtures of a skill's `own` rules of kind `judge` by their ids, none where there is no such file.

    Raises UserError naming file and key: unknown or missing, or not of the form that this module says.
    """
    if not path.exists():
        return {}
    known, found = {rule.id: rule for rule in own if rule.kind == "judge"}, {}
    for name, value in mapping(read_yaml(path), str(path)).items():
        where = f"{path}: {name}"
        if name not in known:
            have = f"have {', '.join(known)}" if known else "its rules have none"
            raise UserError(f"{where}: no rule of kind judge{did_you_mean(name, known)}; {have}")
        entry = _entry(value, where, needed=ENTRY)
        request = text(entry["request"], f"{where}: request")
        found[name] = [
            Fixture(
                name=f"{side} {number}",
                rule=known[name],
                request=request,
                trace=_trace(one, f"{where}: {side} {number}"),
                holds=holds,
            )
            for side, holds in SIDES.items()
            for number, one in enumerate(_list(entry[side], f"{where}: {side}"), 1)
        ]
    return found


def _trace(value: Any, where: str) -> list[Message]:
    """The messages that follow the request."""
    if isinstance(value, str):
        return [chat.say(text(value, where), think="")]
    entry, trace = _entry(value, where, needed=("say",), optional=("steps",)), []
    for number, one in enumerate(_list(entry["steps"], f"{where}: steps") if "steps" in entry else [], 1):
        place = f"{where}: step {number}"
        step = _entry(one, place, needed=STEP, optional=("args",))
        args = mapping(step["args"], f"{place}: args") if "args" in step else {}
        trace += [
            chat.call(text(step["call"], f"{place}: call"), args, think=""),
            chat.result(text(step["result"], f"{place}: result")),
        ]
    return [*trace, chat.say(text(entry["say"], f"{where}: say"), think="")]


def _entry(value: Any, where: str, *, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    entry = known(value, (*needed, *optional), where)
    for key in needed:
        if key not in entry:
            raise UserError(f"{where}: {key} is missing; it has {', '.join(needed)}")
    return entry


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise UserError(f"{where}: expected a list of at least one, got {value!r}")
    return value
