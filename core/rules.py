"""The rules of a skill that a program can check: `rules.yaml` -> verdicts on what a model did.

The file is a list of rules, bare or as `rules` under the header of a draft (`source_sha256` of the SKILL.md
that it was drafted from, `draft_sha256` of the draft as it was written). Each rule has an `id`, a `kind`
with its keys, and a `quote`, the passage of SKILL.md that it comes from, word for word; `covers` lists more
of them. With `when` it applies only to traces where that selector (see core/selectors.py) picks something.
An entry with `waived: <why>` instead of a kind says that no rule is meant for its quote.

kind            keys                   holds when
must            what                   `what` is there
never           what, [since]          `what` is nowhere; with `since`, nowhere after the first of these. What
                                       is said of a call's arguments applies only where that call is made
count           what, [min], [max]     `what` is there that often
before          first, then            each `then` has a `first` before it
after           first, then, [within]  each `first` has a `then` after it, at most `within` turns later
order           steps                  the steps are there, one after the other
final_sections  sections               the last turn is a text with these headings alone, in order, none empty
judge           rubric                 never decided here: it takes a reader
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol, TypeVar

from core import selectors
from core.chat import Message
from core.errors import UserError, did_you_mean
from core.selectors import Event, Selector
from core.yaml_files import read_yaml, text

HOLDS, BROKEN, NOT_APPLICABLE, NOT_JUDGED = "holds", "broken", "not_applicable", "not_judged"
WAIVED = "waived"
HEADER = ("skill", "source_sha256", "draft_sha256", "rules")
HEADING = re.compile(r"^#{1,6} .*\S", re.MULTILINE)
_CODE = re.compile(r"^( *)(`{3,}|~{3,}).*\n(?s:.*?)^\1\2$", re.MULTILINE)
"""A block of code, whose comments may look like headings."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule; `keys` are those of its kind, selectors parsed.

    A waiver has the kind `waived` and says why under the same key.
    """

    id: str
    kind: str
    quote: str
    when: Selector | None
    keys: Mapping[str, Any]
    covers: tuple[str, ...] = ()

    @property
    def passages(self) -> tuple[str, ...]:
        """All of SKILL.md that it stands for, word for word."""
        return (self.quote, *self.covers)


class Line(Protocol):
    """A line of SKILL.md that binds, as `coverage` sees it."""

    @property
    def text(self) -> str: ...
    @property
    def force(self) -> str: ...


@dataclass(frozen=True)
class Finding:
    """What a rule says of a trace."""

    rule: str
    verdict: str
    """HOLDS, BROKEN, NOT_APPLICABLE or NOT_JUDGED."""
    position: int | None = None
    """Of the message that breaks it; None where nothing is there to point at."""
    reason: str = ""
    """Why it is broken, in one line."""


AnyLine = TypeVar("AnyLine", bound=Line)


def load(path: Path, skill: str | None = None) -> list[Rule]:
    """The rules of a file; with the text of its SKILL.md, every quote must stand in it.

    Raises UserError naming file and rule on whatever is not as this module says, and on rules that a model
    which does nothing would keep.
    """
    rules = read(path, skill)
    if not can_be_broken(rules):
        raise UserError(f"{path}: a model that does nothing keeps these rules; add a must or an order")
    return rules


def read(path: Path, skill: str | None = None) -> list[Rule]:
    """As `load`, but also rules that only a reader can decide."""
    if not path.exists():
        raise UserError(f"{path}: no such file; write the skill's rules, or make rules to draft them")
    content = read_yaml(path)
    if isinstance(content, dict):
        unknown = next((key for key in content if key not in HEADER), None)
        if unknown is not None:
            hint = did_you_mean(str(unknown), HEADER)
            raise UserError(f"{path}: unknown key {unknown!r}{hint}; have {', '.join(HEADER)}")
        content = content.get("rules")
    elif not content:
        content = None
    if not isinstance(content, list):
        raise UserError(f"{path}: expected a list of rules, `- id: ...`; see examples/skills/*/rules.yaml")
    rules = [_rule(entry, f"{path}: rule {number}", skill) for number, entry in enumerate(content, 1)]
    ids = [rule.id for rule in rules]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice:
        raise UserError(f"{path}: rule {twice} is there twice; rename one of them")
    return rules


def location(skill: Path, name: str, drafts: Path) -> Path:
    """Where the rules of a SKILL.md are: `rules.yaml` beside it, else the draft `<name>.yaml`."""
    beside = skill.with_name("rules.yaml")
    return beside if beside.exists() else drafts / f"{name}.yaml"


def can_be_broken(rules: Sequence[Rule]) -> bool:
    """Whether a model that does nothing breaks one of the rules."""
    return any(finding.verdict == BROKEN for finding in check(rules, [], ""))


def gone(rule: Rule, skill: str) -> list[str]:
    """The passages of a rule that do not stand in the text of SKILL.md (any more)."""
    return [passage for passage in rule.passages if passage not in skill]


def coverage(rules: Sequence[Rule], lines: Iterable[AnyLine]) -> list[AnyLine]:
    """The lines that neither a rule nor a waiver speaks of.

    A line is covered by a passage that stands in it or that it stands in, and a heading of the report
    template by `final_sections` as well.
    """
    passages = [passage for rule in rules for passage in rule.passages]
    sections = [heading for rule in rules for heading in rule.keys.get("sections", ())]
    return [
        line
        for line in lines
        if not any(passage in line.text or line.text in passage for passage in passages)
        and not (line.force == "section" and line.text in sections)
    ]


def check(rules: Sequence[Rule], trace: Sequence[Message], request: str) -> list[Finding]:
    """A finding for each rule on a trace: the messages that follow the user's `request`."""
    events = selectors.events(trace, request)
    findings = []
    for rule in rules:
        if rule.kind == WAIVED:
            continue
        if rule.when and not rule.when.pick(events):
            findings.append(Finding(rule.id, NOT_APPLICABLE))
        else:
            findings.append(Finding(rule.id, *KINDS[rule.kind].check(rule.keys, events)))
    return findings


_Answer = tuple[str, int | None, str]
"""Verdict, position, reason: what a Finding has beside the rule's id."""
_HOLDS: _Answer = (HOLDS, None, "")
_NOT_APPLICABLE: _Answer = (NOT_APPLICABLE, None, "")


def _must(keys: Mapping[str, Any], events: Sequence[Event]) -> _Answer:
    return _HOLDS if keys["what"].pick(events) else (BROKEN, None, f"nowhere: {keys['what'].text}")


def _never(keys: Mapping[str, Any], events: Sequence[Event]) -> _Answer:
    what, since = keys["what"], keys.get("since")
    start = since.pick(events)[:1] if since else events[:1]
    if not start or ((what.args or what.args_not) and not what.concerned(events)):
        return _NOT_APPLICABLE
    found = [event for event in what.pick(events) if not since or start[0].is_before(event)]
    return (BROKEN, found[0].position, f"forbidden: {_act(found[0])}") if found else _HOLDS


def _count(keys: Mapping[str, Any], events: Sequence[Event]) -> _Answer:
    found, most = keys["what"].pick(events), keys.get("max")
    if most is not None and len(found) > most:
        return BROKEN, found[most].position, f"{len(found)} times, at most {most}: {keys['what'].text}"
    if len(found) < keys.get("min", 0):
        return BROKEN, None, f"{len(found)} times, at least {keys['min']}: {keys['what'].text}"
    return _HOLDS


def _before(keys: Mapping[str, Any], events: Sequence[Event]) -> _Answer:
    firsts, thens = keys["first"].pick(events), keys["then"].pick(events)
    for then in thens:
        if not any(first.is_before(then) for first in firsts):
            return BROKEN, then.position, f"{_act(then)} without before it: {keys['first'].text}"
    return _HOLDS if thens else _NOT_APPLICABLE


def _after(keys: Mapping[str, Any], events: Sequence[Event]) -> _Answer:
    firsts, thens = keys["first"].pick(events), keys["then"].pick(events)
    within = keys.get("within", len(events))
    for first in firsts:
        if not any(first.is_before(then) and then.turn - first.turn <= within for then in thens):
            return BROKEN, first.position, f"{_act(first)} without after it: {keys['then'].text}"
    return _HOLDS if firsts else _NOT_APPLICABLE


def _order(keys: Mapping[str, Any], events: Sequence[Event]) -> _Answer:
    last = None
    for step in keys["steps"]:
        found = step.pick(events)
        later = [event for event in found if last is None or last.is_before(event)]
        if not later:
            position = found[0].position if found else None
            return BROKEN, position, f"{'too early' if found else 'nowhere'}: {step.text}"
        last = later[0]
    return _HOLDS


def _final_sections(keys: Mapping[str, Any], events: Sequence[Event]) -> _Answer:
    last, sections = events[-1], keys["sections"]
    if last.kind != "say":
        return BROKEN, last.position, f"ends with {_act(last)} instead of a text"
    first = HEADING.search(last.text)
    begin = first.start() if first else 0  # a block that begins before holds the report itself
    report = last.text[:begin] + _CODE.sub("code", last.text[begin:])
    found = HEADING.findall(report)
    for section, heading in zip_longest(sections, found):
        if section != heading:
            wrong = f"{heading!r} where" if heading else "nothing where"
            return BROKEN, last.position, f"{wrong} {repr(section) if section else 'the end'} is due"
    for section, body in zip(sections, HEADING.split(report)[1:], strict=True):
        if not body.strip():
            return BROKEN, last.position, f"{section!r} is empty"
    return _HOLDS


def _undecided(keys: Mapping[str, Any], events: Sequence[Event]) -> _Answer:
    return NOT_JUDGED, None, ""


def _act(event: Event) -> str:
    return selectors.one_line(f"{event.kind} {event.tool or event.text}")


def _rule(entry: Any, where: str, skill: str | None) -> Rule:
    if not isinstance(entry, dict):
        raise UserError(f"{where}: expected `key: value` lines, got {entry!r}")
    if "id" in entry:
        where = f"{where} ({text(entry['id'], f'{where}: id')})"
    kind = WAIVED if WAIVED in entry and "kind" not in entry else entry.get("kind")
    if kind not in KINDS:
        hint = did_you_mean(str(kind), KINDS)
        raise UserError(f"{where}: unknown kind {kind!r}{hint}; have {', '.join(KINDS)}")
    common = ("id", "quote") if kind == WAIVED else ("id", "kind", "quote")
    needed = (*common, *KINDS[kind].needed)
    allowed = (*needed, *KINDS[kind].optional, "covers", *(() if kind == WAIVED else ("when",)))
    for key in entry:
        if key not in allowed:
            hint = did_you_mean(str(key), allowed)
            raise UserError(f"{where}: unknown key {key!r}{hint}; {kind} has {', '.join(allowed)}")
    for key in needed:
        if key not in entry:
            mend = "copy the passage of SKILL.md that it comes from" if key == "quote" else "add it"
            raise UserError(f"{where}: {key} is missing; {mend}")
    if kind == "count" and not entry.keys() & {"min", "max"}:
        raise UserError(f"{where}: count needs min, max or both; add one")
    parsed = {key: _PARSERS[key](value, f"{where}: {key}") for key, value in entry.items()}
    rule = Rule(
        id=parsed["id"],
        kind=kind,
        quote=parsed["quote"],
        when=parsed.get("when"),
        keys={key: parsed[key] for key in (*KINDS[kind].needed, *KINDS[kind].optional) if key in parsed},
        covers=tuple(parsed.get("covers", ())),
    )
    missing = [] if skill is None else gone(rule, skill)
    if missing:
        raise UserError(f"{where}: quote {missing[0]!r} is not in SKILL.md; copy it word for word")
    return rule


def _number(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"{where}: expected a number from 0 up, got {value!r}")
    return value


def _list_of(parse: Callable[[Any, str], Any]) -> Callable[[Any, str], list[Any]]:
    def parse_list(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise UserError(f"{where}: expected a list, got {value!r}")
        return [parse(item, f"{where} {number}") for number, item in enumerate(value, 1)]

    return parse_list


def _heading(value: Any, where: str) -> str:
    heading = text(value, where)
    if not HEADING.fullmatch(heading):
        raise UserError(f"{where}: {heading!r} is no Markdown heading; write it as '## Title'")
    return heading


@dataclass(frozen=True)
class _Kind:
    check: Callable[[Mapping[str, Any], Sequence[Event]], _Answer]
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


KINDS = {
    "must": _Kind(_must, ("what",)),
    "never": _Kind(_never, ("what",), ("since",)),
    "count": _Kind(_count, ("what",), ("min", "max")),
    "before": _Kind(_before, ("first", "then")),
    "after": _Kind(_after, ("first", "then"), ("within",)),
    "order": _Kind(_order, ("steps",)),
    "final_sections": _Kind(_final_sections, ("sections",)),
    "judge": _Kind(_undecided, ("rubric",)),
    WAIVED: _Kind(_undecided, (WAIVED,)),
}
DECIDED = tuple(kind for kind, one in KINDS.items() if one.check is not _undecided)
"""The kinds that a program decides."""
_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("id", "kind", "quote", "rubric", WAIVED), text),
    **dict.fromkeys(("what", "since", "first", "then", "when"), selectors.parse),
    **dict.fromkeys(("min", "max", "within"), _number),
    "steps": _list_of(selectors.parse),
    "sections": _list_of(_heading),
    "covers": _list_of(text),
}
