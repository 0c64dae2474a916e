"""When to hand work to a subagent by Claude Code's `Task`, and when not; the prompt carries all its values.

Kinds: one agent fits, two jobs at once, a single call that needs no agent, work that no agent is for, a
subagent that fails, one that comes back with a part.
"""

import itertools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core import chat, phrases
from core.chat import Message, Row, Tool
from dataset_builder import sources as src
from dataset_builder.documents.agents import Agent
from dataset_builder.drawing import arguments as args
from dataset_builder.drawing import methods, texts, values
from dataset_builder.drawing.json_schema import Undrawable
from dataset_builder.talking import long_tasks, prompts, replies, results, talks, wording
from dataset_builder.talking.chains import Step
from dataset_builder.talking.long_tasks import phrase, said
from dataset_builder.talking.talks import Talk

NAME = "Task"
TRIES = 12
ERRORS = ("Error: the agent timed out", "Error: the agent stopped without an answer", "API Error: overloaded")
GIT = {"repo_path": "path", "revision": "sha", "target": "branch", "branch_name": "branch"}
"""Arguments of Git's server, whose names do not say what their values look like."""
SENTENCE = re.compile(r"(?<=[.!?])\s")
OPENING = re.compile(
    r"^(?:use (?:(?:this|the) (?:agent|subagent)|it)?|úsal[oa]|usa este (?:agente|subagente)"
    r"|expert[oa]? (?:in|en)|specialist (?:in|for)|especialista en)\s*"
    r"(?:proactively\s*)?(?:when(?:ever)? (?:you need to |you need |the user (?:asks|wants) (?:you )?to )?"
    r"|to |for |para |cuando (?:haya que |pidan |necesites )?)?",
    re.IGNORECASE,
)
"""What a description says before the work itself."""


@dataclass(frozen=True)
class _Job:
    """Work for an agent: what it is, in the description's words, and its values."""

    agent: Agent
    task: str
    told: dict[str, Any]
    """Value by what people call it."""
    found: str
    """What the work brings, as lines of text."""
    check: Step | None
    """A call by which one can look for oneself."""

    @property
    def spanish(self) -> bool:
        """Whether it is in Spanish, as the agent's description is."""
        return phrases.is_spanish(self.task)

    @property
    def request(self) -> str:
        """The work in a sentence, with its values."""
        shown = ", ".join(f"{name} {wording.shown(value)}" for name, value in self.told.items())
        return f"{self.task}: {shown}"

    @property
    def call(self) -> dict[str, Any]:
        """The arguments of `Task`: the prompt carries every value."""
        lines = "\n".join(f"- {name}: {results.plain(value)}" for name, value in self.told.items())
        first = results.plain(next(iter(self.told.values())))
        words = " ".join(self.task.split()[:3]).rstrip(",.;:")
        return {
            "description": f"{words}: {first}",
            "prompt": said("prompt", self.spanish, task=self.task, values=lines),
            "subagent_type": self.agent.name,
        }


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows over the kinds in turn; none where there is no agent, and none of a kind that nothing gives."""
    kinds, made, barren = itertools.cycle(KINDS), [], set()
    while sources.agents and len(made) < count and len(barren) < len(KINDS):
        kind = next(kinds)
        for _ in range(TRIES if kind not in barren else 0):
            try:
                talk = KINDS[kind](sources, rng, split)
            except Undrawable:
                continue
            if talk is not None:
                made.append(_row(sources, talk, len(made), split, rng))
                break
        else:
            barren.add(kind)
    return made


def task_tool(agents: Sequence[Agent]) -> Tool:
    """Claude Code's `Task`, whose description lists the agents with what each is for."""
    listed = "\n".join(
        f"- {agent.name}: {' '.join(agent.description.split())}"
        f" (Tools: {', '.join(agent.tools) if agent.tools else '*'})"
        for agent in agents
    )
    names = ", ".join(f"`{agent.name}`" for agent in agents)
    described = {
        "description": "A short name for the work, 3 to 5 words",
        "prompt": "All that the agent needs to know: it does not see this conversation",
        "subagent_type": f"Which agent does it: {names}",
    }
    return chat.tool(
        NAME,
        "Hands work of several steps to a subagent, which works by itself and comes back with one message."
        " Several calls in one turn run side by side. Do small things yourself.\n\nAgents:\n" + listed,
        {
            "type": "object",
            "properties": {name: {"type": "string", "description": said} for name, said in described.items()},
            "required": list(described),
        },
    )


def _row(sources: src.Sources, talk: Talk, number: int, split: str, rng: random.Random) -> Row:
    tools = [*talk.tools, task_tool(sources.agents)]
    rng.shuffle(tools)
    agent = next((one for one in sources.agents if one.name == talk.key), None)
    return src.row(
        "delegation", number, split, group=f"{talk.key}: {talk.kind}: {talk.template}",
        system=prompts.system(sources.servers, talk.tools, rng), tools=tools, messages=talk.turns,
        train_turns=talk.trained, source=str(agent.path if agent else sources.agents[0].path),
        meta={"kind": talk.kind},
    )  # fmt: skip


# ---- jobs ----------------------------------------------------------------------------------------


def _job(sources: src.Sources, rng: random.Random, split: str) -> _Job:
    """Work for one of the agents, its values drawn for one of its tools where those are known."""
    agent = rng.choice(sources.agents)
    task = _task(agent)
    spanish = phrases.is_spanish(task)
    keys = {tool.shown_name: key for key, tool in sources.tools.items()}
    known = [sources.tools[keys[name]] for name in agent.tools if name in keys]
    notes = [
        f"{values.draw('file', rng, split)}: {results.of_side(texts.title, rng, split)}" for _ in range(3)
    ]
    if not known:
        drawn = values.draw_distinct({"path": "path", "branch": "branch"}, rng, split)
        names = ("la ruta", "la rama") if spanish else ("the path", "the branch")
        return _Job(agent, task, dict(zip(names, drawn.values(), strict=True)), _listed(notes), None)
    tool = max(rng.sample(known, len(known)), key=lambda one: len(one.required))
    given = {name: values.draw(kind, rng, split) for name, kind in GIT.items() if name in tool.properties}
    call = args.draw_call(tool, rng, split, given=given, sparse=True)
    if not call:
        raise Undrawable(tool.shown_name)
    entries = replies.entries_of(results.result_of(tool, call, rng, split)) or []
    told = {wording.name_of(name, spanish): value for name, value in call.items()
            if name != methods.selector(tool.properties)}  # fmt: skip
    reader = rng.choice(known)
    shared = {name: call[name] for name in reader.properties if name in call}
    look = args.draw_call(reader, rng, split, given=shared, sparse=True)
    step = Step(reader, look, results.result_of(reader, look, rng, split))
    # What the look needs must have been said.
    check = step if all(value in call.values() for value in look.values()) else None
    return _Job(agent, task, told, _listed(entries[:5] if len(entries) > 1 else notes), check)


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _task(agent: Agent) -> str:
    """The work that an agent is for: the first sentence of its description."""
    first = SENTENCE.split(" ".join(agent.description.split()))[0].rstrip(".!")
    task = OPENING.sub("", first).strip() or first
    return task[0].upper() + task[1:]


def _asked(job: _Job, split: str, rng: random.Random) -> tuple[Message, str]:
    frame, number = phrase("task", job.spanish, split, rng)
    return chat.user(frame.format(task=job.request)), f"{split}:{number}"


def _delegated(calls: Sequence[dict[str, Any]], think: str) -> Message:
    functions = [{"name": NAME, "arguments": call} for call in calls]
    return chat.say("", think=think) | {
        "tool_calls": [{"type": "function", "function": function} for function in functions]
    }


def _why(job: _Job) -> str:
    return said("delegate", job.spanish, agent=f"`{job.agent.name}`", why=f"{_task(job.agent)}.")


def _summary(job: _Job) -> str:
    return said("summary", job.spanish, agent=f"`{job.agent.name}`", found=job.found)


def _shown(sources: src.Sources, keys: Sequence[str], rng: random.Random) -> list[Tool]:
    return src.show(sources, list(dict.fromkeys(keys)), rng)


def _about(talk_kind: str, job: _Job, template: str, turns: list[Message], tools: list[Tool]) -> Talk:
    return Talk(kind=talk_kind, key=job.agent.name, template=template, turns=turns, tools=tools)


# ---- kinds ---------------------------------------------------------------------------------------


def _fits(sources: src.Sources, rng: random.Random, split: str) -> Talk:
    """Long work that one agent is for."""
    job = _job(sources, rng, split)
    spanish = job.spanish
    asked, template = _asked(job, split, rng)
    turns = [
        asked,
        _delegated([job.call], _why(job)),
        chat.result(said("found", spanish, facts=job.found)),
        chat.say(_summary(job), think=said("came_back", spanish)),
    ]
    return _about("delegated", job, template, turns, _shown(sources, [], rng))


def _both(sources: src.Sources, rng: random.Random, split: str) -> Talk:
    """Two jobs that need nothing of each other."""
    one, two = (_job(sources, rng, split) for _ in range(2))
    spanish = one.spanish
    frame, number = phrase("both", spanish, split, rng)
    turns = [
        chat.user(frame.format(one=one.request, two=two.request)),
        _delegated([one.call, two.call], said("delegate_both", spanish)),
        *(chat.result(said("found", spanish, facts=job.found)) for job in (one, two)),
        chat.say("\n\n".join(_summary(job) for job in (one, two)), think=said("came_back_both", spanish)),
    ]
    template = f"{'es' if spanish else 'en'}:{split}:both {number}"
    return _about("parallel", one, template, turns, _shown(sources, [], rng))


def _fails(sources: src.Sources, rng: random.Random, split: str) -> Talk:
    """The subagent fails: once more with the same prompt; a second failure is told, no result invented."""
    job = _job(sources, rng, split)
    spanish = job.spanish
    asked, template = _asked(job, split, rng)
    error, call = rng.choice(ERRORS), job.call
    turns = [
        asked,
        _delegated([call], _why(job)),
        chat.result(error),
        _delegated([call], said("retry_task", spanish, error=error)),
    ]
    if rng.random() < 0.5:
        turns += [
            chat.result(said("found", spanish, facts=job.found)),
            chat.say(_summary(job), think=said("came_back", spanish)),
        ]
        return _about("failed_once", job, template, turns, _shown(sources, [], rng))
    told = said("gave_up", spanish, agent=f"`{job.agent.name}`", error=error)
    turns += [chat.result(error), chat.say(told, think=said("give_up", spanish))]
    return _about("failed_twice", job, template, turns, _shown(sources, [], rng))


def _partial(sources: src.Sources, rng: random.Random, split: str) -> Talk | None:
    """The subagent comes back with a part: what is missing is looked up, not taken for done."""
    job = _job(sources, rng, split)
    spanish = job.spanish
    if job.check is None:
        return None
    asked, template = _asked(job, split, rng)
    step = job.check
    more = long_tasks.brief((step.tool, step.arguments, step.result), spanish)
    told = said("verified", spanish, agent=f"`{job.agent.name}`", found=job.found, more=more)
    turns = [
        asked,
        _delegated([job.call], _why(job)),
        chat.result(said("partial", spanish, facts=job.found)),
        talks.calls([(step.tool, step.arguments)], said("partial_think", spanish, tool=step.tool.name)),
        chat.result(step.result),
        chat.say(told, think=replies.closing(spanish, rng)),
    ]
    key = f"{step.tool.server}.{step.tool.name}"
    return _about("partial", job, template, turns, _shown(sources, [key], rng))


def _alone(sources: src.Sources, rng: random.Random, split: str) -> Talk | None:
    """A single call that an agent could make as well: no agent is needed."""
    named = {name for agent in sources.agents for name in agent.tools}
    keys = [key for key, tool in sources.tools.items() if tool.shown_name in named]
    return _direct(sources, keys, "direct", rng, split)


def _no_agent(sources: src.Sources, rng: random.Random, split: str) -> Talk | None:
    """Work that no agent is for: a tool of a server that none of them has or speaks of."""
    if not all(agent.tools for agent in sources.agents):
        return None
    named = {name for agent in sources.agents for name in agent.tools}
    servers = {tool.server for tool in sources.tools.values() if tool.shown_name in named}
    spoken = " ".join(agent.description.lower() for agent in sources.agents)
    keys = [
        key
        for key, tool in sources.tools.items()
        if tool.server not in servers
        and wording.product_of(tool).lower() not in spoken
        and tool.server not in spoken
    ]
    return _direct(sources, keys, "no_agent_fits", rng, split)


def _direct(
    sources: src.Sources, keys: Sequence[str], kind: str, rng: random.Random, split: str
) -> Talk | None:
    readers = [key for key in keys if wording.action_kind(sources.tools[key]) in ("read", "list")]
    keys = readers if kind == "direct" else keys
    if not keys:
        return None
    key = rng.choice(list(keys))
    tool = sources.tools[key]
    call = args.draw_call(tool, rng, split, sparse=True)
    if not call.keys() - {methods.selector(tool.properties)} and tool.properties:
        raise Undrawable(f"{tool.shown_name}: nothing to ask for")
    shown = prompts.shown(sources, [key], rng)
    named = prompts.is_ambiguous(sources, key, call, shown)
    text, template = wording.request(tool, call, rng, split, named=named)
    spanish = wording.is_spanish(template)
    agents = ", ".join(agent.name for agent in sources.agents)
    think = said("alone", spanish) if kind == "direct" else said("no_agent", spanish, agents=agents)
    thought = f"{think} {replies.thought(tool, call, spanish, rng)}"
    step = Step(tool, call, results.result_of(tool, call, rng, split))
    turns = [chat.user(text), *talks.played([step], spanish, rng, [thought])]
    return Talk(kind=kind, key=key, template=template, turns=turns, tools=shown)


KINDS: dict[str, Callable[[src.Sources, random.Random, str], Talk | None]] = {
    "delegated": _fits,
    "direct": _alone,
    "parallel": _both,
    "no_agent_fits": _no_agent,
    "failed": _fails,
    "delegated again": _fits,
    "partial": _partial,
}
"""What rows exercise, in turn, by the function that plays it."""
