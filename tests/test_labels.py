"""What carries loss: the turns that trl's training template marks, in chunks that never hold all logits."""

import json
from pathlib import Path
from typing import Any

import pytest

from core import chat
from core.errors import UserError
from core.render import IGNORE, render
from tests.training import rows
from trainer.learning import samples


def trl_spans(row: chat.Row, tokenizer: Any) -> tuple[list[int], list[list[int]]]:
    """Token ids of the conversation, and those of each span that trl's training template marks."""
    from trl.chat_template_utils import get_training_chat_template

    encoded = tokenizer.apply_chat_template(
        row.messages,
        tools=row.tools or None,
        chat_template=get_training_chat_template(tokenizer),
        return_assistant_tokens_mask=True,
        return_dict=True,
    )
    spans: list[list[int]] = []
    before = 0
    for token, marked in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True):
        if marked:
            spans = [*spans, []] if not before else spans
            spans[-1].append(token)
        before = marked
    return encoded["input_ids"], spans


def our_spans(sample: Any) -> list[list[int]]:
    spans: list[list[int]] = []
    before = IGNORE
    for label in sample.labels:
        if label != IGNORE:
            spans = [*spans, []] if before == IGNORE else spans
            spans[-1].append(label)
        before = label
    return spans


def differences(read: list[chat.Row], tokenizer: Any) -> list[str]:
    """Rows whose labels are not what trl marks, but for what no model has to write.

    trl also marks `<think>` and its line end, which the server's prompt ends with, and the line end after the
    end-of-turn token, which no server asks for.
    """
    opening = tokenizer("<think>\n", add_special_tokens=False)["input_ids"]
    line = tokenizer("\n", add_special_tokens=False)["input_ids"]
    wrong = []
    for row in read:
        (sample,) = render(row, tokenizer)
        ids, theirs = trl_spans(row, tokenizer)
        trained = row.train_turns if row.train_turns is not None else range(len(theirs))
        wanted = [opening + span + line for span in our_spans(sample)]
        if wanted != [theirs[i] for i in trained] or ids[: len(sample.input_ids)] != sample.input_ids:
            wrong.append(row.id)
    return wrong


def one_user_turn(count: int) -> list[chat.Row]:
    """Rows as the dataset's: one request, calls and answers, wrong turns without loss among them."""
    from tests.rows import asked, row

    made = []
    for i in range(count):
        calls = [*asked(f"Enséñame {i} commits", max_count=i), chat.result("Input validation error")]
        wrong = calls * (1 + i % 2)
        messages = [wrong[0], *[m for m in wrong[1:] if m["role"] != "user"], chat.say("Hecho.", think="Ya.")]
        turns = len(chat.assistant_turns(messages))
        made.append(row(messages, id=f"r{i}", train_turns=list(range(1, turns)) if i % 3 == 0 else None))
    return made


def test_labels_are_what_trl_s_training_template_marks(tokenizer):
    assert differences(one_user_turn(12), tokenizer) == []


def test_a_planted_difference_is_seen(tokenizer, monkeypatch):
    honest = render

    def careless(row: chat.Row, tokenizer: Any) -> list[Any]:
        return honest(chat.Row(**{**vars(row), "train_turns": None}), tokenizer)

    monkeypatch.setitem(globals(), "render", careless)
    assert differences(one_user_turn(12), tokenizer) == ["r0", "r3", "r6", "r9"]


@pytest.mark.slow
def test_labels_of_five_hundred_rows_of_the_tiny_dataset(tmp_path, tokenizer):
    from tests.conftest import copy_project, run_make

    project = copy_project(tmp_path / "project")
    done = run_make(project, "dataset", "PROFILE=tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    read = chat.read_rows(project / "data/tiny/dataset/train.jsonl")
    spread = read[:: len(read) // 500][:500]
    assert len(spread) == 500
    assert any(row.train_turns is not None for row in spread)
    assert differences(spread, tokenizer) == []


def test_a_row_without_loss_is_refused_by_name(tmp_path, tokenizer):
    some = rows(4)
    path = tmp_path / "train.jsonl"
    chat.write_rows(path, [*some[:3], chat.Row(**{**vars(some[3]), "train_turns": []})])
    with pytest.raises(UserError, match=r"train.jsonl: row train-03: no assistant turn is trained"):
        samples.read(path, tokenizer, 1024)
    chat.write_rows(path, some)
    with pytest.raises(UserError, match=r"row train-\d\d has \d+ tokens, MAX_LENGTH=20: make dataset"):
        samples.read(path, tokenizer, 20)


def test_label_counts_are_written_a_row(tmp_path, tokenizer):
    chat.write_rows(tmp_path / "train.jsonl", rows(4))
    read = samples.read(tmp_path / "train.jsonl", tokenizer, 1024)
    samples.write_counts(tmp_path / "labels.jsonl", read)
    told = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert [one["id"] for one in told] == [
        "train-00",
        *["train-01"] * 2,
        *["train-02"] * 2,
        *["train-03"] * 2,
    ]
    assert [one["labelled"] for one in told] == [sum(x != IGNORE for x in sample.labels) for sample in read]
    assert samples.counts(read)["fewest"] == min(one["labelled"] for one in told) > 0


def test_the_logits_are_never_whole_and_the_router_adds_no_loss(base_dir: Path, tmp_path, monkeypatch):
    import torch
    from trl.trainer import sft_trainer

    from tests.training import Training

    seen: list[torch.Size] = []
    chunk = sft_trainer._chunk

    def measured(hidden: Any, weight: Any, *more: Any) -> Any:
        seen.append(hidden.shape)
        return chunk(hidden, weight, *more)

    vocabulary = json.loads((base_dir / "config.json").read_text())["text_config"]["vocab_size"]
    whole = torch.nn.Linear.forward
    monkeypatch.setattr(sft_trainer, "_chunk", measured)
    monkeypatch.setattr(sft_trainer, "_CHUNKED_LM_HEAD_CHUNK_SIZE", 16)
    heads = []

    def watched(self: Any, x: torch.Tensor) -> torch.Tensor:
        heads.extend([x.shape] if self.out_features == vocabulary else [])
        return whole(self, x)

    monkeypatch.setattr(torch.nn.Linear, "forward", watched)
    run = Training(tmp_path, base_dir, ("MAX_STEPS=2", "BATCH_SIZE=4")).start()
    assert seen
    assert max(shape[0] for shape in seen) <= 16
    assert heads == [], "the head is applied to chunks alone"
    assert not [name for entry in run.log for name in entry if "aux" in name]
