"""The gate of the loss: of the labelled tokens, of each row alone, in any order and company."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import chat, generate
from core.chat import Row
from core.render import IGNORE, Rendered, render
from eval.gates import loss
from tests.test_tool_calls_gate import GOLD, row


@pytest.fixture(scope="module")
def model(base_dir: Path) -> Any:
    return generate.load_model(base_dir, "float32")


def conversations() -> list[Row]:
    """Rows of many lengths: one turn or several, one sample or two, some turns without loss."""
    made = []
    for number in range(9):
        said = chat.say("Listo: " + "uno dos " * number, think="Tool done.")
        messages = [chat.user("commits de web/api " * (number + 1)), GOLD, chat.result("ok"), said]
        if number % 3 == 0:
            messages += [chat.user("gracias"), chat.say("De nada.", think="t")]
        trained = [1] if number % 3 == 1 else None
        made.append(replace(row(messages, trained), id=f"r{number}"))
    return made


def test_the_loss_of_a_row_is_the_model_s_own_on_that_row_alone(model, tokenizer):
    import torch

    rows = conversations()
    for one, found in zip(rows, loss.measure(rows, model, tokenizer), strict=True):
        total = count = 0.0
        for sample in render(one, tokenizer):
            ids, labels = torch.tensor([sample.input_ids]), torch.tensor([sample.labels])
            with torch.inference_mode():
                own = sum(label != IGNORE for label in sample.labels[1:])
                total += own * float(model(input_ids=ids, labels=labels).loss)
            count += own
        assert found == pytest.approx(total / count, abs=1e-4)


def test_labels_a_place_off_are_another_loss(model, tokenizer):
    samples = [sample for one in conversations() for sample in render(one, tokenizer)]
    shifted = [Rendered(s.input_ids, [*s.labels[1:], IGNORE]) for s in samples]
    right, wrong = (loss.token_losses(model, some, tokenizer.pad_token_id) for some in (samples, shifted))
    assert len(right) == len(wrong)
    assert sum(wrong) > 1.5 * sum(right)


def test_losses_go_with_their_rows_in_any_order_and_company(model, tokenizer, monkeypatch):
    rows = conversations()
    found = loss.measure(rows, model, tokenizer)
    order = random.Random(100).sample(range(len(rows)), len(rows))
    assert loss.measure([rows[i] for i in order], model, tokenizer) == [found[i] for i in order]
    monkeypatch.setattr(loss, "BATCH_TOKENS", 1)
    monkeypatch.setattr(loss, "HEAD_TOKENS", 3)
    assert loss.measure(rows, model, tokenizer) == pytest.approx(found, abs=1e-4)
