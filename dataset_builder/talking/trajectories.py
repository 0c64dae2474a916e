"""A skill's procedure carried out once: its steps in order, their calls and answers, the report at the end.

A scenario.yaml beside the skill gives values, thoughts, answers and the report word for word. Without one,
arguments are drawn from the tools' schemas: what a step shares with an earlier one is the same (the
repository, the page), what an earlier answer tells is taken from there, and the user says the rest.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core import chat, phrases
from core.chat import Message
from dataset_builder import sources as src
from dataset_builder.documents.procedures import Procedure, SkillStep
from dataset_builder.documents.rule_drafts import IF, OR
from dataset_builder.documents.skills import Scenario, Skill
from dataset_builder.drawing import arguments as args
from dataset_builder.drawing import methods, values
from dataset_builder.drawing.json_schema import Undrawable
from dataset_builder.drawing.texts import snake
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking import long_tasks, replies, results, wording
from dataset_builder.talking.long_tasks import said
from dataset_builder.talking.requests import fill, one_of
from dataset_builder.talking.tool_names import IDENTIFIER, RESULT, Noun, head_of, identifies, verb_and_words
from dataset_builder.talking.wording import TONGUES

LISTED = 3
"""Entries of an answer that lists things."""
PLACES = ("owner", "repo", "index", "number")
"""Arguments that stay the same along a procedure even where a tool could do without."""
STEP_MARK = re.compile(r"^\W*(?:paso|step|fase|phase|etapa)\s*\d+\W*", re.IGNORECASE)
CONTENT = re.compile(r"^(title|summary|body|content|text)$")
"""Arguments without which a write writes nothing."""
WHETHER = re.compile(
    r"\b(?:comprueb|mir|busc|verific|averigu|consult|check|see|search|look|verify|find)\w*\b", re.IGNORECASE
)
"""Verbs after which `si` and `if` state no condition."""
LONGEST = 180
"""Characters of a step's text that a thought repeats."""


@dataclass(frozen=True, kw_only=True)
class Act:
    """A step that calls a tool, and the answer."""

    number: int
    """Of the step, from 1."""
    text: str
    """The step, as SKILL.md words it: its entry or title."""
    content: str
    """The same, or the paragraph under the title."""
    tool: ToolSchema
    arguments: dict[str, Any]
    result: str
    think: str = ""
    """Hand-written thought; empty where none is."""
    notes: tuple[SkillStep, ...] = ()
    """Steps before it that no tool is called for."""
    origin: str = ""
    """A thought that says which earlier answer a value comes from."""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """A procedure carried out on one request."""

    skill: Skill
    total: int
    """Steps of the procedure, those without a tool included."""
    request: str
    template: str
    """Of the request; rows of one template stay on one side."""
    spanish: bool
    """Whether the model thinks and speaks Spanish."""
    user_spanish: bool
    acts: tuple[Act, ...]
    closing: tuple[SkillStep, ...]
    """The steps after the last call."""
    report: str
    think: str = ""
    """Hand-written thought before the report."""


def drawn(sources: src.Sources, skill: Skill, rng: random.Random, split: str) -> Trajectory:
    """One trajectory with values of the split; Undrawable with the reason where none can be made."""
    procedure = sources.procedures[skill.name]
    scenario = next((one for other, one in sources.scenarios if other.name == skill.name), None)
    if scenario is not None:
        return _written(sources, skill, procedure, scenario, rng, split)
    if not any(step.tools for step in procedure.steps):
        raise Undrawable(
            "no numbered steps" if not procedure.steps else "no step names a tool that the servers have"
        )
    return _made(sources, skill, procedure, rng, split)


def played(acts: Sequence[Act], report: str) -> list[Message]:
    """The bare turns of some acts, as rules see them."""
    return [*(turn for act in acts for turn in taken(act, "")), chat.say(report, think="")]


def followed(trajectory: Trajectory) -> list[Message]:
    """The turns that answer the request: act `n` and its result at 2n and 2n + 1, the report last."""
    turns = [turn for act in trajectory.acts for turn in taken(act, thought(act, trajectory))]
    return [*turns, chat.say(trajectory.report, think=last_thought(trajectory))]


def taken(act: Act, think: str) -> list[Message]:
    """The turn of an act, and its result."""
    return [chat.call(act.tool.shown_name, act.arguments, think=think), chat.result(act.result)]


def step_text(text: str) -> str:
    """A step in one line, without its number, cut to what a thought can carry."""
    line = STEP_MARK.sub("", " ".join(text.split()))
    line = line[0].upper() + line[1:] if line else " ".join(text.split())
    return line if len(line) <= LONGEST else line[:LONGEST].rsplit(" ", 1)[0] + "…"


# ---- from a scenario -----------------------------------------------------------------------------


def _written(
    sources: src.Sources,
    skill: Skill,
    procedure: Procedure,
    scenario: Scenario,
    rng: random.Random,
    split: str,
) -> Trajectory:
    wordings = scenario.requests[split]
    # Two thirds in Spanish, as everywhere, where the wordings are in both languages.
    tongue = rng.choice(TONGUES)
    own = [one for one in wordings if _is_spanish(one) == (tongue == "es")] or list(wordings)
    wording_drawn = rng.choice(own)
    drawn_values = values.draw_distinct(scenario.values, rng, split)
    texts = {slot: results.plain(value) for slot, value in drawn_values.items()}
    acts, waiting = [], list(procedure.steps)
    for number, step in enumerate(scenario.steps, 1):
        place = next((n for n, one in enumerate(waiting) if step.call in one.tools), None)
        notes = tuple(one for one in waiting[:place] if not one.tools) if place is not None else ()
        own_step = waiting[place] if place is not None else None
        waiting = waiting[place + 1 :] if place is not None else waiting
        acts.append(Act(
            number=own_step.number if own_step else number,
            text=own_step.text if own_step else step.think,
            content=own_step.text if own_step else step.think,
            tool=sources.tools[step.call],
            arguments=fill(step.args, drawn_values),
            result=fill(step.result, texts),
            think=fill(step.think, texts),
            notes=notes,
        ))  # fmt: skip
    return Trajectory(
        skill=skill,
        total=len(procedure.steps) or len(acts) + 1,
        request=src.request_text(one_of(wording_drawn, rng), drawn_values, rng, split),
        template=wording_drawn,
        spanish=_is_spanish(scenario.report + scenario.think),
        user_spanish=_is_spanish(wording_drawn),
        acts=tuple(acts),
        closing=tuple(one for one in waiting if not one.tools),
        report=fill(scenario.report, texts).rstrip("\n"),
        think=fill(scenario.think, texts),
    )


def _is_spanish(wording_text: str) -> bool:
    return phrases.is_spanish(re.sub(r"\{\w+\}", "", wording_text))


# ---- from schemas --------------------------------------------------------------------------------


def _made(
    sources: src.Sources, skill: Skill, procedure: Procedure, rng: random.Random, split: str
) -> Trajectory:
    tongue = rng.choice(TONGUES)
    spanish = tongue == "es"
    ledger = _Ledger(skill.body, rng, split, tongue)
    acts: list[Act] = []
    notes: list[SkillStep] = []
    for step in procedure.steps:
        tools = step.tools[:1] if OR.search(step.text) else step.tools
        if not tools or _is_conditional(step):
            notes.append(step)
            continue
        content = _content(skill, procedure, step)
        for key in tools:
            tool = sources.tools[key]
            call, origin = ledger.call(tool, content, step.number)
            acts.append(Act(number=step.number, text=step.text, content=content, tool=tool, arguments=call,
                            result=ledger.answer(tool, call), notes=tuple(notes), origin=origin))  # fmt: skip
            notes = []
    if not acts:
        raise Undrawable("every step with a tool stands under a condition")
    request, template = long_tasks.request(skill, list(ledger.asked.values()), rng, split, tongue)
    facts = [(act.tool, act.arguments, act.result) for act in acts]
    telling = {name: value for act in acts for name, value in act.arguments.items()}
    report = (
        long_tasks.filled(procedure.template, telling, facts, spanish)
        if procedure.template
        else long_tasks.stepwise(facts, spanish)
    )
    return Trajectory(skill=skill, total=len(procedure.steps), request=request, template=template,
                      spanish=spanish, user_spanish=spanish, acts=tuple(acts), closing=tuple(notes),
                      report=report)  # fmt: skip


def _content(skill: Skill, procedure: Procedure, step: SkillStep) -> str:
    """A step's text; of a title, the line under it."""
    lines = skill.body.split("\n")
    start = step.line - skill.body_line
    if not lines[start].lstrip().startswith("#"):
        return step.text
    stop = next((one.line - skill.body_line for one in procedure.steps if one.line > step.line), len(lines))
    under = next((line.strip() for line in lines[start + 1 : stop] if line.strip()), "")
    return under if under and not under.startswith(("#", "`", "|")) else step.text


def _is_conditional(step: SkillStep) -> bool:
    """Whether a step is to be taken in some case only: `Si falla, llama a ...`, `... si procede`."""
    condition = IF.search(step.text)
    return condition is not None and WHETHER.search(step.text[: condition.start()]) is None


@dataclass(frozen=True)
class _Told:
    """A thing that an answer tells of, and the words by which the user means it; empty where it is clear."""

    thing: Noun
    fields: dict[str, Any]
    called: str
    tool: ToolSchema


@dataclass
class _Ledger:
    """What is settled while the calls of a procedure are made in their order."""

    body: str
    """The skill's text: arguments that it names in backticks are given."""
    rng: random.Random
    split: str
    tongue: str
    known: dict[str, Any] = field(default_factory=dict)
    """Values in use, by the argument's name."""
    asked: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """What the user has to say: (argument or what it is called, value)."""
    told: list[_Told] = field(default_factory=list)

    def call(self, tool: ToolSchema, text: str, number: int) -> tuple[dict[str, Any], str]:
        """The arguments of a step's call, and the thought that says where one of them comes from."""
        chooser = methods.selector(tool.properties)
        method = _method(tool, chooser, text) if chooser else None
        given: dict[str, Any] = {chooser: method} if chooser else {}
        origin = ""
        for name, schema in tool.properties.items():
            plain, needed, named = snake(name), name in tool.required, f"`{name}`" in self.body
            source = self._source(tool, name) if needed or (named and IDENTIFIER.search(plain)) else None
            if name == chooser:
                continue
            if source:
                given[name] = source.fields[results.id_field(name, source.thing)]
                if given[name] != self.known.get(plain):
                    origin = self._taken(name, given[name], source)
            elif (
                plain in self.known
                and _is_shared(tool, name, method)
                and _is_fit(tool, name, self.known[plain])
            ):
                given[name] = self.known[plain]
            elif not needed and (named or _is_content(tool, name, method)):
                given[name] = args.draw(schema, self.rng, self.split, name=name, root=tool.parameters)
                self._ask(name, given[name], number)
        call = args.draw_call(tool, self.rng, self.split, given=given, sparse=True)
        for name, value in call.items():
            if name not in given:
                self._ask(name, value, number)
            self.known.setdefault(snake(name), value)
        return call, origin

    def answer(self, tool: ToolSchema, call: dict[str, Any]) -> str:
        """What the tool answers; of a list, the user means one entry."""
        verb, words = verb_and_words(tool, call)
        thing = head_of(words) or RESULT
        if results.is_list(verb, words):
            items = [results.item(tool, thing, self.rng, self.split) for _ in range(LISTED)]
            meant = self.rng.choice(items)
            title = results.title_field(thing, next(iter(meant))) or ""
            if title in meant:
                called = wording.called(str(meant[title]), title in ("title", "summary"), self.tongue)
                self.told.append(_Told(thing, meant, called, tool))
            return results.result_of(tool, call, self.rng, self.split, items=items)
        # What was told of the very thing before is told again.
        given = set(map(str, call.values()))
        same = (one.fields for one in self.told
                if one.thing == thing and given & set(map(str, one.fields.values())))  # fmt: skip
        text = results.result_of(tool, call, self.rng, self.split, known=next(same, None))
        if text.startswith("{"):
            self.told.append(_Told(thing, json.loads(text), "", tool))
        return text

    def _source(self, tool: ToolSchema, name: str) -> _Told | None:
        """The latest earlier answer that says what an argument asks for."""
        for one in reversed(self.told):
            value = one.fields.get(results.id_field(name, one.thing))
            if identifies(name, one.thing) and _is_fit(tool, name, value):
                return one
        return None

    def _taken(self, name: str, value: Any, source: _Told) -> str:
        """The thought that takes a value from an answer; the user says which entry of a list is meant."""
        spanish, thing = self.tongue == "es", source.thing
        if source.called:
            label = f"{'la' if thing.feminine else 'el'} {thing.es}" if spanish else f"the {thing.en}"
            self.asked[source.called] = (label, source.called)
        return said("origin", spanish, name=name, value=value, tool=source.tool.name)

    def _ask(self, name: str, value: Any, number: int) -> None:
        """Have the user say a value; of two with one name, the later says for which step."""
        spanish = self.tongue == "es"
        if self.asked.setdefault(snake(name), (name, value))[1] != value:
            label = f"{wording.name_of(name, spanish)} {'del paso' if spanish else 'of step'} {number}"
            self.asked[f"{snake(name)} {number}"] = (label, value)


def _is_content(tool: ToolSchema, name: str, method: str | None) -> bool:
    """Whether an argument gives a write something to write although the schema does not require it."""
    if wording.action_kind(tool) != "write" or not CONTENT.search(snake(name)):
        return False
    return method is None or methods.wants(name, method, tool.properties) is not False


def _is_shared(tool: ToolSchema, name: str, method: str | None) -> bool:
    """Whether an argument means the same in every call: the repository, the page; not what is written."""
    plain = snake(name)
    if CONTENT.search(plain) or (method and methods.wants(name, method, tool.properties) is False):
        return False
    return name in tool.required or plain in PLACES or IDENTIFIER.search(plain) is not None


def _is_fit(tool: ToolSchema, name: str, value: Any) -> bool:
    """Whether the schema takes a value, if there is one, for one argument."""
    if value is None:
        return False
    fault = tool.fault_in({name: value})
    return fault is None or "required" in fault


def _method(tool: ToolSchema, chooser: str, text: str) -> str:
    """The method of a consolidated tool whose words the step has; the first where none has."""
    plain = text.lower()

    def score(method: str) -> int:
        verb, words = verb_and_words(tool, {chooser: method})
        thing = head_of(words)
        nouns = {thing.es, thing.plural, thing.en} if thing else set()
        is_said = any(word[:5] in plain for word in long_tasks.verbs(verb))
        return 2 * is_said + any(noun in plain for noun in nouns)

    return max(tool.properties[chooser]["enum"], key=score)


def thought(act: Act, trajectory: Trajectory) -> str:
    """What is thought before an act: which step it is, and the steps that needed no tool."""
    spanish, total = trajectory.spanish, trajectory.total
    lines = [noted(step, trajectory) for step in act.notes]
    own = act.think or said("step", spanish, n=act.number, total=total, text=step_text(act.content))
    return " ".join(part for part in [*lines, own, act.origin] if part)


def noted(step: SkillStep, trajectory: Trajectory) -> str:
    """What is thought of a step that no tool is called for."""
    kind = "condition" if step.tools else "note"
    return said(kind, trajectory.spanish, n=step.number, total=trajectory.total, text=step_text(step.text))


def last_thought(trajectory: Trajectory) -> str:
    """What is thought before the report."""
    if trajectory.think:
        return trajectory.think
    lines = [noted(step, trajectory) for step in trajectory.closing]
    return " ".join(lines) or replies.closing(trajectory.spanish, random.Random(trajectory.request))
