"""The memory forecast against what autograd keeps, what real steps take, and the 35B's public figures."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import config, profile, shards
from core.settings import TrainSettings
from core.shards import TensorInfo
from tests.test_profiles import PARAMETERS, shapes
from trainer.learning import order
from trainer.planning import forecast, memory, plan

TINY, QWEN = profile.load("tiny"), profile.load("qwen3_6_35b_a3b")
B, T = 2, 128


def settings_of(name: str, models: Path, *words: str) -> TrainSettings:
    given = [f"PROFILE={name}", "RUN=forecast", f"MODELS_DIR={models}", "TRAIN_SEED=100", *words]
    return config.parse(TrainSettings, given)


def kept(model, ids) -> int:
    """Bytes that autograd keeps of a forward pass, each storage once, parameters apart."""
    import torch

    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            found[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model(input_ids=ids, logits_to_keep=1)
        return sum(size for size, _ in found.values())


def counted(model, name: str, base: Path, models: Path, *words: str) -> tuple[int, int]:
    """(bytes that a forward pass of B rows of T tokens keeps, bytes that the formula says)."""
    import torch
    from peft import LoraConfig, get_peft_model

    settings = settings_of(name, models, *words)
    tensors = shards.read_checkpoint(base)
    planned = plan.of(settings, tensors)
    lora = LoraConfig(r=settings.lora_rank, target_modules=planned.pattern)
    prepared = get_peft_model(model, lora).train()
    real = kept(prepared, torch.randint(0, 500, (B, T)))
    said = memory.estimate(
        settings, tensors, memory.read_config(base), planned, tokens=B * T, place="cpu"
    ).activations
    return real, round(said / memory.SLACK["cpu"])


def test_the_formula_is_what_autograd_keeps_of_the_tiny_model(base_dir):
    from core.generate import load_model

    real, said = counted(load_model(base_dir, "float32"), "tiny", base_dir, base_dir.parent)
    assert abs(said / real - 1) < 0.03, (real, said)


@pytest.mark.parametrize(("words", "within"), [((), 0.05), (("LORA_LAYERS=last 2",), 0.1)])
def test_the_formula_is_what_autograd_keeps_of_a_llama(tmp_path, monkeypatch, words, within):
    from transformers import LlamaConfig, LlamaForCausalLM

    small = LlamaConfig(
        hidden_size=96, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
        intermediate_size=256, vocab_size=512, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(small)
    base = tmp_path / "llama"
    model.save_pretrained(base)
    attention = tuple(f"self_attn.{name}_proj" for name in "qkvo")
    mlp = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    llama = replace(
        TINY, name="llama", base="llama", families={"attention": attention, "mlp": mlp}, experts=(),
        lora=replace(TINY.lora, targets=("attention", "mlp")), layers_prefix="model.layers",
        vision_prefix=None, mtp_prefix=None,
    )  # fmt: skip
    monkeypatch.setattr(profile, "load", lambda _: llama)
    real, said = counted(model, "llama", base, tmp_path, *words)
    assert abs(said / real - 1) < within, (real, said)


REAL = {
    "hidden_size": 2048, "num_hidden_layers": 40, "vocab_size": 248_320, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "attn_output_gate": True, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10,
}  # fmt: skip


def real_tensors() -> dict[str, TensorInfo]:
    """The 35B's trainable weights, its experts, and one tensor that stands for all others."""
    sizes: dict[str, tuple[int, ...]] = dict(shapes())
    for layer in range(REAL["num_hidden_layers"]):
        sizes[f"{QWEN.layers_prefix}.{layer}.mlp.experts.gate_up_proj"] = (256, 1024, 2048)
        sizes[f"{QWEN.layers_prefix}.{layer}.mlp.experts.down_proj"] = (256, 2048, 512)
    sizes["others"] = (PARAMETERS - sum(map(math.prod, sizes.values())),)
    return {
        name: TensorInfo(name, Path("x"), "BF16", shape, 0, 2 * math.prod(shape))
        for name, shape in sizes.items()
    }


def real_estimate(tokens: int, **options) -> memory.Estimate:
    tensors = real_tensors()
    words = [f"{name.upper()}={value}" for name, value in options.items()]
    settings = settings_of(QWEN.name, Path("models"), *words)
    planned = plan.of(settings, tensors)
    return memory.estimate(settings, tensors, {"text_config": REAL}, planned, tokens=tokens, place="unified")


def test_the_35b_takes_what_others_measured():
    """Unsloth's documentation says 74 GB; a report of one DGX Spark, with short rows, 72 GB."""
    assert abs(real_estimate(2048).peak / 74e9 - 1) < 0.05
    assert abs(real_estimate(256).peak / 72e9 - 1) < 0.05
    assert real_estimate(8192).peak < 90e9, "the profile's own MEMORY_LIMIT"


def test_trained_experts_are_seen_to_be_too_much_for_a_spark():
    experts = real_estimate(2048, lora_experts=1, lora_dropout=0)
    assert experts.adapter == 16 * (42_332_160 + 2 * 922_746_880)
    assert experts.peak > 100e9


@given(
    lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=20),
    batch=st.integers(1, 9),
    most=st.none() | st.integers(1, 4000),
)
def test_no_device_step_is_larger_than_the_forecast_takes_it_to_be(lengths, batch, most):
    step, foreseen = list(range(len(lengths))), order.tokens_at_once(max(lengths), batch, most)
    batches = order.padded(step, order.rows_at_once(lengths, batch, most))
    assert [i for one in batches for i in one] == step
    assert max(len(one) * max(lengths[i] for i in one) for one in batches) <= foreseen
    assert foreseen <= max(most or foreseen, max(lengths))
    assert foreseen <= batch * max(lengths)


def test_more_than_the_limit_is_told_with_what_to_lower(tmp_path):
    settings = settings_of("tiny", tmp_path, "MEMORY_LIMIT=2")
    assert forecast.too_much(settings, 1_900_000_000) is None
    said = forecast.too_much(settings, 2_100_000_000)
    assert said
    assert said.startswith("2.1 GB of memory at the peak, MEMORY_LIMIT=2 GB: lower BATCH_SIZE")
    assert forecast.too_much(replace(settings, memory_limit=0.0), 10**15) is None


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "length"), [(8, 768), (8, 1024)])
def test_the_forecast_is_within_a_tenth_of_the_tiny_models_peak(base_dir, tmp_path, batch, length):
    """Twenty real steps, the longest rows among them, in a process of their own as `make train` starts it."""
    import json
    import os
    import subprocess
    import sys

    from tests.conftest import ROOT
    from trainer.running.launch import ENVIRONMENT

    command = [sys.executable, "-m", "tests.peak_of_steps", str(base_dir.parent), str(tmp_path), str(batch)]
    command.append(str(length))
    env = os.environ | ENVIRONMENT
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    peak = json.loads(done.stdout.splitlines()[-1])
    assert abs(peak["predicted_mb"] / peak["measured_mb"] - 1) < 0.1, peak
