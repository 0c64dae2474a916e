"""The gated delta rule: true to its recurrence, to transformers' rule and to its own derivatives."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from benchmarks.gated_delta import errors, inputs, recurrence, reference
from core import gated_delta

rule: Callable[..., Any] = gated_delta.chunk_gated_delta_rule
NORMALIZED: dict[str, Any] = {"use_qk_l2norm_in_kernel": True, "output_final_state": True}


def loss(out: Tensor, state: Tensor) -> Tensor:
    """A scalar that weighs every output and state otherwise."""
    random = torch.Generator().manual_seed(0)
    weighed = [(x.double() * torch.randn(x.shape, generator=random).double()).sum() for x in (out, state)]
    return weighed[0] + weighed[1]


def close(found: Tensor, truth: Tensor, tolerance: float) -> bool:
    """No error above `tolerance` times the largest value (or 1)."""
    found, truth = found.detach().double(), truth.detach().double()
    return float((found - truth).abs().max()) <= tolerance * max(1, float(truth.abs().max()))


GATES = st.sampled_from(["usual", "none", "extreme", "one extreme"])
BETAS = st.sampled_from(["usual", "zero", "one"])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 3),
    tokens=st.integers(1, 70),
    heads=st.integers(1, 3),
    dims=st.tuples(st.sampled_from([4, 9, 16]), st.sampled_from([4, 8, 17])),
    chunk=st.sampled_from([None, 1, 7, 16, 64]),
    cached=st.sampled_from([1 << 8, 1 << 11, gated_delta.CACHED]),
    gates=GATES,
    betas=BETAS,
    with_state=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.bfloat16]),
    seed=st.integers(0, 99),
)
def test_output_state_and_gradients_are_those_of_the_recurrence(
    rows: int,
    tokens: int,
    heads: int,
    dims: tuple[int, int],
    chunk: int | None,
    cached: int,
    gates: str,
    betas: str,
    with_state: bool,
    dtype: torch.dtype,
    seed: int,
) -> None:
    query, key, _, g, beta = (x.detach() for x in inputs(rows, tokens, heads, dims[0], seed=seed))
    value = inputs(rows, tokens, heads, dims[1], seed=seed + 100)[2].detach()
    if gates == "none":
        g = torch.zeros_like(g)
    elif gates == "extreme":
        g = g * 1e4
    elif gates == "one extreme":
        g[:, tokens // 2] = -1e4
    beta = {"usual": beta, "zero": torch.zeros_like(beta), "one": torch.ones_like(beta)}[betas]
    state = torch.randn(rows, heads, *dims, generator=torch.Generator().manual_seed(seed))
    x = [t.to(dtype) for t in (query, key, value)] + [g, beta.to(dtype), state]
    x = [t.requires_grad_() for t in (x if with_state else x[:-1])]

    truth = recurrence(*x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gated_delta, "CACHED", cached)
        found = rule(*x[:5], chunk_size=chunk, initial_state=state if with_state else None, **NORMALIZED)
        gradients = torch.autograd.grad(loss(*found), x)
    assert found[0].dtype == dtype
    rounding = {torch.float32: 2e-5, torch.bfloat16: 2e-2}[dtype]
    assert close(found[0], truth[0], rounding)
    assert close(found[1], truth[1], 2e-5)
    for gradient, exact in zip(gradients, torch.autograd.grad(loss(*truth), x), strict=True):
        assert gradient.dtype == exact.dtype
        assert close(gradient, exact, 5 * rounding)


@pytest.mark.parametrize("alike", [False, True])
def test_the_error_is_that_of_transformers_rule(alike: bool) -> None:
    ours, theirs = (errors(one, alike=alike) for one in (rule, reference()))
    assert ours <= (1.5 if alike else 1.1) * theirs


@pytest.mark.parametrize("normalize", [False, True])
def test_drop_in_for_transformers_rule(normalize: bool) -> None:
    x = inputs(2, 150, 4, 32)
    if not normalize:
        x[1] = (x[1] / x[1].norm(dim=-1, keepdim=True)).detach().requires_grad_()
    options = {"use_qk_l2norm_in_kernel": normalize, "output_final_state": True}
    theirs, ours = (one(*x, **options) for one in (reference(), rule))
    for found, expected in zip(ours, theirs, strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert close(found, expected, 2e-6)
    expected_gradients = torch.autograd.grad(loss(*theirs), x)
    for gradient, expected in zip(torch.autograd.grad(loss(*ours), x), expected_gradients, strict=True):
        assert close(gradient, expected, 1e-5)
    assert rule(*x)[1] is None


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("chunk", [3, 4, 16])
def test_the_backward_pass_is_the_derivative_of_the_forward_pass(chunk: int, normalize: bool) -> None:
    x = [t.detach().double().requires_grad_() for t in inputs(1, 11, 2, 4)]
    state = torch.randn(1, 2, 4, 4, dtype=torch.float64).requires_grad_()

    def all_given(*x: Tensor) -> Any:
        options = NORMALIZED | {"use_qk_l2norm_in_kernel": normalize}
        return rule(*x[:5], initial_state=x[5], chunk_size=chunk, **options)

    assert torch.autograd.gradcheck(all_given, (*x, state))


def test_packed_sequences_never_meet() -> None:
    lengths = [5, 40, 0, 1, 33]
    x = inputs(1, sum(lengths), 3, 16)
    state = torch.randn(len(lengths), 3, 16, 16, requires_grad=True)
    ends = torch.tensor([0, *lengths]).cumsum(0)
    packed = rule(*x, initial_state=state, cu_seqlens=ends, **NORMALIZED)
    alone = [
        rule(*parts, initial_state=state[i : i + 1], **NORMALIZED)
        for i, parts in enumerate(zip(*(t.split(lengths, 1) for t in x), strict=True))
    ]
    joined = [
        torch.cat(parts, dim) for dim, parts in ((1, [o for o, _ in alone]), (0, [s for _, s in alone]))
    ]
    assert torch.equal(packed[0], joined[0])
    assert torch.equal(packed[1], joined[1])
    gradients = [torch.autograd.grad(loss(*found), [*x, state]) for found in (packed, joined)]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_autocast_does_not_lower_the_precision() -> None:
    x = inputs(1, 40, 2, 16)
    plain = rule(*x, **NORMALIZED)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = rule(*x, **NORMALIZED)
        gradients = torch.autograd.grad(loss(*cast), x)
    assert torch.equal(plain[0], cast[0])
    assert all(map(torch.equal, gradients, torch.autograd.grad(loss(*plain), x)))


def test_gradient_checkpointing_frees_what_the_backward_pass_needs() -> None:
    x = inputs(1, 200, 2, 16)
    sizes: list[int] = []

    def count(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes)
        return tensor

    def kept(run: Callable[[], Any]) -> tuple[int, tuple[Tensor, ...]]:
        sizes.clear()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            out, _ = run()
        return sum(sizes), torch.autograd.grad(out.sum(), x)

    plain, gradients = kept(lambda: rule(*x))
    checkpointed, same = kept(lambda: checkpoint(rule, *x, use_reentrant=False))
    assert checkpointed < plain / 2
    assert all(map(torch.equal, gradients, same))


@pytest.fixture
def modeling(monkeypatch: pytest.MonkeyPatch):
    """transformers' module with its own rule, put back afterwards whatever was installed."""
    from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as moe

    for name in ("torch_chunk_gated_delta_rule", "causal_conv1d_fn"):
        monkeypatch.setattr(moe, name, getattr(dense, name))
    return moe


@pytest.fixture(scope="module")
def model(base_dir: Path):
    """The tiny base."""
    from core.generate import load_model

    return load_model(base_dir, "float32")


def train_step(model: Any, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits, and the gradient of every parameter that has one."""
    model.zero_grad()
    out = model(input_ids=ids, labels=ids)
    out.loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return out.logits.detach(), gradients


def test_an_installed_rule_changes_neither_training_nor_generation(
    modeling: Any, model: Any, tokenizer: Any
) -> None:
    from core.generate import generate

    ids = torch.randint(5, 900, (2, 150), generator=torch.Generator().manual_seed(0))
    prompts = [f"<|im_start|>user\nCall number {i}<|im_end|>\n<|im_start|>assistant\n" for i in range(20)]
    logits, gradients = train_step(model, ids)
    texts = generate(model, tokenizer, prompts, max_new_tokens=24)
    assert gated_delta.install()
    assert gated_delta.install()
    assert modeling.torch_chunk_gated_delta_rule is rule
    new_logits, new_gradients = train_step(model, ids)
    assert close(new_logits, logits, 2e-6)
    assert new_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert float((new_gradients[name] - gradient).norm()) <= 1e-4 * float(gradient.norm()), name
    assert generate(model, tokenizer, prompts, max_new_tokens=24) == texts


def test_a_packed_row_gives_the_model_the_logits_of_its_sequences(modeling: Any, model: Any) -> None:
    lengths = [37, 1, 90]
    sequences = [torch.randint(5, 900, (1, n), generator=torch.Generator().manual_seed(n)) for n in lengths]
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    ends = torch.tensor([0, *lengths]).cumsum(0)
    gated_delta.install()
    with torch.no_grad():
        alone = torch.cat([model(input_ids=ids).logits for ids in sequences], 1)
        packed = model(
            input_ids=torch.cat(sequences, 1), position_ids=positions, cu_seq_lens_q=ends, use_cache=False
        ).logits
    assert close(packed, alone, 3e-6)


def test_fla_stays_unless_it_is_overruled(
    modeling: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fla.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    theirs = modeling.torch_chunk_gated_delta_rule
    assert not gated_delta.install()
    assert modeling.torch_chunk_gated_delta_rule is theirs
    assert gated_delta.install(over_fla=True)
    assert modeling.torch_chunk_gated_delta_rule is rule


@pytest.mark.slow
def test_fifty_steps_of_training_follow_the_same_loss_curve(modeling: Any, base_dir: Path) -> None:
    from core.generate import load_model

    random = torch.Generator().manual_seed(0)
    batches = [torch.randint(5, 900, (4, 160), generator=random) for _ in range(50)]

    def curve() -> Tensor:
        model = load_model(base_dir, "float32")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for ids in batches:
            optimizer.zero_grad()
            found = model(input_ids=ids, labels=ids).loss
            found.backward()
            optimizer.step()
            losses.append(found.detach())
        return torch.stack(losses)

    theirs = curve()
    gated_delta.install()
    assert theirs[-1] < 0.8 * theirs[0]
    assert float(((curve() - theirs) / theirs).abs().max()) < 1e-3
