"""A correct trajectory breaks no rule; a mutation breaks the rules that it concerns, and no other."""

import functools
import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core import chat, rules
from tests import rule_laws, trajectories
from tests.rule_laws import Turn, arguments_of, book, broken_by, entries, tool_of, unread
from tests.trajectories import ELSEWHERE, Task, flat, turns

MORE = (trajectories.talkative, trajectories.curious, trajectories.interrupted, trajectories.airy)
SECTION = re.compile(r"^## .*\n(?:(?!## ).*\n?)*", re.MULTILINE)

Step = tuple[str, list[Turn], str, int]
"""Skill, turns, request, and which of the turns it is."""


def broken(skill: str, parts: list[Turn], asked: str) -> set[str]:
    found = rules.check(book(skill), flat(parts), asked)
    return {one.rule for one in found if one.verdict == rules.BROKEN}


@functools.cache
def tasks() -> list[Task]:
    """Tasks done right, half of them with more said and looked at than is needed."""
    made = []
    for number, (skill, trace, asked) in enumerate(trajectories.done()):
        parts = turns(trace)
        for vary in MORE if number % 2 else ():
            vary(skill, parts, random.Random(number))
        made.append((skill, flat(parts), asked))
    return made


def steps() -> Iterator[Step]:
    for skill, trace, asked in tasks():
        for place, turn in enumerate(turns(trace)):
            if tool_of(turn) not in ("", ELSEWHERE):
                yield skill, turns(trace), asked, place


def neighbours() -> Iterator[tuple[Step, int]]:
    """Each step and where the next one of its task is."""
    for one, other in itertools.pairwise(steps()):
        if one[:3] == other[:3]:
            yield one, other[3]


def without(parts: list[Turn], place: int) -> list[Turn]:
    return parts[:place] + parts[place + 1 :]


def test_a_correct_trajectory_breaks_no_rule() -> None:
    assert len({str(trace) for _, trace, _ in trajectories.varied()}) >= 200
    for skill, trace, asked in trajectories.varied():
        assert broken(skill, turns(trace), asked) == set(), trace


def test_a_dropped_step() -> None:
    for skill, parts, asked, place in steps():
        tool = tool_of(parts[place])
        assert broken(skill, without(parts, place), asked) == broken_by(rule_laws.gone, skill, tool, parts)


def test_a_step_of_another_name() -> None:
    for skill, parts, asked, place in steps():
        expected = broken_by(rule_laws.gone, skill, tool_of(parts[place]), parts, result_stays=True)
        parts[place][0]["tool_calls"][0]["function"]["name"] = ELSEWHERE
        assert broken(skill, parts, asked) == expected


def test_a_step_that_fails_in_silence() -> None:
    for skill, parts, asked, place in steps():
        expected = broken_by(rule_laws.failed, skill, tool_of(parts[place]), parts)
        parts[place][1]["content"] = "Error: not found"
        assert broken(skill, parts, asked) == expected


def test_a_repeated_step() -> None:
    for skill, parts, asked, place in steps():
        expected = broken_by(rule_laws.repeated, skill, tool_of(parts[place]), parts)
        assert broken(skill, [*parts[:place], parts[place], *parts[place:]], asked) == expected


def test_two_steps_that_change_places() -> None:
    for (skill, parts, asked, one), other in neighbours():
        expected = broken_by(rule_laws.turned, skill, (tool_of(parts[one]), tool_of(parts[other])), parts)
        parts[one], parts[other] = parts[other], parts[one]
        assert broken(skill, parts, asked) == expected


def test_two_steps_in_one_turn() -> None:
    for (skill, parts, asked, one), other in neighbours():
        expected = broken_by(rule_laws.turned, skill, (tool_of(parts[one]), tool_of(parts[other])), parts)
        parts[one][0]["tool_calls"] += parts[other][0]["tool_calls"]
        parts[one] += parts[other][1:]
        assert broken(skill, without(parts, other), asked) == expected


def test_a_value_that_nobody_gave() -> None:
    for skill, parts, asked, place in steps():
        own = arguments_of(parts[place])
        for name, value in list(own.items()):
            expected = broken_by(rule_laws.altered, skill, (tool_of(parts[place]), name), parts)
            own[name] = other_than(value)
            assert broken(skill, parts, asked) == expected, name
            own[name] = value


def other_than(value: Any) -> Any:
    if isinstance(value, list):
        return [other_than(item) for item in value]
    return value + 1_000 if isinstance(value, int) else f"{value}x"


def test_a_forbidden_call() -> None:
    forbidden = 0
    for skill, trace, asked in tasks():
        for entry in entries(skill):
            if entry["kind"] != "never" or entry["what"].keys() != {"call"} or "since" in entry:
                continue
            called = entry["what"]["call"]
            for name in called if isinstance(called, list) else [called]:
                server, _, tool = name.rpartition(".")
                call = chat.call(f"mcp__{server or 'git'}__{tool}", {"repo_path": "a"}, think="")
                for place in range(len(turns(trace))):
                    parts = turns(trace)
                    parts.insert(place, [call, chat.result("Done")])
                    assert broken(skill, parts, asked) == {entry["id"]}
                    forbidden += 1
    assert forbidden


REPORTS: dict[str, Callable[[list[str], int], list[str]]] = {
    "dropped": lambda parts, n: parts[:n] + parts[n + 1 :],
    "twice": lambda parts, n: parts[: n + 1] + parts[n:],
    "empty": lambda parts, n: [*parts[:n], parts[n].split("\n")[0] + "\n", *parts[n + 1 :]],
    "renamed": lambda parts, n: [*parts[:n], parts[n].replace("\n", " final\n", 1), *parts[n + 1 :]],
    "deeper": lambda parts, n: [*parts[:n], f"#{parts[n]}", *parts[n + 1 :]],
    "one later": lambda parts, n: [*parts[:n], *parts[n + 1 : n + 2], parts[n], *parts[n + 2 :]],
}


@pytest.mark.parametrize("change", REPORTS)
def test_a_section_of_the_report(change: str) -> None:
    for skill, trace, asked in tasks():
        report = trace[-1]["content"].rstrip("\n") + "\n"
        sections = SECTION.findall(report)
        for place in range(len(sections) - (change == "one later")):
            parts = turns(trace)
            parts[-1][0]["content"] = "".join(REPORTS[change](sections, place))
            expected = unread(skill, report, parts[-1][0]["content"])
            assert broken(skill, parts, asked) == expected, parts[-1][0]["content"]


def test_a_report_that_is_missing_or_not_the_end() -> None:
    for skill, trace, asked in tasks():
        report, more = trace[-1]["content"], trajectories.look(random.Random(0), fails=False)
        assert broken(skill, turns(trace)[:-1], asked) == unread(skill, report, "")
        assert broken(skill, [*turns(trace), more], asked) == unread(skill, report, report)
