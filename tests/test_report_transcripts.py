"""Where a rule broke: the turn that the reader is shown is the turn that broke it."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import chat, config, rules
from core.settings import ReportSettings
from eval.reporting import answers, facts, tables, transcripts, turns
from tests.evaluated import MERGED, SKILLS, Run, samples


class Turns(HTMLParser):
    """The texts of the messages by `<details>`; those that are marked apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.summaries: list[str] = []
        self.opened: list[bool] = []
        self.all: list[list[str]] = []
        self.marked: list[list[str]] = []
        self.kinds: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        kind = given.get("class") or tag
        self.kinds.append(kind)
        if tag == "details":
            self.summaries.append("")
            self.opened.append("open" in given)
            self.all.append([])
            self.marked.append([])
        if kind.startswith("turn"):
            self.all[-1].append("")
            if kind.endswith("broken"):
                self.marked[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.kinds.pop()

    def handle_data(self, data: str) -> None:
        if "summary" in self.kinds:
            self.summaries[-1] += data
        elif any(kind.startswith("turn") for kind in self.kinds):
            self.all[-1][-1] += data
            if any(kind.endswith("broken") for kind in self.kinds):
                self.marked[-1][-1] += data


def test_the_worst_rules_come_with_the_turn_that_broke_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run = Run("dicho")
    found = facts.collect(config.parse(ReportSettings, run.words))
    shown = Turns(answers.broken_rules(found))
    assert len(shown.summaries) == answers.WORST_RULES
    rates = [line.found["merged"] for line in tables.rules(found)]
    assert [one.value for one in rates if one] == sorted(one.value for one in rates if one)
    assert shown.summaries[0].startswith(tables.rules(found)[0].name)
    assert shown.opened == [True, *[False] * (answers.WORST_RULES - 1)]
    where = {
        "pasos": ("assistant, turn 1", "git_status"),
        "base-indicada": ("assistant, turn 2", "git_create_branch"),
        "informe": ("the end", ""),
    }
    seen = set()
    for summary, every, marked in zip(shown.summaries, shown.all, shown.marked, strict=True):
        rule = summary.split(":")[0].split("/")[1]
        speaker, content = where[rule]
        (text,) = marked
        assert text.startswith(speaker) and content in text
        assert f"{rule} breaks here: nowhere: {{say: {rule}}} dicho" in text
        assert every[0] == "askedCrea la rama fix/login en web/api desde main."
        assert (every[-1] == text) == (rule == "informe")
        seen.add(rule)
    assert seen == set(where)


TRACES = st.lists(st.integers(1, 3), min_size=1, max_size=40).flatmap(
    lambda results: st.tuples(st.just(results), st.integers(0, sum(1 + one for one in results) - 1))
)


@given(TRACES)
def test_of_a_long_trace_the_part_is_shown_that_has_the_broken_message(case: tuple[list[int], int]):
    results, position = case
    trace = []
    for count in results:
        trace.append(chat.call("t", {}, think=f"m{len(trace)}."))
        trace += [chat.result(f"m{len(trace) + i}.") for i in range(count)]
    finding = {"rule": "r", "verdict": rules.BROKEN, "position": position, "turn": 1, "reason": "why"}
    shown = Turns(f"<details>{transcripts.transcript(trace, [finding])}</details>")
    ((text,), every) = shown.marked[0], shown.all[0]
    assert f"m{position}." in text
    assert len(every) == min(len(trace), transcripts.MOST_MESSAGES)
    turn = sum(one["role"] == "assistant" for one in trace[: position + 1])
    assert (f"assistant, turn {turn}m" in text) == (trace[position]["role"] == "assistant")


def test_long_texts_are_cut_and_say_how_long_they_are():
    message = chat.call("t", {"x": "y" * 50_000}, think="z" * 50_000, say="w" * 50_000)
    made = transcripts.said("assistant", message)
    assert len(made) < 4 * transcripts.LONGEST_TEXT
    assert made.count("50,0") == 3


# ---- adherence turn by turn ----------------------------------------------------------------------

ROLLOUTS = st.lists(
    st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(1, n), max_size=3))),
    min_size=1,
    max_size=30,
)


@given(ROLLOUTS)
def test_the_share_of_unbroken_rollouts_falls_to_the_gate_s_own(cases: list[tuple[int, list[int]]]):
    made = [
        {
            "kind": "skills",
            "turns": count,
            "findings": [{"verdict": rules.BROKEN, "turn": turn} for turn in broken]
            + [{"verdict": rules.HOLDS, "turn": count}],
        }
        for count, broken in cases
    ]
    found = turns.survival(made)
    assert [one.number for one in found] == list(range(1, max(count for count, _ in cases) + 1))
    for one in found:
        assert one.reached == sum(count >= one.number for count, _ in cases)
        assert one.unbroken == sum(all(turn > one.number for turn in broken) for _, broken in cases)
        assert one.rollouts == len(cases)
    assert found[-1].share == sum(not broken for _, broken in cases) / len(cases)


def test_the_last_share_is_the_adherence_of_the_gate():
    made = samples(MERGED, "")
    right = [one["right"] for one in made if one["kind"] == "skills"]
    assert turns.survival(made)[-1].share == sum(right) / len(right)
    assert len(right) == sum(SKILLS.values())


def test_without_rollouts_there_is_no_curve():
    assert turns.survival([{"kind": "loss"}]) == []
