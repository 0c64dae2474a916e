"""The wall between the sides: what leaks is found and named, what everybody may use is not."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from core import chat
from core.chat import Row
from dataset_builder.documents.skills import Skill
from dataset_builder.verifying import split
from tests.rows import LOG, asked, log, row

TRAIN = row([*asked(), chat.result("abc123"), chat.say("Un commit.", think="t")])
HELD_OUT = row(
    asked("Dame las últimas 300 confirmaciones que guarda «api/dema»", repo_path="api/dema", max_count=300),
    id="mcp-eval-00000",
    split="eval",
    group="h",
)
SKILL = Skill(
    name="cierre-de-mes",
    description="Cierra el mes contable de una sede. Úsala cuando pidan el cierre.",
    body="# Cierre\n\n1. **OBLIGATORIO** revisar los apuntes sin conciliar antes de nada.\n- Avisa.",
    path=Path("skills/cierre-de-mes/SKILL.md"),
)
OTHER = replace(SKILL, name="otra", description="Otra cosa del todo distinta de esa.", body=SKILL.body)


def leaks(held_out: Row) -> set[str]:
    """The kinds of leak between TRAIN and a row."""
    return {leak.split(" on both sides")[0] for leak in split.leaks([TRAIN], [held_out])}


def test_rows_that_share_nothing_do_not_leak():
    assert leaks(HELD_OUT) == set()


@pytest.mark.parametrize(
    ("planted", "kinds"),
    [
        (TRAIN, {"row", "group", "request", "template", "argument value"}),
        (replace(HELD_OUT, group=TRAIN.group), {"group"}),
        (replace(HELD_OUT, messages=[TRAIN.messages[0], HELD_OUT.messages[1]]), {"request"}),
        (replace(HELD_OUT, messages=[HELD_OUT.messages[0], TRAIN.messages[1]]), {"argument value"}),
        (
            replace(HELD_OUT, messages=asked("Enséñame los últimos 12 commits de «x»", repo_path="x")),
            {"template"},
        ),
        (replace(TRAIN, bucket="replay", group="h"), {"row"}),
    ],
    ids=["row", "group", "request", "argument value", "template", "replay"],
)
def test_a_planted_leak_is_found_by_name(planted, kinds):
    assert leaks(planted) == kinds


@pytest.mark.parametrize(
    ("reply", "kinds"), [("Sí, adelante", set()), ("No, antes mira bien el estado", {"request"})]
)
def test_a_later_request_leaks_where_it_says_something(reply, kinds):
    more = [chat.say("¿Sigo?", think="t"), chat.user(reply), chat.say("Hecho.", think="t")]
    train, held_out = (replace(one, messages=[*one.messages, *more]) for one in (TRAIN, HELD_OUT))
    assert {leak.split(" on both sides")[0] for leak in split.leaks([train], [held_out])} == kinds


@pytest.mark.parametrize("name", ["x", "nested", "in a list"])
def test_a_value_leaks_wherever_it_stands_in_the_arguments(name):
    value = {"x": "web/rubo", "nested": {"a": {"b": "web/rubo"}}, "in a list": ["web/rubo"]}[name]
    assert "argument value" in leaks(replace(HELD_OUT, messages=[chat.user("y"), log(repo_path=value)]))


def test_what_a_schema_spells_out_and_small_numbers_are_free():
    assert LOG["function"]["parameters"]["properties"]["order"]["enum"] == ["newest", "oldest"]
    call = chat.call(
        "mcp__notes__save", {"order": "newest", "pinned": True, "n": 12, "m": -1.5, "k": 300}, think="t"
    )
    assert list(split.free_values(row([chat.user("x"), call]))) == ["300"]


@pytest.mark.parametrize(
    "text",
    [
        "Es obligatorio revisar los apuntes  sin conciliar antes de nada.",
        "Cierra el mes contable de una sede.",
        "Sigue cierre-de-mes ahora",
        "# Skill: cierre-de-mes",
    ],
)
@pytest.mark.parametrize("place", ["system", "user", "thought", "argument", "tool"])
def test_a_held_out_skill_in_training_is_found_anywhere(text, place):
    messages = {
        "system": [*chat.system(text), *asked()],
        "user": asked(text),
        "thought": [chat.user("x"), chat.say("y", think=text)],
        "argument": asked(repo_path=text),
        "tool": asked(),
    }[place]
    tools = [chat.tool("mcp__a__b", text, {})] if place == "tool" else []
    found = split.held_out_skills_in([row(messages, tools=tools)], [SKILL, OTHER], ["cierre-de-mes"])
    assert len(found) == (0 if "obligatorio" in text else 1), "what another skill says too is no leak"
    found = split.held_out_skills_in([row(messages, tools=tools)], [SKILL], ["cierre-de-mes"])
    assert len(found) == 1
    assert "cierre-de-mes" in found[0]
    assert "mcp-train-00000" in found[0]


def test_skills_that_are_not_held_out_may_be_taught():
    taught = row([*chat.system(f"# Skill: {SKILL.name}\n{SKILL.body}"), *asked()], skill=SKILL.name)
    assert split.held_out_skills_in([taught], [SKILL, OTHER], ["otra"]) == []
    assert split.held_out_skills_in([TRAIN], [SKILL, OTHER], ["cierre-de-mes"]) == []


def test_the_order_depends_on_the_seed_alone():
    rows = [row(id=str(i)) for i in range(30)]
    assert split.shuffled(rows, 1) == split.shuffled(rows, 1) != split.shuffled(rows, 2)
    assert sorted(split.shuffled(rows, 1), key=lambda one: int(one.id)) == rows
    random.seed(7)
    assert split.shuffled(rows, 1) == split.shuffled(rows, 1)
