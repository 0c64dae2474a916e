"""A conversation that is too long for one sample, cut into windows of whole turns.

Each window keeps the system's text, the first request and the latest one, and as many of the last turns as
fit; it trains the turns that no window before it has trained, so that every trained turn is learnt once.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from core.chat import Row, Tool
from core.render import RenderError, text, trained_messages

HISTORY = 0.5
"""Most of a window's room that goes to turns trained before while others still wait."""

Turn = list[int]
"""Positions of the messages of one turn: the assistant's or a user's, with the tools' results after it."""


def windows(row: Row, tokenizer: Any, max_length: int) -> list[Row]:
    """The row's windows, `<id>-w1` and on; RenderError where a turn does not fit beside the requests.

    Their `meta` has `window`: [number from 1, how many].
    """
    users = [i for i, message in enumerate(row.messages) if message["role"] == "user"]
    trained = set(trained_messages(row))
    cut = [
        window
        for last, stop in pairwise([*users, len(row.messages)])
        for window in _answers(row, trained, (users[0], last), stop, tokenizer, max_length)
    ]
    return [
        replace(
            row,
            id=f"{row.id}-w{number}",
            messages=[row.messages[i] for i in shown],
            train_turns=_numbers(row, shown, learnt),
            meta=row.meta | {"window": [number, len(cut)]},
        )
        for number, (shown, learnt) in enumerate(cut, 1)
    ]


def _answers(
    row: Row, trained: set[int], requests: tuple[int, int], stop: int, tokenizer: Any, max_length: int
) -> list[tuple[list[int], list[int]]]:
    """Windows over what answers the last of the (first, last) requests, before the next one at `stop`.

    Each as the positions of its messages and of those that it trains.
    """
    first, last = requests
    turns = [turn for turn in _turns(row, first + 1, stop) if turn != [last]]
    waiting = [n for n, turn in enumerate(turns) if turn[0] > last and turn[0] in trained]
    room = max_length - _tokens(row, {*range(first + 1), last}, row.tools, tokenizer)
    bare = _tokens(row, {first, last}, [], tokenizer)
    # Turns begin and end with an added token, so the tokens of a conversation are the sum of its turns'.
    costs = [_tokens(row, {first, last, *turn}, [], tokenizer) - bare for turn in turns]
    made = []
    while waiting:
        if costs[waiting[0]] > room:
            raise RenderError("over MAX_LENGTH in a single turn")
        begin = _earliest(costs, waiting[0], HISTORY * room)
        end = max(n for n in waiting if n == waiting[0] or sum(costs[begin : n + 1]) <= room)
        begin = _earliest(costs, end, room)
        shown = {*range(first + 1), last, *(i for turn in turns[begin : end + 1] for i in turn)}
        made.append((sorted(shown), [turns[n][0] for n in waiting if n <= end]))
        waiting = [n for n in waiting if n > end]
    return made


def _turns(row: Row, start: int, stop: int) -> list[Turn]:
    turns: list[Turn] = []
    for position in range(start, stop):
        if row.messages[position]["role"] == "tool" and turns:
            turns[-1].append(position)
        else:
            turns.append([position])
    return turns


def _earliest(costs: list[int], end: int, room: float) -> int:
    """The first turn from which those up to `end` fit; `end` itself at the latest."""
    begin = end
    while begin and sum(costs[begin - 1 : end + 1]) <= room:
        begin -= 1
    return begin


def _numbers(row: Row, shown: list[int], learnt: list[int]) -> list[int]:
    turns = [position for position in shown if row.messages[position]["role"] == "assistant"]
    return [turns.index(position) for position in learnt]


def _tokens(row: Row, positions: set[int], tools: list[Tool], tokenizer: Any) -> int:
    written = text([row.messages[i] for i in sorted(positions)], tools, tokenizer)
    return len(tokenizer(written, add_special_tokens=False)["input_ids"])
