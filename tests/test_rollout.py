"""Rollouts and their gate: gold is reproduced and passes; whatever is forgotten, wrong or idle does not."""

import copy
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import chat
from core.chat import Message, Row, assistant_turns
from core.errors import UserError
from core.render import prompt_text
from eval import rollout
from eval.gates import skills
from tests.asking import Write, play
from tests.demonstrations import SKILLS, gold, opening, request, rows

CALL = "t\n</think>\n\n<tool_call>\n<function={}>\n{}</function>\n</tool_call>"
PARAMETER = "<parameter={}>\n{}\n</parameter>\n"


def written(messages: list[Message], row: Row, tokenizer: Any) -> Iterator[tuple[str, str]]:
    """(prompt, what the model writes after it) for each assistant turn of a conversation."""
    for turn in assistant_turns(messages):
        prompt = prompt_text(messages[:turn], row.tools, tokenizer)
        whole = tokenizer.apply_chat_template(messages[: turn + 1], tools=row.tools, tokenize=False)
        yield prompt, whole.removeprefix(prompt)


def turn_by_turn(row: Row, messages: list[Message], tokenizer: Any) -> Write:
    """Writes what the conversation's assistant wrote, turn after turn, whatever the tools answer."""
    turns = [text for _, text in written(messages, row, tokenizer)]
    return lambda _: turns.pop(0)


def judged(row: Row, trace: list[Message]) -> skills.Score:
    return skills.score(skills.rules_of(row), trace, request(row))


def one_of_each_skill() -> list[Row]:
    return [next(row for row in rows("eval") if row.skill == skill.name) for skill in SKILLS]


def test_a_model_that_writes_gold_reproduces_every_demonstration_and_passes(tokenizer) -> None:
    for row in rows("eval")[:30]:
        texts = dict(written(row.messages, row, tokenizer))
        # A KeyError is a prompt that no server would send.
        trace = play(row, lambda prompt, texts=texts: texts[prompt], tokenizer)
        assert trace == gold(row)
        score = judged(row, trace)
        assert (score.right, score.explanation) == (True, "")
        assert score.turns == len(assistant_turns(gold(row)))


@pytest.mark.parametrize("text", ["", "I keep thinking", "t\n</think>\n\n", "t\n</think>\n\nHecho."])
def test_a_model_that_does_nothing_takes_one_turn_and_fails(tokenizer, text: str) -> None:
    for row in one_of_each_skill():
        trace = play(row, lambda _: text, tokenizer)
        assert len(trace) == 1
        assert trace[0]["content"] == ("Hecho." if "Hecho." in text else "")
        assert "tool_calls" not in trace[0]
        assert not judged(row, trace).right


def test_a_model_that_stops_early_is_recorded_so_and_fails(tokenizer) -> None:
    for row in one_of_each_skill():
        for stop in range(len(gold(row)) // 2):
            messages = [*row.messages[: opening(row) + 2 * stop], row.messages[-1]]
            trace = play(row, turn_by_turn(row, messages, tokenizer), tokenizer)
            assert trace == messages[opening(row) :]
            score = judged(row, trace)
            assert not score.right
            assert score.explanation.split(":")[0] in {one["rule"] for one in score.findings}


def test_a_model_that_loops_is_cut_two_turns_after_gold_and_fails(tokenizer) -> None:
    for row in one_of_each_skill():
        first = next(written(row.messages, row, tokenizer))[1]
        trace = play(row, lambda _, first=first: first, tokenizer)
        assert trace == gold(row)[:2] * (len(assistant_turns(gold(row))) + 2)
        assert not judged(row, trace).right


def calls_of(row: Row) -> list[dict[str, Any]]:
    return [call["function"] for message in row.messages for call in message.get("tool_calls") or []]


def wrong(value: Any) -> Any:
    """A value of the same type that nobody asked for, a character or an item away from the right one."""
    if isinstance(value, list):
        return [*value, "otro.py"]
    return value + 1 if isinstance(value, int) else value + "x"


def test_one_wrong_argument_anywhere_fails_whatever_follows(tokenizer) -> None:
    planted = []
    for row in one_of_each_skill():
        for step, call in enumerate(calls_of(row)):
            for name in call["arguments"]:
                messages = copy.deepcopy(row.messages)
                own = messages[opening(row) + 2 * step]["tool_calls"][0]["function"]["arguments"]
                own[name] = wrong(own[name])
                planted.append((row, messages, step))
    assert len(planted) > 20
    for row, messages, step in planted:
        trace = play(row, turn_by_turn(row, messages, tokenizer), tokenizer)
        assert trace[2 * step + 1]["content"] == "Error: not found"
        assert not judged(row, trace).right, messages[opening(row) + 2 * step]


def test_two_arguments_exchanged_fail(tokenizer) -> None:
    for row in one_of_each_skill():
        for step, call in enumerate(calls_of(row)):
            names = [name for name, value in call["arguments"].items() if isinstance(value, str)]
            for one, other in itertools.pairwise(names):
                messages = copy.deepcopy(row.messages)
                own = messages[opening(row) + 2 * step]["tool_calls"][0]["function"]["arguments"]
                own[one], own[other] = own[other], own[one]
                trace = play(row, turn_by_turn(row, messages, tokenizer), tokenizer)
                assert not judged(row, trace).right, own


def test_any_other_call_gets_the_error_of_a_server_and_the_model_sees_it(tokenizer) -> None:
    row = next(row for row in rows("eval") if row.skill == "informe-historial")
    name = calls_of(row)[0]["name"]
    bad = [
        ("mcp__git__git_lgo", PARAMETER.format("repo_path", "a"), "Error: tool not found"),
        (
            name,
            PARAMETER.format("max_count", 3),
            "Input validation error: 'repo_path' is a required property",
        ),
        (
            name,
            PARAMETER.format("repo_path", "a") + PARAMETER.format("max_count", "muchos"),
            "Input validation error: 'muchos' is not of type 'integer'",
        ),
        (name, PARAMETER.format("repo_path", "a"), "Error: not found"),
    ]
    text = "\n".join(CALL.format(tool, parameters) for tool, parameters, _ in bad)
    prompts: list[str] = []

    def write(prompt: str) -> str:
        prompts.append(prompt)
        return text if len(prompts) == 1 else "t\n</think>\n\nHa fallado."

    trace = play(row, write, tokenizer)
    assert [message["role"] for message in trace] == ["assistant", *["tool"] * len(bad), "assistant"]
    assert [message["content"] for message in trace[1:-1]] == [error for *_, error in bad]
    assert prompts[1].startswith(prompts[0] + "t\n</think>")
    for tool, _, error in bad:
        assert f"<function={tool}>" in prompts[1]
        assert f"<tool_response>\n{error}\n</tool_response>" in prompts[1]
    assert not judged(row, trace).right


def test_a_call_made_twice_gets_its_results_in_their_order(tokenizer) -> None:
    row = one_of_each_skill()[0]
    step, report = gold(row)[0], gold(row)[-1]
    messages = [*row.messages[: opening(row)], step, chat.result("1"), step, chat.result("2"), report]
    changed = replace(row, messages=messages)
    longer = [*messages[:-1], step, chat.result("2"), report]
    for own in (messages, longer):
        assert play(changed, turn_by_turn(changed, own, tokenizer), tokenizer) == own[opening(row) :]


PIECES = ["<tool_call>", "</tool_call>", "<function=", "mcp__git__git_log", ">", "</function>", "<parameter=",
          "repo_path", "</parameter>", "</think>", "<think>", "<|im_end|>", "\n", "hola", "{}"]  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_no_text_of_a_model_stops_the_evaluation(tokenizer, seed: int) -> None:
    rng = random.Random(seed)
    for row in one_of_each_skill():
        trace = play(row, lambda _: "".join(rng.choices(PIECES, k=rng.randint(0, 25))), tokenizer)
        assert 1 <= len(assistant_turns(trace)) <= len(assistant_turns(gold(row))) + rollout.EXTRA_TURNS
        assert not judged(row, trace).right
        assert chat.fault_in([*row.messages[: opening(row)], *trace]) is None
        json.dumps(trace)


def test_a_broken_rule_is_placed_where_it_broke(tokenizer) -> None:
    row = next(row for row in rows("eval") if row.skill == "crear-rama")
    forgotten = copy.deepcopy(gold(row))[2:]
    score = judged(row, forgotten)
    broken = [one for one in score.findings if one["verdict"] == "broken"]
    assert [one["rule"] for one in broken] == ["pasos"]
    assert (broken[0]["position"], broken[0]["turn"]) == (None, score.turns), "it could be done to the end"
    twice = [*gold(row)[:4], *gold(row)[2:]]
    once_only = next(one for one in judged(row, twice).findings if one["rule"] == "una-sola-vez")
    assert (once_only["position"], once_only["turn"]) == (4, 3)


Break = Callable[[Path], object]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda skill: skill.unlink(), "SKILL.md: no such file; row .* comes from it: make dataset"),
        (lambda skill: skill.with_name("rules.yaml").unlink(), "rules.yaml: no such file; write the skill's"),
        (
            lambda skill: skill.write_text("Otro texto."),
            "quote '.*' is not in SKILL.md; copy it word for word",
        ),
    ],
)
def test_rules_that_are_missing_or_out_of_date_are_told(tmp_path: Path, damage: Break, message: str) -> None:
    row = one_of_each_skill()[0]
    for name in ("SKILL.md", "rules.yaml"):
        (tmp_path / name).write_bytes(Path(row.source).with_name(name).read_bytes())
    moved = replace(row, source=str(tmp_path / "SKILL.md"))
    assert skills.rules_of(moved)
    damage(tmp_path / "SKILL.md")
    with pytest.raises(UserError, match=message):
        skills.rules_of(moved)
