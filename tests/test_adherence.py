"""Rows that follow a skill: what they hold, what they teach, and that a planted fault is caught by name."""

import functools
import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from core import chat, phrases, rules
from core.chat import Message, Row
from core.yaml_files import read_yaml
from dataset_builder.buckets import adherence
from dataset_builder.documents import markdown
from dataset_builder.documents.normative import HEADING
from dataset_builder.drawing import values
from dataset_builder.drawing.arguments import fixed
from dataset_builder.talking import long_tasks as long_tasks_texts
from dataset_builder.talking.results import plain
from dataset_builder.verifying import checks, rendering, split
from tests import long_tasks
from tests.five_servers import TOOLS
from tests.long_tasks import HELD_OUT, PUBLISH

SKILLS = ("convocar-reunion", "documentar-issue", "informe-historial", "preparar-commit", "revisar-cambios")
SKILLS += ("triage-issue",)
QUOTATION = re.compile(r"«([^»]+)»|\"([^\"]+)\"")
SEARCH_FIRST = "`search_pages` antes de `create_page`"
each_skill = pytest.mark.parametrize("skill", SKILLS)


@functools.cache
def made(side: str = "train", count: int = 72) -> list[Row]:
    return adherence.rows(long_tasks.sources(), random.Random(f"adherence {side}"), side, count)


def of_kind(kind: str, skill: str | None = None) -> list[Row]:
    return [row for row in made() if row.meta["kind"] == kind and skill in (None, row.skill)]


def broken(row: Row) -> str | None:
    return checks.broken_rule(row, {str(row.skill): long_tasks.sources().rules[str(row.skill)]})


def acts(row: Row) -> list[tuple[int, int]]:
    """From and to which message each turn with a call goes, its results included."""
    found = []
    for place in chat.assistant_turns(row.messages):
        if row.messages[place].get("tool_calls"):
            stop = place + 1
            while row.messages[stop]["role"] == "tool":
                stop += 1
            found.append((place, stop))
    return found


def without(row: Row, start: int, stop: int) -> Row:
    return replace(row, messages=[*row.messages[:start], *row.messages[stop:]])


def spoken(row: Row, *roles: str) -> str:
    return "\n".join(message["content"] for message in row.messages if message["role"] in roles)


def last(row: Row) -> Message:
    return row.messages[-1]


def test_every_kind_is_made_for_every_skill_that_can_have_it() -> None:
    found = {(row.skill, row.meta["kind"]) for row in made()}
    due = {(skill, kind) for skill in SKILLS for kind in adherence.KINDS_BY_NAME}
    # A skill without a template has no report to train by itself.
    assert due - found == {("triage-issue", "report")}
    assert len(made()) == 72
    assert adherence.unmade(long_tasks.sources()) == {}


def test_the_same_seed_gives_the_same_rows() -> None:
    again = adherence.rows(long_tasks.sources(), random.Random("adherence train"), "train", 20)
    assert again == made()[:20]


def test_every_row_passes_all_checks_and_says_which_rules_it_holds() -> None:
    source = long_tasks.sources()
    kept, dropped = checks.keep([*made(), *made("eval", 24)], sha256={}, rules_of=source.rules)
    assert dropped == []
    held = Counter(
        name for row in kept for name, verdict in row.meta["rules"].items() if verdict == rules.HOLDS
    )
    decided = {
        f"{skill}/{rule.id}"
        for skill in SKILLS
        for rule in source.rules[skill]
        if rule.kind in rules.DECIDED and rule.kind != "never" and rule.when is None
    }
    assert decided <= held.keys()


def test_rows_render_and_their_mask_is_true(tokenizer) -> None:
    first = {(row.meta["kind"], row.skill): row for row in made() if row.skill in (None, *SKILLS[:2])}
    kept, dropped = rendering.keep(list(first.values()), tokenizer, 200_000)
    assert dropped == []
    assert all(labelled for row in kept for _, labelled in row.meta["tokens"])


def test_sides_share_nothing() -> None:
    train, dev, evaluation = made(), made("dev", 24), made("eval", 24)
    assert split.leaks(train, evaluation) == []
    assert split.leaks(train, dev) == []
    assert split.leaks(dev, evaluation) == []


def test_a_held_out_skill_is_evaluated_and_never_trained() -> None:
    source = long_tasks.sources()
    assert split.held_out_skills_in(made(), source.skills, [HELD_OUT]) == []
    assert HELD_OUT in {row.skill for row in made("eval", 24)}


def test_a_third_of_the_requests_is_english() -> None:
    whole = made("train", 240)
    english = [row for row in whole if not phrases.is_spanish(spoken(row, "user").split(":")[0])]
    assert 0.2 < len(english) / len(whole) < 0.5


def test_no_phrase_of_the_user_stands_on_two_sides() -> None:
    book = read_yaml(long_tasks_texts.FILE)["user"]
    for what, tongues in book.items():
        sides = {
            side: {p.casefold() for one in tongues.values() for p in one[side]} for side in values.SPLITS
        }
        assert sum(map(len, sides.values())) == len(set().union(*sides.values())), what
        assert all(sides.values())


# ---- planted faults ------------------------------------------------------------------------------


@each_skill
def test_a_dropped_step_is_caught_by_the_rules_name(skill: str) -> None:
    for row in of_kind("followed", skill):
        for start, stop in acts(row):
            fault = broken(without(row, start, stop))
            assert fault is not None
            assert fault.startswith(f"{skill}/")


@each_skill
def test_swapped_steps_are_caught_by_the_rules_name(skill: str) -> None:
    for row in of_kind("followed", skill):
        caught = 0
        for (first, middle), (second, stop) in zip(acts(row), acts(row)[1:], strict=False):
            assert middle == second
            parts = row.messages
            swapped = [*parts[:first], *parts[second:stop], *parts[first:second], *parts[stop:]]
            caught += (broken(replace(row, messages=swapped)) or "").startswith(f"{skill}/")
        assert caught == len(acts(row)) - 1


@pytest.mark.parametrize("skill", [skill for skill in SKILLS if skill != "triage-issue"])
def test_a_dropped_section_of_the_report_is_caught_by_the_rules_name(skill: str) -> None:
    report_rules = {rule.id for rule in long_tasks.sources().rules[skill] if rule.kind == "final_sections"}
    for row in [*of_kind("followed", skill), *of_kind("report", skill)]:
        for heading in HEADING.findall(last(row)["content"]):
            lacking = last(row) | {"content": last(row)["content"].replace(heading, "", 1)}
            fault = broken(replace(row, messages=[*row.messages[:-1], lacking]))
            assert fault is not None
            assert fault.split(":")[0].removeprefix(f"{skill}/") in report_rules | {"informe-veraz"} | {
                rule.id for rule in long_tasks.sources().rules[skill] if rule.kind in ("must", "after")
            }


@each_skill
def test_a_correction_that_is_removed_is_caught(skill: str) -> None:
    for row in of_kind("self_correction", skill):
        turns = chat.assistant_turns(row.messages)
        (wrong,) = set(range(len(turns))) - set(row.train_turns or ())
        mending = turns[wrong + 1]
        stop = next(stop for start, stop in [*acts(row), (mending, mending + 1)] if start == mending)
        # The number of turns is one less: those after it move up.
        kept = [turn if turn < wrong else turn - 1 for turn in row.train_turns or () if turn != wrong + 1]
        fault = broken(replace(without(row, mending, stop), train_turns=[k for k in kept if k != wrong]))
        assert (fault or "").startswith(f"{skill}/")
        assert broken(row) is None


@each_skill
def test_a_correction_names_the_rule_that_it_broke(skill: str) -> None:
    names = {rule.id for rule in long_tasks.sources().rules[skill]}
    for row in of_kind("self_correction", skill):
        turns = chat.assistant_turns(row.messages)
        (wrong,) = set(range(len(turns))) - set(row.train_turns or ())
        thought = row.messages[turns[wrong + 1]]["reasoning_content"]
        named = re.search(r"(?:regla|rule) ([\w-]+)", thought)
        assert named
        assert named[1] in names


# ---- what the kinds teach ------------------------------------------------------------------------


def test_long_tasks_are_long_and_the_user_speaks_in_between() -> None:
    for row in of_kind("long"):
        assert adherence.LEAST_TURNS <= len(chat.assistant_turns(row.messages)) <= adherence.MOST_TURNS
        assert sum(message["role"] == "user" for message in row.messages) > 1


def test_a_checklist_has_every_step_and_is_ticked_off() -> None:
    for row in of_kind("checklist"):
        steps = long_tasks.sources().procedures[str(row.skill)].steps
        thoughts = [row.messages[place]["reasoning_content"] for place in chat.assistant_turns(row.messages)]
        assert all(f"- [ ] {step.number}. " in thoughts[0] for step in steps)
        assert all("- [x]" in thought for thought in thoughts[1:])


def test_pressure_is_met_with_a_reason_that_the_skill_gives() -> None:
    for row in of_kind("pressure"):
        skill = next(one for one in long_tasks.sources().skills if one.name == row.skill)
        said = "\n".join(
            message["reasoning_content"] + message["content"]
            for message in row.messages
            if message["role"] == "assistant"
        )
        body = " ".join(skill.body.split())
        quotes = [
            one.rstrip(".…") for pair in re.findall(r"«([^»]+)»|\"([^\"]+)\"", said) for one in pair if one
        ]
        assert any(len(quote) > 20 and quote in body for quote in quotes), said


def test_a_failure_is_told_and_nothing_is_made_of_it() -> None:
    for row in of_kind("blocked"):
        failed = next(i for i, message in enumerate(row.messages) if message["content"] in adherence.ERRORS)
        after = "\n".join(m["content"] for m in row.messages[failed + 1 :] if m["role"] == "assistant")
        assert row.messages[failed]["content"] in after
        if all(message["role"] != "user" for message in row.messages[failed:]):  # it went on, and says so
            assert "Incompleta" in last(row)["content"]
        else:
            assert row.messages[failed + 2]["role"] == "user"
            again = row.messages[failed + 3]["tool_calls"]
            assert again == row.messages[failed - 1]["tool_calls"]


def test_a_report_row_trains_the_report_alone_by_the_template_with_the_rows_own_values() -> None:
    for row in of_kind("report"):
        template = long_tasks.sources().procedures[str(row.skill)]
        turns = chat.assistant_turns(row.messages)
        assert row.train_turns == [len(turns) - 1]
        assert tuple(HEADING.findall(last(row)["content"])) == template.sections
        own = {plain(value) for value in split.argument_values(row)}
        assert any(value in last(row)["content"] for value in own)
        assert not re.search(r"<[^>\n]+>|\[[^\]\n]{2,}\]", last(row)["content"])


def test_every_value_of_a_call_was_told_before() -> None:
    source = long_tasks.sources()
    tools = {tool.shown_name: tool for tool in source.tools.values()}
    for row in made():
        told = ""
        for message in row.messages:
            for call in checks.calls(message) if row.meta["kind"] != "self_correction" else ():
                for value in split.argument_values(replace(row, messages=[message])):
                    assert plain(value) in told or fixed(tools[call.name], value), (row.id, call)
            told += message["content"] if message["role"] in ("user", "tool") else ""


def test_the_file_of_drafted_rules_is_named() -> None:
    for row in made():
        drafted = row.skill in ("documentar-issue", "triage-issue")
        assert ("rules_file" in row.meta) == drafted
        if drafted:
            assert rules.read(long_tasks.Path(row.meta["rules_file"]))


def test_a_plan_is_written_from_all_its_notes_and_only_in_training() -> None:
    plans = {str(plan.path): plan for plan in long_tasks.sources().plans}
    rows = [row for row in made() if row.meta["kind"] == "plan"]
    assert rows
    for row in rows:
        plan = plans[row.source]
        assert last(row)["content"] == plan.text
        for block in markdown.blocks(plan.text):
            if block.kind not in ("heading", "row"):
                assert block.text in spoken(row, "user")
    assert not [row for row in made("eval", 24) if row.meta["kind"] == "plan"]


def test_skills_over_any_tools_can_be_followed(tmp_path) -> None:
    rng, skills = random.Random(5), []
    for number in range(24):
        server = rng.choice(sorted({tool.server for tool in TOOLS.values()}))
        names = rng.sample(sorted(name for name in TOOLS if name.startswith(f"{server}.")), 4)
        steps = "\n".join(f"{n}. Haz lo que toca con `{name}`." for n, name in enumerate(names, 1))
        head = f"---\nname: tarea-{number}\ndescription: Hace lo de {server}.\n---\n\n# Tarea\n\n## Pasos\n\n"
        skills.append(long_tasks.written(tmp_path, f"{head}{steps}\n5. Cuéntalo.\n"))
    source = long_tasks.with_skills(
        replace(long_tasks.sources(), drafts=tmp_path / "rules", scenarios=[], plans=[]), skills
    )
    assert adherence.unmade(source) == {}
    rows = adherence.rows(source, random.Random(5), "train", 48)
    assert {row.skill for row in rows} == source.procedures.keys()
    assert checks.keep(rows, sha256={}, rules_of=source.rules)[1] == []


# ---- skills that give nothing --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (r"`\w+`", "la herramienta", "no step names a tool"),
        (r"^\d\. ", "- ", "no numbered steps"),
        (r"las páginas que hablen de ella", "si ya existe una página sobre ella", ""),
        (SEARCH_FIRST, "`search_pages` antes de `jira_get_issue`", "without before it"),
    ],
)  # fmt: skip
def test_a_skill_that_cannot_be_followed_gives_no_rows_and_says_why(tmp_path, old, new, reason) -> None:
    text = re.sub(old, new, PUBLISH, flags=re.MULTILINE)
    skill = long_tasks.written(tmp_path, text)
    source = long_tasks.with_skills(replace(long_tasks.sources(), drafts=tmp_path, plans=[]), [skill])
    if not reason:
        assert adherence.unmade(source) == {}
        return
    assert reason in adherence.unmade(source)["documentar-issue"]
    assert adherence.rows(source, random.Random(0), "train", 5) == []
