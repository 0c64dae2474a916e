"""Packed rows: each sample is what it would be alone, or training refuses; no row is lost or comes twice."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import chat
from core.errors import UserError
from core.render import render
from tests.rows import asked, row
from tests.training import Training, rows
from trainer.learning import order, samples, sft
from trainer.learning.samples import Sample

LENGTH = 120


@pytest.fixture(scope="module")
def packing():
    """The module, which loads torch."""
    from trainer.learning import packing

    return packing


@pytest.fixture(scope="module")
def pair(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Sample]]:
    """The tiny base with a fresh adapter, and samples of the lengths that are compared."""
    from trainer.backends import plain

    model, tokenizer = plain.load(Training(tmp_path_factory.mktemp("packing"), base_dir).job())
    texts = ("Enséñame los últimos 12 commits de «web/rubo»", "Guarda una nota que diga: llamar a Ana")
    ids = [render(row(asked(text)), tokenizer)[0].input_ids[:LENGTH] for text in texts]
    return model, [Sample(one, one, str(i), "mcp") for i, one in enumerate(ids)]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch, packing: Any):
    """Where the resets are, for a test to remove one; put back afterwards."""
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling

    def without(reset: str) -> None:
        if reset == "window":
            monkeypatch.setattr(modeling, "causal_conv1d_fn", inspect.unwrap(modeling.causal_conv1d_fn))
        elif reset == "state":
            rule = modeling.torch_chunk_gated_delta_rule
            ignorant = lambda *args, cu_seqlens=None, **more: rule(*args, **more)  # noqa: E731
            monkeypatch.setattr(modeling, "torch_chunk_gated_delta_rule", ignorant)
        else:
            monkeypatch.setattr(packing, "sequence_ends", lambda ends: [0, int(ends[-1])])

    return without


def test_packed_samples_are_what_each_is_alone(packing, pair):
    model, two = pair
    found = packing.enable(model, two)
    assert found.dtype == "float32"
    assert found.packed <= found.limit < 3e-5
    assert found.packed < 4 * found.padded, "rounding, as padding rounds"
    one = packing.measure(model, two[:1])
    assert one.packed <= one.limit, "one sample stands for both"


@pytest.mark.parametrize("reset", ["state", "window", "attention"])
def test_without_a_reset_packing_is_refused_with_the_difference(packing, pair, kernels, reset):
    kernels(reset)
    seen = r"packed samples see each other .* differs by [\d.]+, [\d.]+e-05 is allowed"
    with pytest.raises(UserError, match=seen):
        packing.enable(*pair)


@pytest.mark.parametrize("reset", ["", "state", "window", "attention"])
def test_in_bfloat16_rounding_passes_and_a_leak_does_not(packing, pair, kernels, reset):
    import copy

    model = copy.deepcopy(pair[0]).bfloat16()
    if reset:
        kernels(reset)
    found = packing.measure(model, pair[1])
    assert found.dtype == "bfloat16"
    assert (found.packed <= found.limit) == (not reset)


def test_a_kernel_that_fails_on_packed_rows_is_refused_in_one_line(packing, pair, monkeypatch):
    def fails(*_: Any) -> None:
        raise RuntimeError("seq_idx is not supported\nand more")

    monkeypatch.setattr(packing, "_logits", fails)
    with pytest.raises(UserError, match=r"fails here \(seq_idx is not supported\): train with PACKING= "):
        packing.enable(*pair)


def test_no_gradient_crosses_from_one_packed_sample_to_the_other(packing, pair):
    model, two = pair
    packing.enable(model, two)
    collate, seen = packing.packed(0), []
    hook = model.get_input_embeddings().register_forward_hook(
        lambda module, args, out: seen.append(out.requires_grad_()) or out
    )
    try:
        second = [Sample(two[0].input_ids, [-100] * LENGTH, "0", "mcp"), two[1]]
        batch = collate(second)
        model(**batch, use_cache=False).loss.backward(inputs=seen)
    finally:
        hook.remove()
    gradient = seen[0].grad[0]
    assert float(gradient[:LENGTH].abs().max()) == 0.0
    assert float(gradient[LENGTH:].abs().max()) > 0.0


def test_boundaries_are_read_once_a_batch(packing, pair, monkeypatch):
    import torch

    from core import gated_delta

    model, two = pair
    packing.enable(model, two)
    reads, tolist = [], torch.Tensor.tolist

    def counted(self: torch.Tensor) -> Any:
        reads.append(self.shape)
        return tolist(self)

    batch = packing.packed(0)(two)
    gated_delta.sequence_ends.cache_clear()
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(torch.Tensor, "tolist", counted)
        model(**{k: v for k, v in batch.items() if k != "labels"}, use_cache=False)
    assert reads.count(batch["cu_seq_lens_q"].shape) == 1


lengths = st.lists(st.integers(1, 100), min_size=1, max_size=40)


@given(lengths=lengths, shares=st.integers(1, 3), batch=st.integers(1, 9))
def test_every_row_of_a_step_comes_once_however_it_is_grouped(lengths, shares, batch):
    step = list(range(len(lengths)))
    for batches in (
        order.packed(step, lengths, 100, shares),
        order.padded(step, batch, shares),
    ):
        assert sorted(i for one in batches for i in one) == step
        assert len(batches) % shares == 0
    assert all(sum(lengths[i] for i in one) <= 100 for one in order.packed(step, lengths, 100, shares))
    assert all(len(one) <= batch for one in order.padded(step, batch, shares))
    assert order.packed(step, lengths, 100, shares) == order.packed(step, lengths, 100, shares)


@given(lengths=lengths)
def test_packing_fills_the_rows(lengths):
    found = len(order.packed(list(range(len(lengths))), lengths, 100))
    fewest = -(-sum(lengths) // 100)
    assert fewest <= found <= max(2 * fewest - 1, 1)


@pytest.mark.parametrize("words", [("PACKING=1",), ("PACKING=1", "EPOCHS=2"), ("ACCUMULATE=3",), ()])
def test_a_plan_takes_every_row_once_an_epoch_in_steps_of_one_size(base_dir, tmp_path, tokenizer, words):
    chat.write_rows(tmp_path / "rows.jsonl", rows(10))
    read = samples.read(tmp_path / "rows.jsonl", tokenizer, 1024)
    job = Training(tmp_path, base_dir, words).job()
    steps = [[i for batch in step for i in batch] for step in sft.plan(read, job)]
    epochs = 2 if "EPOCHS=2" in words else 1
    assert sorted(i for step in steps for i in step) == sorted(list(range(len(read))) * epochs)
    assert {len(step) for step in steps[:-1]} == {job.batch * job.accumulate}
    assert sft.plan(read, job) == sft.plan(read, job)


def test_processes_share_a_step(base_dir, tmp_path, tokenizer):
    chat.write_rows(tmp_path / "rows.jsonl", rows(10))
    read = samples.read(tmp_path / "rows.jsonl", tokenizer, 1024)
    alone, two = (sft.plan(read, Training(tmp_path, base_dir).job(), n) for n in (1, 2))
    assert len(alone) == len(two)
    for one, shared in zip(alone, two, strict=True):
        assert len(shared) == 2
        assert sorted(i for batch in one for i in batch) == sorted(i for batch in shared for i in batch)


def test_a_process_without_rows_trains_on_nothing(packing, pair):
    for collate in (packing.packed(0), packing.padded(0)):
        batch = collate([])
        assert batch["input_ids"].shape == (1, 2)
        assert bool((batch["labels"] == -100).all())
