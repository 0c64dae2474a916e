"""The merge against PEFT's own, bit for bit, over all that PEFT can save."""

import json
from pathlib import Path
from typing import Any

import pytest

from core import shards
from quant import merge
from tests.merging import (
    ATTENTION,
    BASE,
    BASES,
    DENSE,
    EXPERTS,
    MERGED,
    WORDS,
    files,
    headers,
    make_base,
    peft_merge,
    raw,
    work_in,
)

pytest.importorskip("peft")

PATTERNS = {
    "rank_pattern": {"q_proj": 5, r"layers\.1\.linear_attn\.in_proj_.*": 2, "experts.down_proj": 6},
    "alpha_pattern": {"mlp.shared_expert.up_proj": 3, "in_proj_qkv": 11, "experts.gate_up_proj": 9},
}
SAVED = ["lm_head", "mlp.gate", "mlp.experts", "input_layernorm"]

KINDS: dict[str, dict[str, Any]] = {
    "plain": {"target_modules": DENSE},
    "text-only": {"target_modules": DENSE, "text_only": True},
    "rank-1": {"target_modules": DENSE, "r": 1},
    "patterns": {"target_modules": DENSE, "use_rslora": True, **PATTERNS},
    "bf16": {"target_modules": DENSE, "dtype": "bfloat16"},
    "fp16": {"target_modules": DENSE, "dtype": "float16"},
    "regex": {"target_modules": r".*language_model\.layers\.\d+\.(self_attn|linear_attn)\..*proj.*"},
    "some-layers": {"target_modules": DENSE, "layers_to_transform": [1, 3]},
    "vision": {"target_modules": ["attn.qkv"]},
    "vision-conv": {"target_modules": ["patch_embed.proj"]},
    "vision-conv-dora-bf16": {"target_modules": ["patch_embed.proj"], "use_dora": True, "dtype": "bfloat16"},
    "dora": {"target_modules": DENSE, "use_dora": True},
    "dora-text-only-patterns": {
        "target_modules": DENSE, "use_dora": True, "text_only": True, "use_rslora": True, **PATTERNS,
    },
    "dora-bf16": {"target_modules": DENSE, "use_dora": True, "dtype": "bfloat16"},
    "dora-fp16": {"target_modules": DENSE, "use_dora": True, "dtype": "float16"},
    "bias-all": {"target_modules": ["attn.qkv", "q_proj"], "bias": "all"},
    "bias-lora-only": {"target_modules": ["attn.qkv", "q_proj"], "bias": "lora_only"},
    "lora-bias": {"target_modules": ["attn.qkv", "linear_fc1"], "lora_bias": True},
    "lora-bias-bf16": {"target_modules": ["attn.qkv"], "lora_bias": True, "dtype": "bfloat16"},
    "modules-to-save": {"target_modules": ["q_proj"], "modules_to_save": SAVED},
    "modules-to-save-text-only": {
        "target_modules": ["q_proj"], "modules_to_save": [*SAVED, "embed_tokens"], "text_only": True,
    },
    "embeddings": {"target_modules": ["embed_tokens", "lm_head", "q_proj"]},
    "embeddings-text-only": {"target_modules": ["embed_tokens", "lm_head"], "text_only": True},
    "embeddings-bf16": {"target_modules": ["embed_tokens", "lm_head"], "dtype": "bfloat16"},
    "embeddings-dora": {"target_modules": ["embed_tokens", "lm_head"], "use_dora": True},
    "embeddings-dora-bf16": {"target_modules": ["embed_tokens"], "use_dora": True, "dtype": "bfloat16"},
    "experts": {"target_modules": ATTENTION, "target_parameters": EXPERTS},
    "experts-patterns": {"target_modules": [], "target_parameters": EXPERTS, "use_rslora": True, **PATTERNS},
    "experts-text-only": {"target_modules": [], "target_parameters": EXPERTS[::-1], "text_only": True},
    "experts-bf16": {"target_modules": [], "target_parameters": EXPERTS, "dtype": "bfloat16"},
    "experts-fp16": {"target_modules": [], "target_parameters": EXPERTS, "dtype": "float16"},
    "down-experts": {"target_modules": [], "target_parameters": EXPERTS[1:]},
    "gate-up-experts": {"target_modules": [], "target_parameters": EXPERTS[:1], "text_only": True},
    "router": {"target_modules": [], "target_parameters": ["gate.weight"]},
    "router-bf16": {"target_modules": [], "target_parameters": ["gate.weight"], "dtype": "bfloat16"},
    "conv1d": {"target_modules": [], "target_parameters": ["conv1d.weight"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make_base(tmp_path_factory.mktemp(kind), kind) for kind in BASES}


@pytest.mark.filterwarnings("ignore")  # PEFT's on patterns that match no module, saved embeddings, ...
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_peft(
    kind: str, base: str, bases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_in(tmp_path, monkeypatch, bases[base])
    peft = peft_merge(**KINDS[kind])
    merge.main(WORDS)

    before, after = raw(BASE), raw(MERGED)
    kept = {name for name, info in shards.read_checkpoint(BASE).items() if info.dtype == "F32"}
    compared = [name for name in peft if base == "fp32" or name not in kept]
    assert [name for name in compared if peft[name] != after[name]] == []
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in compared if before[name] != peft[name]}
    assert headers(MERGED) == headers(BASE)
    assert files(MERGED, ".index.json") == files(BASE, ".index.json")
    counts = json.loads((MERGED / "manifest.json").read_text())["counts"]
    assert counts["merged"] > 0
    assert counts["tensors"] == len(changed) + counts["copied"] == len(before)
    assert 0 < counts["relative_change"]["min"] <= counts["relative_change"]["max"]
