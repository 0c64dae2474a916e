"""The whole pipeline: single faults are dropped and counted, a leak stops the build."""

from pathlib import Path

import pytest

from core import chat
from core.chat import Row
from core.errors import UserError
from dataset_builder.documents.skills import Skill
from dataset_builder.verifying.verification import Verified, verify
from tests.rows import asked, row

SKILL = Skill(
    name="cierre-de-mes", description="Cierra el mes contable.", body="# Cierre", path=Path("SKILL.md")
)
GOOD = row()
HELD_OUT = row(asked("Saca 300 commits", max_count=300, repo_path="x/y"), id="d", split="eval", group="h")


def verified(tokenizer, *train: Row, held_out: Row = HELD_OUT, max_length: int = 4096) -> Verified:
    return verify(
        train,
        [held_out],
        tokenizer=tokenizer,
        max_length=max_length,
        sha256={},
        rules_of={},
        skills=[SKILL],
        held_out_skills=[SKILL.name],
    )


def test_what_holds_is_kept_in_order_and_what_does_not_is_counted_by_step(tokenizer):
    other = row(asked("Quiero el historial de «api/dema»", repo_path="api/dema"), id="b", group="i")
    long = row([chat.user("Escribe"), chat.say("palabra " * 900, think="t")], id="c", group="j")
    wrong = row(asked(max_count="x"), id="e")
    twin = row(asked("Oye, enséñame los últimos 12 commits de «web/rubo»"), id="f")
    made = verified(tokenizer, GOOD, wrong, other, long, twin, max_length=900)
    assert [one.id for one in made.train] == [GOOD.id, "b"]
    assert [one.id for one in made.held_out] == ["d"]
    assert {(drop.row, drop.step) for drop in made.dropped} == {
        ("e", "schema"), ("f", "duplicates"), ("c", "render"),
    }  # fmt: skip
    for one in [*made.train, *made.held_out]:
        assert one.meta["verdicts"] == {
            "format": "passed", "schema": "passed", "rules": "not_applicable", "judge": "not_applicable",
            "duplicates": "passed", "render": "passed",
        }  # fmt: skip


def test_a_leak_stops_the_build(tokenizer):
    with pytest.raises(UserError, match=r"group on both sides: 'g'; reword it in its source"):
        verified(tokenizer, GOOD, held_out=row(HELD_OUT.messages, id="d", split="eval"))


def test_a_held_out_skill_in_training_stops_the_build(tokenizer):
    with pytest.raises(UserError, match="held-out skill cierre-de-mes is named in row mcp-train-00000"):
        verified(tokenizer, row([*chat.system("# Skill: cierre-de-mes"), *asked()]))
