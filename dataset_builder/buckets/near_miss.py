"""Requests near a skill that must not start it: the one call that answers them, or words alone.

Those near a skill that the profile holds out appear on the evaluation side alone.
"""

import random

from core import chat
from core.chat import Row
from dataset_builder import sources as src
from dataset_builder.buckets import skills as skill_rows
from dataset_builder.documents.near_misses import NearMiss
from dataset_builder.drawing import values
from dataset_builder.talking.requests import ToolRequests, fill, one_of
from dataset_builder.verifying.rulebook import NOT_DUE

THOUGHT = "La skill no es para esto."


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows over the skills in turn, each with its cases in turn; a case whose tool REQUESTS has no words for
    gives none."""
    asked = {f"{request.server}.{request.tool}": request for request in sources.requests}
    cases: dict[str, list[NearMiss]] = {}
    for case in sources.near_misses:
        is_kept_back = split == "train" and case.skill.name in sources.held_out_skills
        if not is_kept_back and (not case.call or case.call in asked):
            cases.setdefault(case.skill.name, []).append(case)
    made = []
    for number in range(count if cases else 0):
        own = list(cases.values())[number % len(cases)]
        case = own[number // len(cases) % len(own)]
        made.append(_row(sources, case, asked.get(case.call), rng, split, number))
    return made


def _row(
    sources: src.Sources,
    case: NearMiss,
    asked: ToolRequests | None,
    rng: random.Random,
    split: str,
    number: int,
) -> Row:
    wording = one_of(rng.choice((asked or case).wordings[split]), rng)
    drawn = values.draw_distinct(case.values, rng, split)
    if asked:
        ask = src.ask(sources, asked, wording, rng, split)
        drawn |= ask.arguments
        messages = [
            chat.user(ask.text),
            src.call(ask, THOUGHT),
            chat.result(fill(case.result, drawn)),
            chat.say(fill(case.say, drawn), think="El resultado responde."),
        ]
    else:
        messages = [
            chat.user(src.request_text(wording, drawn, rng, split)),
            chat.say(fill(case.say, drawn), think=f"{THOUGHT} No tool fits."),
        ]
    skill = case.skill
    steps = [tool for step in sources.procedures[skill.name].steps for tool in step.tools]
    keys = list(dict.fromkeys([*steps, *filter(None, [case.call])]))
    return src.row(
        "near_miss", number, split, group=f"near {skill.name}: {wording}",
        system=skill_rows.prompt(skill, sources.skill_prompt), tools=src.show(sources, keys, rng),
        messages=messages, skill=skill.name, source=str(skill.path),
        meta={"kind": NOT_DUE} | src.rules_elsewhere(sources, skill),
    )  # fmt: skip
