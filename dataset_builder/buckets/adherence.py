"""A skill followed to its end, however long the task and whoever pushes: its steps, its rules, its report.

Every row holds every rule of its skill that applies to it, judged by the checker that the gates use. Skills
that the profile holds out appear on the evaluation side alone.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from core import chat, rules
from core.chat import Message, Row
from core.rules import Rule
from dataset_builder import sources as src
from dataset_builder.buckets import skills as skill_rows
from dataset_builder.documents import markdown
from dataset_builder.documents.plans import Plan
from dataset_builder.documents.skills import Skill
from dataset_builder.drawing import arguments as args
from dataset_builder.drawing.json_schema import Undrawable
from dataset_builder.talking import mistakes, results, talks, wording
from dataset_builder.talking.chains import Step
from dataset_builder.talking.long_tasks import failed, phrase, said
from dataset_builder.talking.talks import Talk
from dataset_builder.talking.trajectories import Act, Trajectory, drawn, followed, step_text
from dataset_builder.verifying import checks

TRIES = 8
"""Draws for a row before its kind is given up for the skill."""
PLANS = 12
"""Every so many rows one is a plan in the house's form."""
LEAST_TURNS, MOST_TURNS = 10, 25
"""Assistant turns of a long task."""
RULES_LISTED = 6
"""Rules that a checklist repeats besides the steps."""
ERRORS = (
    "Error: permission denied",
    "Tool execution failed: connection refused",
    "MCP error -32001: Request timed out",
)


@dataclass(frozen=True)
class _Desk:
    """What a conversation on a skill is made with."""

    sources: src.Sources
    skill: Skill
    rng: random.Random
    split: str

    @property
    def own(self) -> Sequence[Rule]:
        return self.sources.rules.get(self.skill.name, ())

    def draw(self) -> Trajectory:
        return drawn(self.sources, self.skill, self.rng, self.split)

    def user(self, what: str, spanish: bool, **slots: object) -> Message:
        text, _ = phrase(what, spanish, self.split, self.rng)
        return chat.user(text.format(**slots))


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows over the skills in turn, each with the kinds in turn; kinds that a skill gives nothing for are
    passed over, and so is a skill for which no trajectory holds its rules (see `unmade`)."""
    skills = [
        skill
        for skill in sources.skills
        if skill.name in sources.procedures
        and (split != "train" or skill.name not in sources.held_out_skills)
    ]
    rng.shuffle(skills)
    # Each skill begins with another kind, so that few rows of many skills still have every kind.
    turn = {
        skill.name: itertools.islice(itertools.cycle(KINDS), number % len(KINDS), None)
        for number, skill in enumerate(skills)
    }
    barren: set[tuple[str, str]] = set()
    fruitful: set[tuple[str, str]] = set()
    made: list[Row] = []
    order = itertools.cycle(skills)
    # A plan's own text is the answer, so that one which is trained would measure nothing.
    plans = rng.sample(sources.plans, len(sources.plans)) if split == "train" else []
    while len(made) < count and (plans or len(barren) < len(skills) * len(KINDS_BY_NAME)):
        over = len(barren) == len(skills) * len(KINDS_BY_NAME)
        if plans and (over or len(made) % PLANS == PLANS - 1):
            made.append(_plan(plans.pop(), rng, len(made)))
            continue
        skill = next(order)
        kind = next(turn[skill.name])
        if (skill.name, kind) in barren:
            continue
        found = _row(_Desk(sources, skill, rng, split), kind, len(made))
        if isinstance(found, Row):
            made.append(found)
            fruitful.add((skill.name, kind))
        elif (skill.name, kind) not in fruitful:
            barren.add((skill.name, kind))
    return made


def unmade(sources: src.Sources) -> dict[str, str]:
    """The skills that give no rows, each with the reason, such as the rule that no trajectory holds."""
    found = {}
    for skill in sources.skills:
        if skill.name not in sources.procedures:
            found[skill.name] = "no procedure was read from it"
            continue
        row = _row(_Desk(sources, skill, random.Random(skill.name), "train"), "followed", 0)
        if isinstance(row, str):
            found[skill.name] = row
    return found


def _row(desk: _Desk, kind: str, number: int) -> Row | str:
    """A row that passes, or why there is none."""
    reason = f"nothing of the kind {kind}"
    for _ in range(TRIES):
        try:
            talk = KINDS_BY_NAME[kind](desk)
        except Undrawable as error:
            reason = str(error)
            continue
        if talk is None:
            continue
        row = _as_row(desk, talk, number)
        book = {desk.skill.name: desk.own}
        # Only a mistake that is mended may be broken by turns without loss.
        judged = row if kind == "self_correction" else replace(row, train_turns=None)
        fault = checks.fault_in_format(row) or checks.fault_in_calls(row) or checks.broken_rule(judged, book)
        if fault is None:
            return row
        reason = fault
    return reason


def _as_row(desk: _Desk, talk: Talk, number: int) -> Row:
    sources, skill = desk.sources, desk.skill
    names = [call.name for turn in talk.turns for call in checks.calls(turn)]
    keys = {tool.shown_name: key for key, tool in sources.tools.items()}
    return src.row(
        "adherence", number, desk.split, group=f"{skill.name}: {talk.template}",
        system=skill_rows.prompt(skill, sources.skill_prompt),
        tools=src.show(sources, list(dict.fromkeys(keys[name] for name in names)), desk.rng),
        messages=talk.turns, train_turns=talk.trained, skill=skill.name, source=str(skill.path),
        meta={"kind": talk.kind} | src.rules_elsewhere(sources, skill),
    )  # fmt: skip


def _talk(kind: str, trajectory: Trajectory, turns: list[Message], trained: list[int] | None = None) -> Talk:
    turns = turns if turns[0]["role"] == "user" else [chat.user(trajectory.request), *turns]
    return Talk(kind=kind, key=trajectory.skill.name, template=trajectory.template, turns=turns,
                trained=trained)  # fmt: skip


# ---- the kinds -----------------------------------------------------------------------------------


def _followed(desk: _Desk) -> Talk:
    trajectory = desk.draw()
    return _talk("followed", trajectory, followed(trajectory))


def _checklist(desk: _Desk) -> Talk:
    """The first reasoning lists steps and rules; the later ones tick the steps off."""
    trajectory = desk.draw()
    spanish, turns, done = trajectory.spanish, followed(trajectory), 0
    steps = [f"- [ ] {step.number}. {step_text(step.text)}" for step in _steps(desk, trajectory)]
    kept = [mistakes.reason_of(desk.skill, rule) for rule in desk.own if rule.kind != rules.WAIVED]
    kept = [f"- {one}" for one in dict.fromkeys(kept) if not any(one[:60] in step for step in steps)]
    listed = [said("checklist", spanish), *steps]
    listed += [said("rules", spanish), *kept[:RULES_LISTED]] if kept else []
    for act, turn in zip([*trajectory.acts, None], chat.assistant_turns(turns), strict=True):
        left = ", ".join(str(step.number) for step in _steps(desk, trajectory) if step.number > done)
        tick = said("tick", spanish, n=done, total=trajectory.total, left=left or "-")
        opening = tick if done else "\n".join(listed) + "\n\n"
        turns[turn]["reasoning_content"] = opening + turns[turn]["reasoning_content"]
        done = act.number if act else done
    return _talk("checklist", trajectory, turns)


def _report(desk: _Desk) -> Talk | None:
    """The report alone is trained: by the template, with this conversation's facts."""
    trajectory = desk.draw()
    headings = [match[0].lstrip("# ") for match in rules.HEADING.finditer(trajectory.report)]
    if not headings:
        return None
    turns = followed(trajectory)
    told = said("sections", trajectory.spanish, sections=", ".join(f"«{one}»" for one in headings))
    turns[-1]["reasoning_content"] = f"{turns[-1]['reasoning_content']} {told}"
    return _talk("report", trajectory, turns, trained=[len(trajectory.acts)])


def _pressure(desk: _Desk) -> Talk | None:
    """The user wants a step, the rest or a section left out; the model says why not and goes on."""
    trajectory = desk.draw()
    spanish, turns = trajectory.spanish, followed(trajectory)
    needed, due = mistakes.skippable(desk.own, trajectory), mistakes.sections(desk.own, trajectory)
    manners = ["skip"] * bool(needed) + ["cut"] * (len(needed) > 1) + ["section"] * bool(due)
    if not manners:
        return None
    manner = desk.rng.choice(manners)
    if manner == "section":
        heading = desk.rng.choice(list(due))
        slots = {"section": heading.lstrip("# "), "quote": due[heading][1].reason}
        push = desk.user("section", trajectory.user_spanish, **slots)["content"]
        turns[-1]["reasoning_content"] = said("section_think", spanish, **slots)
        return _talk("pressure", trajectory, [chat.user(_pushed(trajectory.request, push)), *turns])
    place = desk.rng.choice([one for one in needed if one or manner == "skip"])
    act = trajectory.acts[place]
    slots = {"n": act.number, "total": trajectory.total, "quote": needed[place].reason}
    turn = turns[2 * place]
    turn["reasoning_content"] = f"{said(f'{manner}_think', spanish, **slots)} {turn['reasoning_content']}"
    turn["content"] = said(manner, spanish, **slots)
    push = desk.user(manner, trajectory.user_spanish, **slots)
    if manner == "cut":
        turns = [chat.user(trajectory.request), *turns[: 2 * place], push, *turns[2 * place :]]
    else:
        turns = [chat.user(_pushed(trajectory.request, push["content"])), *turns]
    return _talk("pressure", trajectory, turns)


def _blocked(desk: _Desk) -> Talk | None:
    """A step fails: the model stops there, says so, invents nothing; once mended, it goes on from there."""
    trajectory = desk.draw()
    spanish = trajectory.spanish
    place = desk.rng.randrange(len(trajectory.acts))
    act, error = trajectory.acts[place], desk.rng.choice(ERRORS)
    if (on_record := _on_record(desk, trajectory, place)) is not None:
        return on_record
    slots = {"n": act.number, "total": trajectory.total, "tool": act.tool.name, "error": error}
    turns = followed(trajectory)
    failed, rest = turns[2 * place], turns[2 * place :]
    stopped = chat.say(said("blocked", spanish, **slots), think=said("blocked_think", spanish, **slots))
    again = rest[0] | {"reasoning_content": said("retried", spanish, **slots)}
    turns = [
        *turns[: 2 * place],
        failed,
        chat.result(error),
        stopped,
        desk.user("mended", trajectory.user_spanish),
        again,
    ]
    return _talk("blocked", trajectory, [*turns, *rest[1:]])


def _on_record(desk: _Desk, trajectory: Trajectory, place: int) -> Talk | None:
    """As `_blocked`, where the report has a verdict for failure: the rest is done, the report says so."""
    template = desk.sources.procedures[desk.skill.name].template
    number, spanish = trajectory.acts[place].number, trajectory.spanish
    report = template and failed(template, trajectory.report, desk.skill.body, number, ERRORS[0], spanish)
    if not report:
        return None
    turns = followed(trajectory)
    turns[2 * place + 1] = chat.result(ERRORS[0])
    after = turns[2 * place + 2]
    after["reasoning_content"] = f"{said('on_record', spanish, n=number)} {after['reasoning_content']}"
    turns[-1]["content"] = report
    return _talk("blocked", trajectory, turns)


def _self_correction(desk: _Desk) -> Talk | None:
    """A wrong turn, which carries no loss; the next one names the rule that it broke and mends it."""
    trajectory = desk.draw()
    found = mistakes.corrected(desk.own, trajectory, desk.sources.tools, desk.rng, desk.split)
    if found is None:
        return None
    places = chat.assistant_turns(found.turns)
    trained = [number for number, place in enumerate(places) if place != found.wrong]
    return _talk("self_correction", trajectory, found.turns, trained)


def _long(desk: _Desk) -> Talk | None:
    """The skill for one thing after another; where its rules allow it once, a long conversation around it."""
    first = desk.draw()
    each = len(first.acts) + 1
    items = desk.rng.randint(-(-LEAST_TURNS // each), max(-(-LEAST_TURNS // each), 16 // each))
    if items > 1 and items * each <= MOST_TURNS:
        turns = _interrupted(desk, first)
        for _ in range(items - 1):
            other = desk.draw()
            while other.user_spanish != first.user_spanish:
                other = desk.draw()
            again = followed(other)
            anew = said("anew", other.spanish)
            again[0]["reasoning_content"] = f"{anew} {again[0]['reasoning_content']}"
            turns += [desk.user("again", other.user_spanish, request=other.request), *again]
        talk = _talk("long", first, turns)
        if checks.broken_rule(_as_row(desk, talk, 0), {desk.skill.name: desk.own}) is None:
            return talk
    before: list[Message] = []
    for _ in range(max(1, -(-(LEAST_TURNS - each) // 2))):
        before += _answered(desk, first.user_spanish)
    return _talk("long", first, [*before, chat.user(first.request), *_interrupted(desk, first)])


def _interrupted(desk: _Desk, trajectory: Trajectory) -> list[Message]:
    """The procedure with a word of the user's in between: a question or an aside."""
    turns = followed(trajectory)
    if len(trajectory.acts) < 2:
        return turns
    place, spanish = desk.rng.randrange(1, len(trajectory.acts)), trajectory.spanish
    kind = desk.rng.choice(["status", "aside"])
    act = trajectory.acts[place]
    left = [str(step.number) for step in _steps(desk, trajectory) if step.number >= act.number]
    turn = turns[2 * place]
    turn["content"] = said(kind, spanish, n=act.number, total=trajectory.total, left=", ".join(left))
    turn["reasoning_content"] = f"{said('status_think', spanish)} {turn['reasoning_content']}"
    return [*turns[: 2 * place], desk.user(kind, trajectory.user_spanish), *turns[2 * place :]]


def _answered(desk: _Desk, spanish: bool) -> list[Message]:
    """Something else that the user asks for before, and its answer."""
    rng, tools = desk.rng, desk.sources.tools
    named = {tool for step in desk.sources.procedures[desk.skill.name].steps for tool in step.tools}
    readers = [key for key, tool in tools.items()
               if key not in named and wording.action_kind(tool) in ("read", "list")]  # fmt: skip
    if not readers:
        raise Undrawable("no other tool to talk about")
    tool = tools[rng.choice(readers)]
    call = args.draw_call(tool, rng, desk.split, sparse=True)
    text, _ = wording.request(tool, call, rng, desk.split, "es" if spanish else "en")
    step = Step(tool, call, results.result_of(tool, call, rng, desk.split))
    return [chat.user(text), *talks.played([step], spanish, rng)]


def _steps(desk: _Desk, trajectory: Trajectory) -> Sequence[Act] | Sequence:
    return desk.sources.procedures[desk.skill.name].steps or trajectory.acts


def _pushed(request: str, push: str) -> str:
    return f"{request}\n\n{push}" if "\n" in request else f"{request.rstrip('.')}. {push}"


KINDS_BY_NAME: dict[str, Callable[[_Desk], Talk | None]] = {
    "followed": _followed,
    "checklist": _checklist,
    "long": _long,
    "self_correction": _self_correction,
    "report": _report,
    "pressure": _pressure,
    "blocked": _blocked,
}
KINDS = (
    "followed", "checklist", "long", "self_correction", "pressure",
    "report", "blocked", "long", "checklist", "self_correction",
)  # fmt: skip
"""What a skill's rows exercise, in turn."""


# ---- plans ---------------------------------------------------------------------------------------


def _plan(plan: Plan, rng: random.Random, number: int) -> Row:
    """Unordered notes, all that the plan says, to be put into the house's form: the plan's own text."""
    notes = [block.text.strip("| ").replace(" | ", ": ") if block.kind == "row" else block.text
             for block in markdown.blocks(plan.text) if block.kind != "heading"]  # fmt: skip
    rng.shuffle(notes)
    spanish = rng.choice(wording.TONGUES) == "es"
    form, index = phrase("plan", spanish, "train", rng)
    listed = ", ".join(section.lstrip("# ") for section in plan.sections)
    think = said("plan_think", spanish, sections=listed)
    request = form.format(title=plan.title, sections=listed, notes="\n".join(f"- {one}" for one in notes))
    return src.row(
        "adherence", number, "train", group=f"plan {plan.title}: {index}", system=rng.choice(src.SYSTEMS),
        tools=[], source=str(plan.path), meta={"kind": "plan"},
        messages=[chat.user(request), chat.say(plan.text, think=think)],
    )  # fmt: skip
