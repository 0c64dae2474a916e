"""The steps of verification: every planted fault is caught by the step that is there for it, by name."""

from dataclasses import replace

import pytest

from core import chat, rules
from core.chat import Row
from dataset_builder.rules_stage import load_rules
from dataset_builder.verifying import checks
from dataset_builder.verifying.checks import Drop
from dataset_builder.verifying.rulebook import Rulebook
from tests import demonstrations
from tests.rows import LOG, asked, log, row

BOOK = load_rules(demonstrations.SKILLS, demonstrations.ROOT / "none")


def dropped(*rows: Row, book: Rulebook | None = None, judge: checks.Judge | None = None) -> list[Drop]:
    return checks.keep(rows, sha256={}, rules_of=book or {}, judge=judge)[1]


def gold(skill: str) -> Row:
    return next(row for row in demonstrations.rows("train") if row.skill == skill)


def test_a_good_row_is_kept_with_a_verdict_of_every_step_and_its_tools_digests():
    (kept,), none = checks.keep([row()], sha256={"mcp__git__git_log": "abc"}, rules_of={})
    assert none == []
    assert replace(kept, meta={}) == row()
    passed, other = checks.PASSED, checks.NOT_APPLICABLE
    assert kept.meta["verdicts"] == {
        "format": passed,
        "schema": passed,
        "rules": other,
        "judge": other,
        "duplicates": passed,
        "render": other,
    }
    assert kept.meta["tool_sha256"] == {"mcp__git__git_log": "abc"}


@pytest.mark.parametrize(
    ("messages", "step", "reason"),
    [
        (asked(max_count="doce"), "schema", "mcp__git__git_log.max_count: 'doce' is not of type 'integer'"),
        (asked(order="any"), "schema", "mcp__git__git_log.order: 'any' is not one of ['newest', 'oldest']"),
        (asked(branch="main"), "schema", "'branch' was unexpected"),
        (asked(since=None), "schema", "mcp__git__git_log.since: null; leave the argument out"),
        ([chat.user("x"), chat.call("log", {}, think="t")], "schema", "log: no such tool"),
        ([chat.user("x"), chat.call("mcp__git__git_log", {}, think="t")], "schema", "'repo_path' is"),
        ([chat.user("x"), chat.result("ok"), log()], "format", "messages[1]: a result without a call"),
        ([*asked(), chat.result("ok"), chat.result("ok")], "format", "messages[3]: a result without a call"),
        ([log()], "format", "messages: no user turn"),
        ([chat.user("x"), {"role": "assistant", "content": None}], "format", "messages[1]: content must"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_caught_by_name(messages, step, reason):
    (drop,) = dropped(row(messages))
    assert (drop.row, drop.step) == ("mcp-train-00000", step)
    assert reason in drop.reason


def test_a_trained_turn_that_is_not_there_is_caught():
    assert [drop.step for drop in dropped(row(train_turns=[1]))] == ["format"]


def test_a_wrong_call_without_loss_is_let_through_and_its_correction_is_not():
    wrong = [chat.user("x"), log(max_count="doce"), chat.result("Input validation error"), log()]
    assert dropped(row(wrong, train_turns=[1])) == []
    assert [drop.step for drop in dropped(row(wrong))] == ["schema"]


@pytest.mark.parametrize("skill", [skill.name for skill in demonstrations.SKILLS])
def test_demonstrations_keep_the_rules_of_their_skill_and_say_which_apply(skill):
    (kept,), none = checks.keep([gold(skill)], sha256={}, rules_of=BOOK)
    assert none == []
    assert kept.meta["verdicts"]["rules"] == checks.PASSED
    judged = [rule for rule in BOOK[skill] if rule.kind != rules.WAIVED]
    assert kept.meta["rules"].keys() == {f"{skill}/{rule.id}" for rule in judged}
    assert rules.HOLDS in kept.meta["rules"].values()


@pytest.mark.parametrize("fault", ["dropped step", "swapped steps"])
@pytest.mark.parametrize("skill", [skill.name for skill in demonstrations.SKILLS])
def test_a_dropped_or_swapped_step_breaks_a_rule_of_the_skill(skill, fault):
    whole = gold(skill)
    start = demonstrations.opening(whole)
    first, second = whole.messages[start : start + 2], whole.messages[start + 2 : start + 4]
    steps = second if fault == "dropped step" else [*second, *first]
    broken = replace(whole, messages=[*whole.messages[:start], *steps, *whole.messages[start + 4 :]])
    (drop,) = dropped(broken, book=BOOK)
    assert drop.step == "rules"
    assert drop.reason.startswith(f"{skill}/")


def test_a_rule_may_be_broken_by_a_turn_without_loss_if_what_is_trained_mends_it():
    whole = gold("preparar-commit")
    start = demonstrations.opening(whole)
    hasty = whole.messages[start + 4]  # the commit, before anything was looked at
    slip = [hasty, chat.result("Error: nothing to commit")]
    trial = replace(whole, messages=[*whole.messages[:start], *slip, *whole.messages[start:]])
    learnt = list(range(1, len(chat.assistant_turns(trial.messages))))
    assert dropped(replace(trial, train_turns=learnt), book=BOOK) == []
    assert [drop.step for drop in dropped(trial, book=BOOK)] == ["rules"]


def test_the_rules_of_a_server_hold_for_its_rows(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text("- {id: few, kind: never, quote: q, what: {call: git_log, args: {max_count: 12}}}\n")
    book = {"git": rules.read(path)}
    assert dropped(row(server="notes"), book=book) == []
    (drop,) = dropped(row(server="git"), book=book)
    assert drop.step == "rules"
    assert drop.reason.startswith("git/few: ")


def test_the_judge_reads_what_passed_before_and_its_word_drops_a_row():
    read = []

    def judge(row: Row) -> str | None:
        read.append(row.id)
        return "curt" if row.id == "b" else None

    rows = [row(id="a"), row(asked("Otra cosa"), id="b"), row(asked(max_count="x"), id="c")]
    assert [(drop.row, drop.step) for drop in dropped(*rows, judge=judge)] == [
        ("b", "judge"),
        ("c", "schema"),
    ]
    assert read == ["a", "b"]


def test_a_near_duplicate_is_dropped_and_names_the_row_that_stays():
    again = row(asked("Por favor, enséñame los últimos 12 commits de «web/rubo»"), id="again")
    (drop,) = dropped(row(), again)
    assert (drop.row, drop.step, drop.twin) == ("again", "duplicates", "mcp-train-00000")


def test_tools_are_known_by_their_production_names():
    assert checks.shown(row(tools=[LOG])) == ["mcp__git__git_log"]
