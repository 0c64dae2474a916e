"""Work on a design through Penpot's server: hand-written tasks, played by the rules that the server states.

The guide is read once, types are looked up, the result is looked at: each only where the dump asks for it.
"""

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core import chat
from core.chat import Message, Row
from core.rules import Rule
from dataset_builder import sources as src
from dataset_builder.drawing import arguments as args
from dataset_builder.drawing import values
from dataset_builder.schemas import ToolSchema
from dataset_builder.servers import server_rules
from dataset_builder.talking import penpot, prompts, replies, results, talks, wording
from dataset_builder.talking.chains import Step
from dataset_builder.talking.penpot import Task
from dataset_builder.talking.requests import fill
from dataset_builder.talking.talks import Talk
from dataset_builder.talking.temptations import because, pushed

KINDS = ("task", "temptation", "task", "second task", "temptation", "image")
THOUGHTS = {
    "es": {
        "guide": "Empiezo por leer la guía.",
        "type": "Miro primero qué ofrece `{}`.",
        "code": "Con esto escribo el código; devuelvo lo justo.",
        "look": "Compruebo cómo ha quedado.",
    },
    "en": {
        "guide": "I read the guide first.",
        "type": "I check first what `{}` offers.",
        "code": "Now the code; it returns just what is needed.",
        "look": "I look at how it came out.",
    },
}
UNPLUGGED = (
    "Tool execution failed: Error: No Penpot plugin instances are currently connected. "
    "Please ensure the plugin is running and connected."
)
"""What every call answers without the plugin, in a result that is not marked as an error."""
LOWER = 0.3
"""How often a user writes a colour in small letters although the server wants capitals."""
TEMPTING = ("overview-first", "overview-once", "types-first", "look-at-the-result", "no-log", "no-stringify")
"""Rules that users push against."""
CALLED = ("overview-first", "overview-once", "types-first", "look-at-the-result")
"""Those among them that are about which tools are called, not about the code."""
GUIDE = 4000
"""Characters of the server's guide that a conversation repeats; it may have seven times as many."""


@dataclass(frozen=True)
class _Server:
    """One Penpot server, as the dump has it."""

    name: str
    tools: Mapping[str, ToolSchema]
    rules: Mapping[str, Rule]
    """Those that it states, by id."""
    guide: str


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows over every task in turn; none where no Penpot server is among the dumped ones."""
    server = _server(sources)
    if server is None:
        return []
    tasks = _tasks(server)
    order = itertools.chain.from_iterable(rng.sample(tasks, len(tasks)) for _ in itertools.count())
    kinds, made = itertools.cycle(KINDS), []
    while len(made) < count:
        talk = _talk(next(kinds), sources, server, order, rng, split)
        made.append(talks.row("penpot", len(made), split, sources, talk, rng))
    return made


def unplugged(
    sources: src.Sources, rng: random.Random, split: str, tongue: str, think: str, said: str
) -> Talk | None:
    """A task that fails because the plugin is not open; `think` and `said` end it. None without Penpot."""
    server = _server(sources)
    if server is None:
        return None
    task = rng.choice(_tasks(server))
    turns, template = _play(server, task, rng, split, tongue, set(), tempted=False)
    code = next(i for i, turn in enumerate(turns) if "execute_code" in str(turn.get("tool_calls")))
    turns = [*turns[: code + 1], chat.result(UNPLUGGED), chat.say(said, think=think)]
    keys = [f"{server.name}.{name}" for name in server.tools]
    return Talk(
        kind="not connected", key=f"{server.name}.execute_code", template=f"{template} unplugged",
        turns=turns, tools=prompts.shown(sources, keys, rng),
    )  # fmt: skip


def _tasks(server: _Server) -> list[Task]:
    return [task for task in penpot.tasks() if task.only is None or task.only in server.rules]


def _server(sources: src.Sources) -> _Server | None:
    """The first server that is Penpot's, or None."""
    name = next(iter(penpot.servers(sources.tools.values())), None)
    if name is None:
        return None
    tools = {tool.name: tool for tool in sources.tools.values() if tool.server == name}
    info = sources.servers.get(name)
    text = (info.overview if info else "") or penpot.OVERVIEW
    guide = text if len(text) <= GUIDE else text[:GUIDE].rsplit("\n", 1)[0] + "\n[…]"
    stated = server_rules.deployed(tools.values(), sources.servers).get(name, [])
    return _Server(name, tools, {rule.id: rule for rule in stated}, guide)


def _talk(
    kind: str, sources: src.Sources, server: _Server, order: Iterator[Task], rng: random.Random, split: str
) -> Talk:
    tongue, seen = rng.choice(wording.TONGUES), set()
    if kind == "image" and "import_image" in server.tools:
        turns, template = _image(server, rng, split, tongue)
        about = "import_image"
    else:
        turns, template = _play(server, next(order), rng, split, tongue, seen, tempted=kind == "temptation")
        about = "execute_code"
    if kind == "second task":
        more, other = _play(server, next(order), rng, split, tongue, seen, tempted=rng.random() < 0.5)
        turns, template = turns + more, f"{template} + {other}"
    keys = [f"{server.name}.{name}" for name in server.tools]
    return Talk(
        kind=kind, key=f"{server.name}.{about}", template=template, turns=turns,
        tools=prompts.shown(sources, keys, rng),
    )  # fmt: skip


def _play(
    server: _Server,
    task: Task,
    rng: random.Random,
    split: str,
    tongue: str,
    seen: set[str],
    *,
    tempted: bool,
) -> tuple[list[Message], str]:
    """The turns of one task and the id of its request; what is read on the way is added to `seen`."""
    slots, spanish = penpot.drawn(task, rng, split), tongue == "es"
    wordings = task.wordings[tongue][split]
    number = rng.randrange(len(wordings))
    asked = dict(slots)
    if "colours-in-capitals" in server.rules and "color" in slots and rng.random() < LOWER:
        asked["color"] = slots["color"].lower()
    text, template = fill(wordings[number], asked), f"{tongue}:{split}:{task.id} {number}"
    push = None
    if tempted:
        fitting = [name for name in TEMPTING if name in server.rules and _is_fit(name, task, seen)]
        push = server.rules[rng.choice(fitting)] if fitting else None
    if push:
        text, template = pushed(text, push.id, template, rng, split)
    steps, thoughts = _steps(server, task, slots, rng, split, spanish, seen, push)
    turns: list[Message] = [chat.user(text)]
    for step, think in zip(steps, thoughts, strict=True):
        turns += [talks.calls([(step.tool, step.arguments)], think), chat.result(step.result)]
    said = _told(penpot.answer(task, slots), spanish)
    said += f"\n\n{because(push, spanish)}" if push else ""
    return [*turns, chat.say(said, think=replies.closing(spanish, rng))], template


def _is_fit(rule: str, task: Task, seen: set[str]) -> bool:
    """Whether a user can push against a rule here: what was read cannot be skipped any more."""
    if rule == "look-at-the-result":
        return task.changes
    if rule == "types-first":
        return not seen & set(task.types)
    return (rule == "overview-once") == ("high_level_overview" in seen) or not rule.startswith("overview")


def _steps(
    server: _Server,
    task: Task,
    slots: dict[str, Any],
    rng: random.Random,
    split: str,
    spanish: bool,
    seen: set[str],
    push: Rule | None,
) -> tuple[list[Step], list[str]]:
    """The calls that the server's rules ask for around the one that does the task, with their thoughts."""
    said = THOUGHTS["es" if spanish else "en"]
    steps: list[Step] = []
    thoughts: list[str] = []

    def add(name: str, arguments: dict[str, Any], result: str, rule: str, think: str) -> None:
        steps.append(Step(server.tools[name], arguments, result))
        stated = push if push and push.id == rule else server.rules.get(rule) if rng.random() < 0.5 else None
        thoughts.append(f"{because(stated, spanish)} {think}" if stated else think)

    if "overview-first" in server.rules and "high_level_overview" not in seen:
        seen.add("high_level_overview")
        add("high_level_overview", {}, server.guide, "overview-first", said["guide"])
    kind = next(name for name in task.types if values.side(name) == split)
    if "types-first" in server.rules and kind not in seen:
        seen.add(kind)
        add(
            "penpot_api_info",
            {"type": kind},
            penpot.api_info(kind, None),
            "types-first",
            said["type"].format(kind),
        )
    about_code = push.id if push and push.id not in CALLED else ""
    add(
        "execute_code", {"code": fill(task.code, slots)}, penpot.answer(task, slots), about_code, said["code"]
    )
    if "look-at-the-result" in server.rules and task.changes:
        call = {"shapeId": slots["id"]}
        image = results.result_of(server.tools["export_shape"], call, rng, split)
        add("export_shape", call, image, "look-at-the-result", said["look"])
    return steps, thoughts


def _image(server: _Server, rng: random.Random, split: str, tongue: str) -> tuple[list[Message], str]:
    """A picture brought into the design, after the guide where the server asks for it."""
    tool, spanish = server.tools["import_image"], tongue == "es"
    call = args.draw_call(tool, rng, split)
    text, template = wording.request(tool, call, rng, split, tongue)
    steps = [Step(tool, call, results.result_of(tool, call, rng, split))]
    thoughts = []
    if "overview-first" in server.rules:
        steps.insert(0, Step(server.tools["high_level_overview"], {}, server.guide))
        thoughts = [because(server.rules["overview-first"], spanish)]
    return [chat.user(text), *talks.played(steps, spanish, rng, thoughts)], f"{template} image"


def _told(answer: str, spanish: bool) -> str:
    """What the code gave back, as a sentence or a list."""
    result = json.loads(answer)["result"]
    lines = [
        ", ".join(f"{key}: {results.plain(value)}" for key, value in entry.items())
        for entry in (result if isinstance(result, list) else [result])
    ]
    if len(lines) == 1:
        return f"{'Hecho' if spanish else 'Done'}: {lines[0]}."
    return ("Hay esto:\n\n" if spanish else "There is this:\n\n") + "\n".join(f"- {line}" for line in lines)
