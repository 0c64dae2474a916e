"""Ways to go wrong in a procedure, each proved by a rule of the skill that breaks, and how to mend them."""

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core import chat, rules
from core.chat import Message
from core.rules import Rule
from dataset_builder.documents.skills import Skill
from dataset_builder.drawing import arguments as args
from dataset_builder.drawing.json_schema import Undrawable
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking import results, wording
from dataset_builder.talking.long_tasks import phrase, said
from dataset_builder.talking.trajectories import Act, Trajectory, followed, played, taken, thought

MARK = re.compile(r"^[\s>]*(?:[-*+]|\d+[.)]|#{1,6}(?=\s))?\s*(?:\[[ xX]\]\s*)?")
"""List marks before a line of SKILL.md."""
LONGEST = 240
"""Characters of a reason that is quoted."""


@dataclass(frozen=True)
class Breach:
    """A rule that breaks, and why it is there."""

    rule: Rule
    reason: str
    """The line of SKILL.md that it comes from, with its reason."""


def breaches(own: Sequence[Rule], trajectory: Trajectory, trace: Sequence[Message]) -> list[Breach]:
    """The rules that a trace breaks."""
    found = rules.check(own, trace, trajectory.request)
    broken = {one.rule for one in found if one.verdict == rules.BROKEN}
    return [Breach(rule, reason_of(trajectory.skill, rule)) for rule in own if rule.id in broken]


def skippable(own: Sequence[Rule], trajectory: Trajectory) -> dict[int, Breach]:
    """The acts, by their place, whose omission breaks a rule: the one that says best why."""
    acts = trajectory.acts
    broken = [
        breaches(own, trajectory, played([*acts[:place], *acts[place + 1 :]], trajectory.report))
        for place in range(len(acts))
    ]
    shared = Counter(one.rule.id for found in broken for one in found)
    best = {}
    for place, found in enumerate(broken):
        alone = [one for one in found if shared[one.rule.id] == 1 or one.rule.kind == "count"]
        steps = [
            Breach(one.rule, cut(acts[place].content))
            for one in found
            if any(
                passage in acts[place].text or acts[place].text in passage for passage in one.rule.passages
            )
        ]
        if found:
            best[place] = max(alone or steps or found, key=lambda one: len(one.reason))
    return best


def sections(own: Sequence[Rule], trajectory: Trajectory) -> dict[str, tuple[str, Breach]]:
    """The headings of the report whose omission breaks a rule, with the report that lacks them."""
    found = {}
    headings = list(rules.HEADING.finditer(trajectory.report))
    for place, match in enumerate(headings):
        stop = headings[place + 1].start() if place + 1 < len(headings) else len(trajectory.report)
        report = (trajectory.report[: match.start()] + trajectory.report[stop:]).strip()
        broken = breaches(own, trajectory, played(trajectory.acts, report)) if report else []
        if broken:
            found[match[0].strip()] = (report, max(broken, key=lambda one: "sections" in one.rule.keys))
    return found


def forbidden(
    own: Sequence[Rule], trajectory: Trajectory, tools: Mapping[str, ToolSchema]
) -> dict[str, Breach]:
    """The tools, by `<server>.<tool>`, that a rule forbids whatever their arguments."""
    found = {}
    outright = [
        rule
        for rule in own
        if rule.kind == "never" and rule.keys["what"].calls and rule.keys.get("since") is None
        and not rule.keys["what"].args and not rule.keys["what"].args_not
    ]  # fmt: skip
    for key, tool in tools.items() if outright else ():
        call = chat.call(tool.shown_name, {}, think="")
        finding = rules.check(outright, [call], trajectory.request)
        rule = next((rule for rule, one in zip(outright, finding, strict=True)
                     if one.verdict == rules.BROKEN), None)  # fmt: skip
        if rule:
            found[key] = Breach(rule, reason_of(trajectory.skill, rule))
    return found


def may_be_repeated(own: Sequence[Rule], trajectory: Trajectory, act: Act) -> bool:
    """Whether an act can come a second time: reading can, writing where no rule counts it."""
    if wording.action_kind(act.tool) in ("read", "list"):
        return True
    trace = played([*trajectory.acts, act], trajectory.report)
    return not any(
        one.verdict == rules.BROKEN
        for rule, one in zip(_judged(own), rules.check(own, trace, trajectory.request), strict=True)
        if rule.kind == "count"
    )


def reason_of(skill: Skill, rule: Rule) -> str:
    """The whole line of SKILL.md that a rule quotes, in which its reason stands, without list marks.

    Of a heading of the report's template, the line that introduces the template.
    """
    lines, quote = skill.body.split("\n"), rule.quote.split("\n")[0]
    place = next((number for number, line in enumerate(lines) if quote in line), None)
    if place is None:
        return cut(quote)
    while (
        "sections" in rule.keys
        and place
        and lines[place].startswith(("#", "```"))
        and any(map(str.strip, lines[:place]))
    ):
        place = max(number for number in range(place) if lines[number].strip())
    return cut(MARK.sub("", lines[place]))


def cut(text: str) -> str:
    """A text in one line, ended by a stop, cut to what a message can quote."""
    line = " ".join(text.split())
    if len(line) > LONGEST:
        line = line[:LONGEST].rsplit(" ", 1)[0] + "…"
    line = line.rstrip(":")
    return line if line.endswith((".", "…", "!", "?")) else f"{line}."


# ---- wrong turns and their mending ----------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """What a wrong turn is made with; `needed` are the acts whose omission breaks a rule."""

    own: Sequence[Rule]
    trajectory: Trajectory
    needed: Mapping[int, Breach]
    tools: Mapping[str, ToolSchema]
    rng: random.Random
    split: str

    def slots(self, place: int, breach: Breach, **more: Any) -> dict[str, Any]:
        act = self.trajectory.acts[place]
        return {"n": act.number, "rule": breach.rule.id, "quote": breach.reason, **more}

    def mended(self, kind: str, place: int, wrong: list[Message], **slots: Any) -> "Corrected":
        """The turns with the wrong ones before an act, which now names the rule and mends it."""
        spanish, turns = self.trajectory.spanish, followed(self.trajectory)
        at = 2 * place
        turns[at]["reasoning_content"] = said(f"{kind}_think", spanish, **slots)
        if at < len(turns) - 1:
            turns[at]["content"] = said(kind, spanish, **slots)
        return Corrected([*turns[:at], *wrong, *turns[at:]], at)

    def review(self) -> Message:
        return chat.user(phrase("review", self.trajectory.user_spanish, self.split, self.rng)[0])


@dataclass(frozen=True)
class Corrected:
    """The turns after the request, and the place of the wrong one, which must carry no loss."""

    turns: list[Message]
    wrong: int


def corrected(
    own: Sequence[Rule],
    trajectory: Trajectory,
    tools: Mapping[str, ToolSchema],
    rng: random.Random,
    split: str,
) -> Corrected | None:
    """A wrong turn midway and its mending, or None where nothing that could go wrong breaks a rule."""
    case = _Case(own, trajectory, skippable(own, trajectory), tools, rng, split)
    manners: list[Callable[[_Case], Corrected | None]] = [_slip, _early, _forbidden, _missing]
    rng.shuffle(manners)
    return next((found for manner in manners if (found := manner(case))), None)


def _slip(case: _Case) -> Corrected | None:
    """The next step is taken first."""
    trajectory = case.trajectory
    places = [
        place
        for place, (act, after) in enumerate(zip(trajectory.acts, trajectory.acts[1:], strict=False))
        if place in case.needed
        and act.number != after.number
        and may_be_repeated(case.own, trajectory, after)
    ]
    if not places:
        return None
    place = case.rng.choice(places)
    after = trajectory.acts[place + 1]
    wrong = taken(after, thought(after, trajectory))
    return case.mended("slip", place, wrong, **case.slots(place, case.needed[place]))


def _early(case: _Case) -> Corrected | None:
    """The report comes before the last step."""
    place = len(case.trajectory.acts) - 1
    if place not in case.needed:
        return None
    wrong = [followed(case.trajectory)[-1], case.review()]
    return case.mended("early", place, wrong, **case.slots(place, case.needed[place]))


def _forbidden(case: _Case) -> Corrected | None:
    """A tool is called that a rule forbids."""
    found = forbidden(case.own, case.trajectory, case.tools)
    if not found or not case.needed:
        return None
    key = case.rng.choice(list(found))
    tool, acts = case.tools[key], case.trajectory.acts
    known = {name: value for act in acts for name, value in act.arguments.items()}
    given = {name: known[name] for name in tool.properties if name in known}
    try:
        call = args.draw_call(tool, case.rng, case.split, given=given, sparse=True)
    except Undrawable:
        return None
    place = case.rng.choice(list(case.needed))
    wrong = [
        chat.call(tool.shown_name, call, think=thought(acts[place], case.trajectory)),
        chat.result(results.result_of(tool, call, case.rng, case.split)),
    ]
    return case.mended("forbidden", place, wrong, **case.slots(place, found[key], tool=tool.name))


def _missing(case: _Case) -> Corrected | None:
    """The report lacks a section."""
    found = sections(case.own, case.trajectory)
    if not found:
        return None
    heading = case.rng.choice(list(found))
    report, why = found[heading]
    wrong = [followed(case.trajectory)[-1] | {"content": report}, case.review()]
    slots = {"section": heading.lstrip("# "), "rule": why.rule.id, "quote": why.reason}
    return case.mended("missing", len(case.trajectory.acts), wrong, **slots)


def _judged(own: Sequence[Rule]) -> list[Rule]:
    return [rule for rule in own if rule.kind != rules.WAIVED]
