"""The held-out rows as cases: one turn or a whole rollout each, as their bucket is tried."""

import functools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from typing import Any

from core.chat import Message, Row
from eval import rollout
from eval.agent import Ask
from eval.cases import Case, Found
from eval.gates import formality, near_miss, skills, tool_calls
from eval.judging import Reader
from eval.outcomes import FORMAL, GENERAL, ROWS, SKILLS

Judge = Callable[[list[Message]], Awaitable[Found]]
THINKING_OFF_ROWS = 50
"""Rows with a call due that are tried a second time with thinking off."""


def of(rows: Iterable[Row], reader: Reader | None = None) -> list[Case]:
    """The cases of `rows`, in their order; UserError on rules that are missing or broken.

    `reader` decides in the skills' rollouts the rules that no program can.
    """
    made, off = [], 0
    for row in rows:
        if row.bucket in ROWS[GENERAL]:
            continue  # only its loss is measured
        if near_miss.is_near_miss(row):
            made.append(_rollout("near_miss", row, _judge(functools.partial(near_miss.score, row))))
        elif row.bucket in ROWS[SKILLS]:
            made.append(_rollout("skills", row, _rules(row, reader)))
        elif row.bucket in ROWS[FORMAL]:
            made.append(
                _turn(
                    "formality",
                    row,
                    row.messages[:-1],
                    _judge(lambda trace: formality.score(trace[0]["content"])),
                )
            )
        else:
            judge = _judge(lambda trace, row=row: tool_calls.score(row, trace[0]))
            made.append(_turn("tool_calls", row, tool_calls.history(row), judge))
            if row.bucket in ROWS["mcp_calls"] and off < THINKING_OFF_ROWS:
                off += 1
                made.append(_turn("thinking_off", row, tool_calls.history(row), judge, thinking=False))
    return made


def _turn(kind: str, row: Row, opening: list[Message], judge: Judge, *, thinking: bool = True) -> Case:
    async def act(ask: Ask) -> list[Message]:
        return [await ask(opening, row.tools)]

    return Case(
        kind=kind, id=row.id, bucket=row.bucket, skill=row.skill, opening=opening, thinking=thinking,
        act=act, judge=judge,
    )  # fmt: skip


def _rollout(kind: str, row: Row, judge: Judge) -> Case:
    return Case(
        kind=kind, id=row.id, bucket=row.bucket, skill=row.skill,
        opening=row.messages[: rollout.start(row)], act=functools.partial(rollout.run, row), judge=judge,
    )  # fmt: skip


def _rules(row: Row, reader: Reader | None) -> Judge:
    own, request = skills.rules_of(row), row.messages[rollout.start(row) - 1]["content"]

    async def judge(trace: list[Message]) -> Found:
        by_judge = await reader.findings(row, own, trace, request) if reader else None
        return asdict(skills.score(own, trace, request, by_judge))

    return judge


def _judge(score: Callable[[list[Message]], Any]) -> Judge:
    async def judge(trace: list[Message]) -> Found:
        return asdict(score(trace))

    return judge
