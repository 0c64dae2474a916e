"""Every adapter and base that the merge must refuse, by name and before a byte is written."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core import artifacts, shards
from core.errors import UserError
from quant import lora, merge
from tests.merging import (
    ADAPTER,
    BASE,
    DENSE,
    EXPERTS,
    LAYER,
    MERGED,
    WORDS,
    artifact,
    files,
    hand_made,
    make_base,
    peft_model,
    refused,
    work_in,
)

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
Tensors = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("bf16"), "bf16")


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> None:
    """A working directory that holds the bf16 base."""
    work_in(tmp_path, monkeypatch, made)


def save(change: Callable[[Tensors, dict[str, Any]], Any] | None = None, **options: Any) -> None:
    """PEFT's adapter of these options as the run's; `change` edits its tensors and config."""
    from safetensors.torch import load_file, save_file

    with artifact(ADAPTER, "adapter") as draft:
        peft_model(**options).save_pretrained(str(draft.path))
        weights, config_file = draft.path / lora.WEIGHTS, draft.path / lora.CONFIG
        tensors, config = load_file(weights), json.loads(config_file.read_text())
        if change:
            change(tensors, config)
        save_file(tensors, weights, metadata={"format": "pt"})
        config_file.write_text(json.dumps(config))


def renamed(old: str, new: str) -> Callable[[Tensors, Any], None]:
    """Rename tensors."""

    def change(tensors: Tensors, _: Any) -> None:
        for name in list(tensors):
            tensors[name.replace(old, new)] = tensors.pop(name)

    return change


# ---- configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peft_type", "VERA"),
        ("peft_type", "IA3"),
        ("bias", "some"),
        ("trainable_token_indices", [1]),
        ("fan_in_fan_out", True),
        ("use_qalora", True),
        ("alora_invocation_tokens", [1]),
        ("layer_replication", [[0, 2]]),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "loftq"),
        ("lora_B_layout", "sorted"),
        ("r", None),
        ("r", 0),
        ("lora_alpha", None),
        ("use_dora", True),
        ("lora_bias", True),
    ],
)
def test_a_kind_of_adapter_is_refused_by_its_config(field: str, value: Any) -> None:
    hand_made(lambda _, config: config.update({field: value}))
    message = refused()
    assert field in message
    assert repr(value) in message


@pytest.mark.parametrize("field", ["r", "lora_alpha"])
def test_a_forgotten_rank_or_alpha_is_refused(field: str) -> None:
    hand_made(lambda _, config: config.pop(field))
    assert f"{field} is None" in refused()


def test_a_broken_config_is_refused() -> None:
    hand_made()
    (ADAPTER / lora.CONFIG).write_text("{")
    assert "broken JSON" in refused()


# ---- tensors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "word"),
    [
        (f"{LAYER}q_proj.surprise", "no part of a LoRA"),
        (f"{LAYER}q_proj.weight", "no part of a LoRA"),
        (f"{LAYER}q_proj.bias", "no part of a LoRA"),
        ("base_model.model.lm_head.base_layer.weight", "copy of no weight that is adapted"),
        ("base_model.model.model.language_model.embed_tokens.lora_embedding_A", "no lora_embedding_B"),
        ("model.language_model.layers.3.self_attn.q_proj.lora_A.weight", "does not start with"),
        (f"{LAYER}x_proj.lora_A.weight", "no lora_B beside it"),
        (f"{LAYER}x_proj.lora_B.weight", "no lora_A beside it"),
    ],
)
def test_a_leftover_tensor_is_refused(name: str, word: str) -> None:
    hand_made(lambda tensors, _: tensors.update({name: torch.ones(3, 3)}))
    message = refused()
    assert name in message
    assert word in message


@pytest.mark.parametrize("part", ["lora_magnitude_vector", "lora_B.bias"])
def test_a_part_that_the_config_does_not_announce_is_refused(part: str) -> None:
    hand_made(lambda tensors, _: tensors.update({f"{LAYER}q_proj.{part}": torch.ones(128)}))
    message = refused()
    assert f"{LAYER}q_proj" in message
    assert "files of two adapters" in message


@pytest.mark.parametrize(("old", "new"), [("layers.3.", "layers.9."), ("language_model", "text_model")])
def test_names_of_another_model_are_refused(old: str, new: str) -> None:
    hand_made(renamed(old, new))
    message = refused()
    assert new in message
    assert "has no weight in the base" in message


def test_two_pairs_for_one_tensor_are_refused() -> None:
    def double(tensors: Tensors, _: Any) -> None:
        for name in [name for name in tensors if "q_proj" in name]:
            tensors[name.replace("language_model.", "")] = tensors[name].clone()

    hand_made(double)
    assert "both change model.language_model.layers.3.self_attn.q_proj.weight" in refused()


@pytest.mark.parametrize("shape", [(3, 65), (4, 64), (3, 64, 1)])
def test_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    name = f"{LAYER}q_proj.lora_A.weight"
    hand_made(lambda tensors, _: tensors.update({name: torch.ones(shape)}))
    message = refused()
    assert f"{name} {list(shape)}" in message
    assert "[128, 64]" in message


def test_an_empty_adapter_is_refused() -> None:
    hand_made(lambda tensors, _: tensors.clear())
    assert "no LoRA tensors" in refused()


def test_mixed_and_unknown_dtypes_are_refused() -> None:
    name = f"{LAYER}q_proj.lora_A.weight"
    hand_made(lambda tensors, _: tensors.update({name: tensors[name].bfloat16()}))
    assert f"{name} is BF16 and its lora_B F32" in refused()
    hand_made(lambda tensors, _: tensors.update({name: tensors[name].double()}))
    assert f"{name} is F64" in refused()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_value_that_is_no_number_is_named(value: float, dtype: str) -> None:
    def spoil(tensors: Tensors, _: Any) -> None:
        for name in tensors:
            tensors[name] = tensors[name].to(getattr(torch, dtype))
        tensors[f"{LAYER}v_proj.lora_B.weight"][2, 1] = value

    hand_made(spoil)
    message = refused()
    assert f"{lora.WEIGHTS}: {LAYER}v_proj.lora_B.weight holds NaN or Inf" in message


def test_a_change_that_overflows_is_named() -> None:
    hand_made(lambda tensors, _: tensors[f"{LAYER}v_proj.lora_B.weight"].fill_(3e38))
    assert "v_proj.weight is not finite" in refused()


def test_a_change_that_rounding_eats_is_named() -> None:
    hand_made(lambda tensors, _: tensors[f"{LAYER}v_proj.lora_B.weight"].mul_(1e-12))
    assert "v_proj.weight: its change" in refused()


# ---- what the adapter promises -----------------------------------------------------------------

NAME = "base_model.model.model.language_model.layers.1.mlp.shared_expert.up_proj"


def without(part: str) -> Callable[[Tensors, Any], Any]:
    """Drop tensors."""
    return lambda tensors, _: [tensors.pop(name) for name in list(tensors) if part in name]


@pytest.mark.parametrize(
    ("options", "dropped", "named"),
    [
        ({"target_modules": DENSE}, NAME, "layers.1.mlp.shared_expert.up_proj.weight"),
        ({"target_modules": DENSE, "text_only": True}, "layers.3.self_attn.k_proj", "k_proj.weight"),
        ({"target_modules": ["q_proj", "k_proj"]}, ".q_proj", "q_proj.weight"),
        (
            {"target_modules": r".*\.in_proj_(a|b)"},
            "layers.2.linear_attn.in_proj_b",
            "2.linear_attn.in_proj_b",
        ),
        (
            {"target_modules": [], "target_parameters": EXPERTS},
            "layers.2.mlp.experts.",
            "experts.gate_up_proj",
        ),
    ],
    ids=["one of a list", "text only", "all of a kind", "one of a regex", "one layer's experts"],
)
def test_a_missing_module_is_named(options: dict[str, Any], dropped: str, named: str) -> None:
    save(without(dropped), **options)
    message = refused()
    assert "the file is incomplete" in message
    assert named in message


def test_the_depthwise_convolution_is_refused_with_the_reason() -> None:
    def grouped(tensors: Tensors, config: dict[str, Any]) -> None:
        tensors.clear()
        name = "base_model.model.model.language_model.layers.0.linear_attn.conv1d"
        channels = shards.read_checkpoint(BASE)[f"{name.removeprefix(lora.PREFIX)}.weight"].shape[0]
        tensors[f"{name}.lora_A.weight"] = torch.ones(channels, channels, 4)
        tensors[f"{name}.lora_B.weight"] = torch.ones(channels, 1, 1)
        config |= {"r": channels, "target_modules": ["conv1d"]}

    hand_made(grouped)
    assert "mixes channels that the weight keeps apart" in refused()


def test_a_bias_for_a_module_without_one_is_refused() -> None:
    save(target_modules=["q_proj"], lora_bias=True)
    assert "the module of the base does not have" in refused()


# ---- the base ----------------------------------------------------------------------------------


def test_an_adapter_for_another_base_is_refused() -> None:
    with artifact(ADAPTER, "adapter", base={"path": str(BASE), "sha256": "0" * 64}):
        pass
    assert "trained on another base" in refused()


def test_a_tied_embedding_is_refused() -> None:
    from safetensors.torch import load_file

    save(target_modules=["embed_tokens"])
    tensors = {
        n: t for f in shards.shard_files(BASE) for n, t in load_file(f).items() if n != "lm_head.weight"
    }
    shutil.rmtree(BASE)
    with artifact(BASE, "checkpoint") as draft:
        shards.write_checkpoint(draft.path, tensors, max_shard_bytes=500_000)
    assert "ties lm_head" in refused()


def test_a_truncated_shard_is_refused() -> None:
    hand_made()
    shard = shards.shard_files(BASE)[-1]
    os.truncate(shard, shard.stat().st_size - 10)
    message = refused()
    assert str(shard) in message
    assert "truncated" in message


def test_an_index_that_names_a_missing_file_is_refused() -> None:
    hand_made()
    shard = shards.shard_files(BASE)[-1]
    shard.unlink()
    assert f"{shard}: no such shard" in refused()


def test_a_full_disk_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_made()
    monkeypatch.setattr(merge.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert "MODELS_DIR" in refused()


# ---- single bits -------------------------------------------------------------------------------


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def header_bits(path: Path) -> int:
    return 8 * (8 + int.from_bytes(path.read_bytes()[:8], "little"))


@pytest.mark.parametrize("what", ["base", "adapter"])
def test_a_flipped_bit_is_caught(what: str) -> None:
    """100 in each: a header's by reading it, any at all by CHECK_BASE."""
    hand_made()
    rng = random.Random(20261201)
    paths = shards.shard_files(BASE) if what == "base" else [ADAPTER / lora.WEIGHTS]
    for number in range(100):
        path = rng.choice(paths)
        original = path.read_bytes()
        in_header = number % 2 == 0
        bits = header_bits(path)
        flip(path, rng.randrange(bits) if in_header else rng.randrange(bits, 8 * len(original)))
        if in_header:
            refused()
        assert str(path) in refused([*WORDS, "CHECK_BASE=1"])
        path.write_bytes(original)
    merge.main([*WORDS, "CHECK_BASE=1"])


def test_check_base_needs_a_manifest() -> None:
    hand_made()
    words = [
        "PROFILE=tiny",
        "RUN=one",
        "MODELS_DIR=models",
        f"BASE={BASE}",
        f"ADAPTER={ADAPTER}",
        "MERGED=out/x",
    ]
    (BASE / artifacts.MANIFEST).unlink()
    with pytest.raises(UserError, match="no manifest to check it against"):
        merge.main([*words, "CHECK_BASE=1"])
    assert merge.main(words) == 0
    assert files(Path("out/x"), ".index.json") == files(BASE, ".index.json")
    assert not MERGED.exists()
