"""Tasks done right, each in its own way: what the rules of their skill must let pass."""

import copy
import functools
import random
import re

from core import chat
from core.chat import Message
from dataset_builder.buckets import adherence
from tests import long_tasks
from tests.demonstrations import gold, request, rows
from tests.rule_laws import Turn, entries, names, read_in, tool_of

SPLITS = ("train", "dev", "eval")
TASKS = ("followed", "checklist")
READS = ("git_status", "git_log", "git_show", "get_current_time", "jira_get_issue", "search_pages")
"""Steps that a careful model may repeat, where its skill does not count them."""
ELSEWHERE = "mcp__notes__find"
"""No skill speaks of it."""
SAID = ("Voy paso a paso.", "Sigo con el siguiente paso.", "Hecho esto, continúo.", "Un momento.")
SNIPPET = "Así queda:\n\n```sh\n# lista los cambios\ngit status  # sin ellos no se sigue\n```"


Task = tuple[str, list[Message], str]
"""Skill, trace, request."""


@functools.cache
def done() -> list[Task]:
    """Demonstrations of the example skills, and long tasks of them and of two whose rules are drafted."""
    rng = random.Random("mutations")
    long = adherence.rows(long_tasks.sources(), rng, "train", 56)
    own = [row for split in SPLITS for row in rows(split, 40)]
    whole = [*own, *(row for row in long if row.meta["kind"] in TASKS)]
    return [(str(row.skill), gold(row), request(row)) for row in whole]


def turns(trace: list[Message]) -> list[Turn]:
    """The trace cut before every message that is no tool's."""
    found: list[Turn] = []
    for message in copy.deepcopy(trace):
        if message["role"] == "tool":
            found[-1].append(message)
        else:
            found.append([message])
    return found


def flat(parts: list[Turn]) -> list[Message]:
    return [message for turn in parts for message in turn]


def look(rng: random.Random, *, fails: bool) -> Turn:
    """A look at something else."""
    text = "Error: not found" if fails else f"{rng.randint(1, 99)} notas"
    return [
        chat.call(ELSEWHERE, {"text": rng.choice(SAID)}, think="Miro las notas."),
        chat.result(text),
    ]


def talkative(skill: str, parts: list[Turn], rng: random.Random) -> None:
    for turn in parts[:-1]:
        turn[0]["content"] = rng.choice(SAID)
        turn[0]["reasoning_content"] = rng.choice(("", "## Plan\n1. Mirar.\n2. Hacer."))


def curious(skill: str, parts: list[Turn], rng: random.Random) -> None:
    """Looks elsewhere, which may fail where the skill does not make an error the end."""
    stops = any(entry.get("since", {}).get("result") for entry in entries(skill))
    for _ in range(rng.randint(1, 3)):
        parts.insert(rng.randrange(len(parts)), look(rng, fails=not stops and rng.random() < 0.5))


def at_once(skill: str, parts: list[Turn], rng: random.Random) -> None:
    """Looks elsewhere in the turn of a step."""
    turn, other = rng.choice([turn for turn in parts if tool_of(turn)]), look(rng, fails=False)
    place = rng.randint(0, 1)
    turn[0]["tool_calls"].insert(place, other[0]["tool_calls"][0])
    turn.insert(1 + place, other[1])


def twice(skill: str, parts: list[Turn], rng: random.Random) -> None:
    """Repeats a reading, at once or later."""
    counted = [entry["what"] for entry in entries(skill) if "max" in entry]
    places = [
        place
        for place, turn in enumerate(parts)
        if tool_of(turn).endswith(READS) and not any(names(what, tool_of(turn)) for what in counted)
    ]
    if places:
        place = rng.choice(places)
        parts.insert(rng.randrange(place + 1, len(parts)), copy.deepcopy(parts[place]))


def interrupted(skill: str, parts: list[Turn], rng: random.Random) -> None:
    parts.insert(rng.randrange(1, len(parts)), [chat.user("Vale, sigue.")])


def airy(skill: str, parts: list[Turn], rng: random.Random) -> None:
    """Blank lines around the headings of the report."""
    report = parts[-1][0]
    report["content"] = re.sub(r"^(## .+)\n", r"\n\1  \n\n", report["content"], flags=re.MULTILINE) + "\n"


def verbose(skill: str, parts: list[Turn], rng: random.Random) -> None:
    """Says more in a section that no rule reads to its end, with a comment in a block of code."""
    report = parts[-1][0]
    places = [match.start() for match in re.finditer(r"\n## |\Z", report["content"])][1:]
    for place in rng.sample(places, len(places)):
        longer = f"{report['content'][:place]}\n\n{SNIPPET}{report['content'][place:]}"
        if all(said in longer for said in read_in(skill, report["content"])):
            report["content"] = longer
            return


def failing(skill: str, parts: list[Turn], rng: random.Random) -> None:
    """A review in which a reading fails and which says so."""
    if skill == "revisar-cambios":
        turn = rng.choice([turn for turn in parts if "git_diff" in tool_of(turn)])
        turn[1]["content"] = "Error: permission denied"
        parts[-1][0]["content"] = parts[-1][0]["content"].replace("Apta", "Incompleta")


VARIATIONS = (talkative, curious, at_once, twice, interrupted, airy, verbose, failing)


@functools.cache
def varied() -> list[Task]:
    """300 tasks done right, each in its own way."""
    made = []
    for seed in range(300):
        rng = random.Random(seed)
        skill, trace, asked = done()[seed % len(done())]
        parts = turns(trace)
        for vary in rng.sample(VARIATIONS, rng.randint(1, 5)):
            vary(skill, parts, rng)
        made.append((skill, flat(parts), asked))
    return made
