"""Profiles: every file loads and holds together; the 35B one keeps its promises."""

import hashlib
import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from core import profile
from core.errors import UserError
from core.shards import match_names

NAMES = profile.names()
QWEN = profile.load("qwen3_6_35b_a3b")

# Qwen3.6-35B-A3B: 40 decoder layers, each fourth of full attention; [out, in] of what is trained.
LAYERS, EVERY = 40, 4
ATTENTION = {
    "self_attn.q_proj": (8192, 2048),
    "self_attn.k_proj": (512, 2048),
    "self_attn.v_proj": (512, 2048),
    "self_attn.o_proj": (2048, 4096),
}
GATED_DELTANET = {
    "linear_attn.in_proj_qkv": (8192, 2048),
    "linear_attn.in_proj_z": (4096, 2048),
    "linear_attn.in_proj_b": (32, 2048),
    "linear_attn.in_proj_a": (32, 2048),
    "linear_attn.out_proj": (2048, 4096),
}
SHARED_EXPERT = {
    "mlp.shared_expert.gate_proj": (512, 2048),
    "mlp.shared_expert.up_proj": (512, 2048),
    "mlp.shared_expert.down_proj": (2048, 512),
}
PARAMETERS = 35_107_181_936


def shapes() -> dict[str, tuple[int, int]]:
    """Shapes of the 35B model's decoder weights that an adapter may train, by tensor name."""
    found = {}
    for layer in range(LAYERS):
        mixer = ATTENTION if layer % EVERY == EVERY - 1 else GATED_DELTANET
        for path, shape in (mixer | SHARED_EXPERT).items():
            found[f"model.language_model.layers.{layer}.{path}.weight"] = shape
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_is_named_after_its_file(name: str) -> None:
    assert profile.load(name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_every_trained_family_is_one_of_the_profile(name: str) -> None:
    one = profile.load(name)
    assert set(one.lora.targets) <= set(one.families)
    assert len(set(one.target_paths)) == len(one.target_paths) > 0


@pytest.mark.parametrize("name", NAMES)
def test_no_module_stands_in_two_fused_groups(name: str) -> None:
    quant = profile.load(name).quant
    fused = [path for group in quant.fused for path in group] if quant else []
    assert len(set(fused)) == len(fused)


@pytest.mark.parametrize("name", NAMES)
def test_training_figures_are_sane(name: str) -> None:
    one = profile.load(name)
    assert one.lora.rank > 0
    assert one.lora.alpha > 0
    assert 0 <= one.lora.dropout < 1
    assert 0 < one.train.lr < 1
    assert min(one.train.epochs, one.train.max_length, one.train.batch, one.train.accumulate) > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_base_is_known_by_the_last_part_of_its_hub_name(name: str) -> None:
    one = profile.load(name)
    assert "/" not in one.base_name
    assert one.base.endswith(one.base_name)


def test_an_unknown_profile_is_refused_with_the_nearest_and_all() -> None:
    with pytest.raises(UserError) as caught:
        profile.load("qwen3_6_35b")
    assert str(caught.value) == (
        "PROFILE=qwen3_6_35b: no such profile (did you mean qwen3_6_35b_a3b?); have " + ", ".join(NAMES)
    )


@pytest.mark.parametrize("name", ["", "__init__", "../profile", "tiny.py"])
def test_only_profiles_are_loaded(name: str) -> None:
    with pytest.raises(UserError, match="no such profile"):
        profile.load(name)


def targets() -> list[str]:
    """Names of the 35B model's weights that the profile trains."""
    paths, prefix = QWEN.target_paths, QWEN.layers_prefix
    return [name for path in paths for name in match_names(shapes(), prefix, path)]


def test_the_35b_adapter_trains_310_modules() -> None:
    assert len(targets()) == len(set(targets())) == 310


def test_the_35b_adapter_has_42_million_parameters() -> None:
    trained = sum(QWEN.lora.rank * sum(shapes()[name]) for name in targets())
    assert trained == 42_332_160
    assert round(100 * trained / PARAMETERS, 2) == 0.12


def test_the_35b_adapter_leaves_vision_mtp_router_and_experts_alone() -> None:
    kept = [
        "model.visual.blocks.0.attn.qkv.weight",
        "mtp.layers.0.self_attn.q_proj.weight",
        "model.language_model.layers.0.mlp.gate.weight",
        "model.language_model.layers.0.mlp.shared_expert_gate.weight",
        "model.language_model.layers.0.mlp.experts.gate_up_proj",
        "model.language_model.layers.0.linear_attn.conv1d.weight",
        "model.language_model.embed_tokens.weight",
        "lm_head.weight",
    ]
    for path in QWEN.target_paths:
        assert match_names(kept, QWEN.layers_prefix, path) == []
    assert QWEN.lora.experts is False


def test_the_35b_recipe_is_the_promised_one() -> None:
    lora, train = QWEN.lora, QWEN.train
    assert (lora.rank, lora.alpha, lora.dropout) == (32, 64, 0.05)
    assert (train.lr, train.schedule, train.epochs) == (1e-4, "cosine", 2)
    assert (train.max_length, train.save_steps, train.dtype) == (8192, 50, "bfloat16")
    assert QWEN.production == "RedHatAI/Qwen3.6-35B-A3B-NVFP4"


def test_the_tiny_profile_stands_for_the_35b_one() -> None:
    tiny = profile.load("tiny")
    assert tiny.embedded
    assert tiny.families == QWEN.families
    assert tiny.lora.targets == QWEN.lora.targets
    assert tiny.chat_template == QWEN.chat_template
    assert tiny.quant is not None
    assert QWEN.quant is not None
    shorter = {"calibration_rows": QWEN.quant.calibration_rows}
    shorter |= {"calibration_length": QWEN.quant.calibration_length}
    assert replace(tiny.quant, **shorter) == QWEN.quant
    assert (tiny.layers_prefix, tiny.vision_prefix, tiny.mtp_prefix) == (
        QWEN.layers_prefix,
        QWEN.vision_prefix,
        QWEN.mtp_prefix,
    )


@pytest.mark.parametrize("name", [n for n in NAMES if profile.load(n).template_source])
def test_the_template_that_trl_ships_is_the_production_servers(name: str) -> None:
    one = profile.load(name)
    spec = importlib.util.find_spec("trl")
    assert spec and spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / "chat_templates" / one.template_source
    assert hashlib.sha256(file.read_bytes()).hexdigest() == one.chat_template
