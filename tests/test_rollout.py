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
from tests.demonstrations import SKILLS, gold, opening, rows

CALL = "t\n</think>\n\n<tool_call>\n<function={}>\n{}</function>\n</tool_call>"
PARAMETER = "<parameter={}>\n{}\n</parameter>\n"


def written(messages: list[Message], row: Row, tokenizer: Any) -> Iterator[tuple[str, str]]:
    """(prompt, what the model writes after it) for each assistant turn of a conversation."""
    for turn in assistant_turns(messages):
        prompt = prompt_text(messages[:turn], row.tools, tokenizer)
        whole = tokenizer.apply_chat_template(messages[: turn + 1], tools=row.tools, tokenize=False)
        yield prompt, whole.removeprefix(prompt)


def turn_by_turn(conversations: list[tuple[Row, list[Message]]], tokenizer: Any) -> rollout.Answer:
    """Writes what the conversations' assistant wrote, turn after turn, whatever the tools answer."""
    texts = {
        prompt_of(row, tokenizer): [t for _, t in written(m, row, tokenizer)] for row, m in conversations
    }

    def answer(prompts: list[str]) -> list[str]:
        begun = (next(t for start, t in texts.items() if p.startswith(start)) for p in prompts)
        return [turns.pop(0) for turns in begun]

    return answer


def prompt_of(row: Row, tokenizer: Any) -> str:
    """The row's first prompt without the generation prompt: every later one begins with it."""
    return tokenizer.apply_chat_template(row.messages[: opening(row)], tools=row.tools, tokenize=False)


def one_of_each_skill() -> list[Row]:
    return [next(row for row in rows("eval") if row.skill == skill.name) for skill in SKILLS]


def test_a_model_that_writes_gold_reproduces_every_demonstration_and_passes(tokenizer) -> None:
    sample = rows("eval")[:30]
    texts = dict(pair for row in sample for pair in written(row.messages, row, tokenizer))
    asked = []

    def answer(prompts: list[str]) -> list[str]:
        asked.append(len(prompts))
        return [texts[prompt] for prompt in prompts]  # a KeyError is a prompt that no server would send

    traces = rollout.run(sample, tokenizer, answer)
    assert traces == [gold(row) for row in sample]
    turns = [len(assistant_turns(gold(row))) for row in sample]
    assert asked == [sum(own > number for own in turns) for number in range(max(turns))]
    scores = [skills.score(row, trace) for row, trace in zip(sample, traces, strict=True)]
    assert [score for score in scores if not score.right or score.explanation] == []
    assert all(rate.k == rate.n for rate in skills.by_rule(zip(sample, scores, strict=True)).values())


@pytest.mark.parametrize("text", ["", "I keep thinking", "t\n</think>\n\n", "t\n</think>\n\nHecho."])
def test_a_model_that_does_nothing_takes_one_turn_and_fails(tokenizer, text: str) -> None:
    sample = one_of_each_skill()
    for row, trace in zip(sample, rollout.run(sample, tokenizer, lambda p: [text] * len(p)), strict=True):
        assert len(trace) == 1
        assert trace[0]["content"] == ("Hecho." if "Hecho." in text else "")
        assert "tool_calls" not in trace[0]
        assert not skills.score(row, trace).right


def test_a_model_that_stops_early_is_recorded_so_and_fails(tokenizer) -> None:
    for row in one_of_each_skill():
        for stop in range(len(gold(row)) // 2):
            messages = [*row.messages[: opening(row) + 2 * stop], row.messages[-1]]
            (trace,) = rollout.run([row], tokenizer, turn_by_turn([(row, messages)], tokenizer))
            assert trace == messages[opening(row) :]
            score = skills.score(row, trace)
            assert not score.right
            assert score.explanation.split(":")[0] in score.verdicts


def test_a_model_that_loops_is_cut_two_turns_after_gold_and_fails(tokenizer) -> None:
    for row in one_of_each_skill():
        first = next(written(row.messages, row, tokenizer))[1]
        (trace,) = rollout.run([row], tokenizer, lambda prompts, first=first: [first] * len(prompts))
        assert trace == gold(row)[:2] * (len(assistant_turns(gold(row))) + 2)
        assert not skills.score(row, trace).right


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
        (trace,) = rollout.run([row], tokenizer, turn_by_turn([(row, messages)], tokenizer))
        assert trace[2 * step + 1]["content"] == "Error: not found"
        assert not skills.score(row, trace).right, messages[opening(row) + 2 * step]


def test_two_arguments_exchanged_fail(tokenizer) -> None:
    for row in one_of_each_skill():
        for step, call in enumerate(calls_of(row)):
            names = [name for name, value in call["arguments"].items() if isinstance(value, str)]
            for one, other in itertools.pairwise(names):
                messages = copy.deepcopy(row.messages)
                own = messages[opening(row) + 2 * step]["tool_calls"][0]["function"]["arguments"]
                own[one], own[other] = own[other], own[one]
                (trace,) = rollout.run([row], tokenizer, turn_by_turn([(row, messages)], tokenizer))
                assert not skills.score(row, trace).right, own


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

    def answer(asked: list[str]) -> list[str]:
        prompts.extend(asked)
        return [text if len(prompts) == 1 else "t\n</think>\n\nHa fallado."]

    (trace,) = rollout.run([row], tokenizer, answer)
    assert [message["role"] for message in trace] == ["assistant", *["tool"] * len(bad), "assistant"]
    assert [message["content"] for message in trace[1:-1]] == [error for *_, error in bad]
    assert prompts[1].startswith(prompts[0] + "t\n</think>")
    for tool, _, error in bad:
        assert f"<function={tool}>" in prompts[1]
        assert f"<tool_response>\n{error}\n</tool_response>" in prompts[1]
    assert not skills.score(row, trace).right


def test_a_call_made_twice_gets_its_results_in_their_order(tokenizer) -> None:
    row = one_of_each_skill()[0]
    step, report = gold(row)[0], gold(row)[-1]
    messages = [*row.messages[: opening(row)], step, chat.result("1"), step, chat.result("2"), report]
    changed = replace(row, messages=messages)
    longer = [*messages[:-1], step, chat.result("2"), report]
    for own in (messages, longer):
        answer = turn_by_turn([(changed, own)], tokenizer)
        assert rollout.run([changed], tokenizer, answer) == [own[opening(row) :]]


PIECES = ["<tool_call>", "</tool_call>", "<function=", "mcp__git__git_log", ">", "</function>", "<parameter=",
          "repo_path", "</parameter>", "</think>", "<think>", "<|im_end|>", "\n", "hola", "{}"]  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_no_text_of_a_model_stops_the_evaluation(tokenizer, seed: int) -> None:
    rng, sample = random.Random(seed), one_of_each_skill()

    def answer(prompts: list[str]) -> list[str]:
        return ["".join(rng.choices(PIECES, k=rng.randint(0, 25))) for _ in prompts]

    for row, trace in zip(sample, rollout.run(sample, tokenizer, answer), strict=True):
        assert 1 <= len(assistant_turns(trace)) <= len(assistant_turns(gold(row))) + rollout.EXTRA_TURNS
        assert not skills.score(row, trace).right
        assert chat.fault_in([*row.messages[: opening(row)], *trace]) is None
        json.dumps(trace)


def test_rates_say_which_rule_is_forgotten(tokenizer) -> None:
    sample = [row for row in rows("eval") if row.skill == "crear-rama"][:6]
    traces = [copy.deepcopy(gold(row)) for row in sample]
    for trace in traces[:2]:
        del trace[:2]
    scored = [(row, skills.score(row, trace)) for row, trace in zip(sample, traces, strict=True)]
    found = skills.by_rule(scored)
    assert (found["crear-rama/pasos"].n, found["crear-rama/pasos"].k) == (6, 4)
    assert {name for name, rate in found.items() if rate.k < rate.n} == {"crear-rama/pasos"}
    assert "crear-rama/arbol-limpio" not in found, "it never applied"
    assert [score.right for _, score in scored] == [False] * 2 + [True] * 4
    reason = r"call git_status, result \A(?!Error|Input validation error)"
    assert scored[0][1].explanation == f"pasos: nowhere: {reason}"


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
        skills.score(moved, gold(row))
