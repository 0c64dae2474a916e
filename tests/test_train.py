"""Training: what is trained is what was planned, by a backend chosen for a reason, or the run stops."""

import json

import pytest

from core import profile, shards
from core.errors import UserError
from trainer import backends
from trainer.planning.plan import check_trained, make_plan

TINY = profile.load("tiny")


@pytest.fixture(scope="module")
def plan(base_dir):
    return make_plan(TINY, shards.read_checkpoint(base_dir), rank=16)


@pytest.fixture(scope="module")
def trainable(base_dir, plan):
    """Names and sizes of the parameters that PEFT makes trainable on the real model."""
    from peft import LoraConfig, get_peft_model

    from core.generate import load_model

    model = get_peft_model(load_model(base_dir, "float32"), LoraConfig(r=16, target_modules=plan.pattern))
    return {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}


def test_the_plan_is_what_peft_trains(plan, trainable):
    check_trained(trainable, plan)
    assert len(trainable) == 2 * len(plan.modules)


def test_neither_experts_nor_router_nor_vision_nor_mtp_are_planned(plan):
    for name in plan.modules:
        assert name.startswith("model.language_model.layers.")
        assert not {"experts", "gate", "shared_expert_gate"} & set(name.split("."))


@pytest.mark.parametrize("fault", ["one module too few", "a router too many", "a larger rank"])
def test_training_other_than_planned_is_caught(plan, trainable, fault):
    changed = dict(trainable)
    if fault == "one module too few":
        path = plan.modules[0].split("language_model.")[1]
        changed = {name: size for name, size in trainable.items() if path not in name}
    elif fault == "a router too many":
        changed["base_model.model.model.language_model.layers.0.mlp.gate.weight"] = 1024
    else:
        changed = {name: 2 * size for name, size in trainable.items()}
    with pytest.raises(AssertionError):
        check_trained(changed, plan)


def test_a_base_without_a_family_is_refused(base_dir):
    tensors = shards.read_checkpoint(base_dir)
    fused = {name.replace("in_proj_qkv", "in_proj_qkvz"): info for name, info in tensors.items()}
    with pytest.raises(UserError, match=r"linear_attn\.in_proj_qkv\.weight.*make verify"):
        make_plan(TINY, fused, rank=16)


def test_the_first_available_backend_is_chosen_and_the_others_have_a_reason(monkeypatch):
    both = profile.load("qwen3_6_35b_a3b")
    monkeypatch.setattr(backends.module("unsloth"), "unavailable", lambda _: "no CUDA device")
    assert backends.choose(both, "") == ("plain", {"unsloth": "no CUDA device"})
    monkeypatch.setattr(backends.module("unsloth"), "unavailable", lambda _: None)
    assert backends.choose(both, "") == ("unsloth", {})


def test_a_forced_backend_that_cannot_run_is_an_error_not_a_fallback(monkeypatch):
    both = profile.load("qwen3_6_35b_a3b")
    monkeypatch.setattr(backends.module("unsloth"), "unavailable", lambda _: "no CUDA device")
    with pytest.raises(UserError, match="unsloth: no CUDA device"):
        backends.choose(both, "unsloth")
    with pytest.raises(UserError, match="did you mean unsloth"):
        backends.choose(both, "unslot")


def test_the_adapter_is_in_peft_layout_and_says_what_was_trained(project):
    adapter = project / "out/mini/adapter"
    manifest = json.loads((adapter / "manifest.json").read_text())
    rule = "core/gated_delta.py (fla: not installed)"
    attention = "sdpa (flash-attention: not installed)"
    kernels = {"gated_delta": rule, "attention": attention}
    assert manifest["backend"] == {"name": "plain", "reasons": {}, **kernels}
    assert manifest["counts"]["modules"] == 30
    assert manifest["peak_mb"] >= manifest["counts"]["peak"]["host_mb"] > 400, (
        "the training's, not the parent's"
    )
    assert manifest["counts"]["tokens_per_second"] > 0
    names = shards.read_header(adapter / "adapter_model.safetensors")
    assert len(names) == 60
    assert all(name.startswith("base_model.model.model.language_model.layers.") for name in names)
    assert len((adapter / "loss.jsonl").read_text().splitlines()) == manifest["counts"]["steps"]
    assert (adapter / "loss.png").stat().st_size > 1000
    assert not (project / "out/mini/states").exists()
