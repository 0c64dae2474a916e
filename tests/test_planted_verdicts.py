"""Planted models through the whole evaluation: each gets the verdict that it deserves."""

from collections.abc import Callable
from typing import Any

import pytest

from core import chat
from core.chat import Message, Row
from core.endpoint import Question
from core.profile import Gate
from core.verdicts import IMPROVES, NO_CHANGE, WORSE
from eval import measure, row_cases
from eval.outcomes import Outcomes, outcomes
from eval.verdict import judge
from tests.demonstrations import opening, rows
from tests.planted_models import CALL, Planted, hold, turns

GATES = {"tool_calls": Gate(threshold=0.8, delta=0.02), "skills": Gate(threshold=0.8, delta=0.02)}
MANY = rows("eval", 120)
WHOLE = [row for row in MANY if row.skill == "crear-rama"][:20]
WHOLE += [row for row in MANY if row.skill != "crear-rama"][:12]
SINGLE = turns(80)
TALK = chat.say("De nada.", think="Thanks.")
Model = Callable[[Question], Message]


def row_of(question: Question) -> Row:
    return next(
        row for row in [*WHOLE, *SINGLE] if row.messages[: opening(row)] == question.messages[: opening(row)]
    )


def good(question: Question) -> Message:
    """What each row's demonstration does."""
    return row_of(question).messages[len(question.messages)]


def half(question: Question) -> Message:
    """Calls rightly every second time, else talks; ends every task at once."""
    row = row_of(question)
    return good(question) if row in SINGLE and (row.bucket == "no_tool" or int(row.group) % 4 == 1) else TALK


def never_calls(question: Question) -> Message:
    return TALK


def always_calls(question: Question) -> Message:
    return CALL if row_of(question) in SINGLE else good(question)


def forgets_the_report(question: Question) -> Message:
    """Follows the skill `crear-rama` but for the report's last section."""
    message = good(question)
    if row_of(question).skill != "crear-rama" or message.get("tool_calls"):
        return message
    return message | {"content": message["content"].partition("## Estado")[0].rstrip()}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Model], Outcomes]:
    known: dict[str, Outcomes] = {}

    def of(model: Model) -> Outcomes:
        name = model.__name__
        if name not in known:
            found = hold(tmp_path_factory.mktemp(name), row_cases.of([*SINGLE, *WHOLE]), Planted(model))
            known[name] = outcomes([measure.as_sample(*one) for one in found], held_out=())
        return known[name]

    return of


def verdict(measured: Callable[[Model], Outcomes], before: Model, after: Model) -> dict[str, Any]:
    return judge(GATES, {"base": measured(before), "merged": measured(after)})


def gates(judged: dict[str, Any]) -> dict[str, str]:
    return {name: found["verdict"] for name, found in judged["gates"].items()}


def test_the_same_answers_are_no_change(measured) -> None:
    for model in (good, half):
        judged = verdict(measured, model, model)
        assert judged["verdict"] == NO_CHANGE
        assert gates(judged) == {"tool_calls": NO_CHANGE, "skills": NO_CHANGE}


def test_a_model_that_learnt_improves(measured) -> None:
    judged = verdict(measured, half, good)
    assert judged["verdict"] == IMPROVES
    assert gates(judged) == {"tool_calls": IMPROVES, "skills": IMPROVES}


def test_one_that_breaks_one_rule_is_worse_and_the_rule_is_named(measured) -> None:
    judged = verdict(measured, good, forgets_the_report)
    assert gates(judged) == {"tool_calls": NO_CHANGE, "skills": WORSE}
    moved = {rule for rule, found in judged["rules"].items() if found["moved"] != NO_CHANGE}
    assert "crear-rama/informe" in moved
    assert {rule.partition("/")[0] for rule in moved} == {"crear-rama"}


def test_one_that_never_calls_is_worse(measured) -> None:
    judged = verdict(measured, good, never_calls)
    assert judged["verdict"] == WORSE
    assert gates(judged) == {"tool_calls": WORSE, "skills": WORSE}


def test_one_that_calls_for_everything_is_worse_although_its_calls_improved(measured) -> None:
    judged = verdict(measured, half, always_calls)
    compared = judged["gates"]["tool_calls"]["compared"]
    assert compared["mcp_calls"]["verdict"] == IMPROVES
    assert compared["no_tool"]["verdict"] == WORSE
    assert gates(judged)["tool_calls"] == WORSE
    assert judged["verdict"] == WORSE
