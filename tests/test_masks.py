"""The mask: what the labels decode to is each trained turn, whole, and nothing else."""

import itertools
from dataclasses import replace

import pytest

from core import chat
from core.render import IGNORE, Rendered, render
from dataset_builder.verifying import rendering
from dataset_builder.verifying.masks import fault_in_mask
from tests.rows import asked, row

ROW = row([*asked(), chat.result("abc123 arregla el menú"), chat.say("Uno solo.", think="Un commit.")])


@pytest.fixture
def sample(tokenizer) -> Rendered:
    (sample,) = render(ROW, tokenizer)
    return sample


def spans(sample: Rendered) -> list[int]:
    """Positions of the labelled tokens."""
    return [i for i, label in enumerate(sample.labels) if label != IGNORE]


def relabelled(sample: Rendered, positions: list[int]) -> Rendered:
    labels = [token if i in positions else IGNORE for i, token in enumerate(sample.input_ids)]
    return replace(sample, labels=labels)


def test_a_true_mask_has_no_fault(sample, tokenizer):
    assert fault_in_mask(ROW, [sample], tokenizer) is None


def test_an_empty_mask_is_caught(sample, tokenizer):
    assert fault_in_mask(ROW, [relabelled(sample, [])], tokenizer) == "the mask is empty"


def test_a_label_that_is_another_token_is_caught(sample, tokenizer):
    labels = [label if label == IGNORE else label + 1 for label in sample.labels]
    assert fault_in_mask(ROW, [replace(sample, labels=labels)], tokenizer) is not None


@pytest.mark.parametrize("role", ["system", "user", "tool", "before", "after"])
def test_a_label_on_a_token_that_is_not_the_assistant_s_is_caught(sample, tokenizer, role):
    own = spans(sample)
    gap = next(i for i, j in itertools.pairwise(own) if j > i + 1)
    place = {"system": 3, "user": own[0] - 8, "tool": gap + 6, "before": own[0] - 1, "after": gap + 1}[role]
    assert place not in own
    assert fault_in_mask(ROW, [relabelled(sample, [*own, place])], tokenizer) is not None


@pytest.mark.parametrize(
    "part", ["first token", "last token", "a token inside", "the reasoning", "a whole turn"]
)
def test_a_label_that_is_missing_is_caught(sample, tokenizer, part):
    own = spans(sample)
    end_of_thought = sample.input_ids.index(tokenizer.convert_tokens_to_ids("</think>"), own[0])
    gap = next(n for n, (i, j) in enumerate(itertools.pairwise(own)) if j > i + 1)
    left = {
        "first token": own[1:],
        "last token": own[:-1],
        "a token inside": own[:5] + own[6:],
        "the reasoning": [i for i in own if i > end_of_thought],
        "a whole turn": own[: gap + 1],
    }[part]
    assert fault_in_mask(ROW, [relabelled(sample, left)], tokenizer) is not None


@pytest.mark.parametrize("value", ["a</parameter>b", "<parameter=x>", "\n\nx"[1:] + "</function>"])
def test_a_call_that_the_text_format_cannot_carry_is_dropped_by_name(tokenizer, value):
    kept, (drop,) = rendering.keep([row(asked(repo_path=value))], tokenizer, 4096)
    assert kept == []
    assert (drop.step, drop.reason) == ("render", "a call that the text format cannot carry")


@pytest.mark.parametrize("value", ["línea 1\n\n  línea 2\n", " espacios ", "12", "null", "", "«ñ» </div> {}"])
def test_a_call_that_it_can_carry_comes_back_as_it_was(tokenizer, value):
    (kept,), none = rendering.keep([row(asked(repo_path=value))], tokenizer, 4096)
    assert none == []
    ((tokens, labelled),) = kept.meta["tokens"]
    assert 0 < labelled < tokens
    assert kept.meta["verdicts"] == {"render": "passed"}


def test_a_text_that_pretends_to_be_a_call_is_dropped(tokenizer):
    words = chat.say("<tool_call>\n<function=mcp__git__git_log>\n</function>\n</tool_call>", think="t")
    _, (drop,) = rendering.keep([row([chat.user("x"), words])], tokenizer, 4096)
    assert drop.step == "render"
