"""A skill followed to the end: its steps in their order, the tools' answers, the report in its form.

Skills that the profile holds out appear on the evaluation side alone.
"""

import random

from core import chat
from core.chat import Row
from dataset_builder import sources as src
from dataset_builder.documents.skills import Scenario, Skill
from dataset_builder.drawing import values
from dataset_builder.talking.requests import fill, one_of


def rows(sources: src.Sources, rng: random.Random, split: str, count: int) -> list[Row]:
    """Rows over every skill and wording in turn."""
    pairs = [
        (skill, scenario, wording)
        for skill, scenario in sources.scenarios
        for wording in scenario.requests[split]
        if split != "train" or skill.name not in sources.held_out_skills
    ]
    rng.shuffle(pairs)
    made = []
    for number in range(count):
        skill, scenario, wording = pairs[number % len(pairs)]
        made.append(_row(sources, skill, scenario, one_of(wording, rng), rng, split, number))
    return made


def _row(
    sources: src.Sources,
    skill: Skill,
    scenario: Scenario,
    wording: str,
    rng: random.Random,
    split: str,
    number: int,
) -> Row:
    drawn = values.draw_distinct(scenario.values, rng, split)
    texts = {slot: ", ".join(v) if isinstance(v, list) else str(v) for slot, v in drawn.items()}
    messages = [chat.user(src.request_text(wording, drawn, rng, split))]
    for step in scenario.steps:
        messages.append(
            chat.call(
                sources.tools[step.call].shown_name, fill(step.args, drawn), think=fill(step.think, texts)
            )
        )
        messages.append(chat.result(fill(step.result, texts)))
    messages.append(chat.say(fill(scenario.report, texts), think=fill(scenario.think, texts)))
    keys = list(dict.fromkeys(step.call for step in scenario.steps))
    return src.row(
        "skills", number, split, group=f"{skill.name}: {wording}", system=prompt(skill, sources.skill_prompt),
        tools=src.show(sources, keys, rng), messages=messages, skill=skill.name, source=str(skill.path),
    )  # fmt: skip


def prompt(skill: Skill, what: str) -> str:
    """The system text of an active skill: its `body`, or its `description` alone."""
    return f"# Skill: {skill.name}\n{skill.body if what == 'body' else skill.description}"
