"""Adapters and bases for the tests of the merge, and PEFT's own merge beside ours."""

import copy
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, shards
from core.errors import UserError
from quant import merge
from tests import tiny_model

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
ROOT = Path(__file__).parent.parent
WORDS = ["PROFILE=tiny", "RUN=one", "MODELS_DIR=models"]
BASE, MERGED, ADAPTER = Path("models/tiny"), Path("models/one/merged"), Path("out/one/adapter")
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
DELTANET = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
DENSE = [*ATTENTION, *DELTANET, "gate_proj", "up_proj", "shared_expert.down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
LAYER = "base_model.model.model.language_model.layers.3.self_attn."

BASES: dict[str, dict[str, Any]] = {
    "bf16": {"dtype": "bfloat16"},
    "fp32": {"dtype": "float32"},
    "single": {"dtype": "bfloat16", "single_experts": True, "old_norms": True, "intermediate": 24},
}
"""2I > H in the first two, 2I < H in the last."""


def artifact(path: Path, kind: str, **inputs: dict[str, str]) -> Any:
    """An artefact under construction."""
    return artifacts.create(path, kind=kind, profile="tiny", run="one", settings={}, inputs=inputs)


def make_base(directory: Path, kind: str) -> Path:
    """A base as an artefact in a directory that is named as the profile's."""
    with artifact(directory / "tiny", "checkpoint") as draft:
        tiny_model.make(draft.path, **BASES[kind])
    return directory / "tiny"


def work_in(directory: Path, monkeypatch: pytest.MonkeyPatch, base: Path) -> None:
    """Make `directory` the working directory, with a copy of the base in it."""
    monkeypatch.chdir(directory)
    shutil.copytree(base, BASE)


def save_adapter(directory: Path, tensors: dict[str, Any], config: dict[str, Any]) -> None:
    """Write an adapter's two files."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    (directory / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def hand_made(change: Callable[[dict[str, Any], dict[str, Any]], Any] | None = None) -> None:
    """A plain adapter on layer 3's attention as the run's; `change` edits its tensors and config."""
    import torch

    generator = torch.Generator().manual_seed(7)
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "bias": "none", "target_modules": ATTENTION}
    tensors = {}
    infos = shards.read_checkpoint(BASE)
    for name in ATTENTION:
        rows, columns = infos[f"model.language_model.layers.3.self_attn.{name}.weight"].shape
        tensors[f"{LAYER}{name}.lora_A.weight"] = torch.randn(3, columns, generator=generator) * 0.1
        tensors[f"{LAYER}{name}.lora_B.weight"] = torch.randn(rows, 3, generator=generator) * 0.1
    if change:
        change(tensors, config)
    with artifact(ADAPTER, "adapter") as draft:
        save_adapter(draft.path, tensors, config)


def base_model(text_only: bool = False) -> Any:
    """A model of the base that the test may change; the same base is read once for all tests."""
    shard_bytes = files(BASE, ".safetensors")
    digest = hashlib.sha256(b"".join(shard_bytes[name] for name in sorted(shard_bytes))).hexdigest()
    return copy.deepcopy(_loaded(digest, text_only))


@functools.lru_cache(maxsize=len(BASES) * 2)
def _loaded(digest: str, text_only: bool) -> Any:
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeForConditionalGeneration

    return (Qwen3_5MoeForCausalLM if text_only else Qwen3_5MoeForConditionalGeneration).from_pretrained(BASE)


def peft_model(text_only: bool = False, dtype: str = "float32", **options: Any) -> Any:
    """PEFT's model of the base with an adapter whose every trained value is random."""
    import torch
    from peft import LoraConfig, get_peft_model

    fields: dict[str, Any] = {"r": 3, "lora_alpha": 6} | options
    config = LoraConfig(**fields)
    model = get_peft_model(base_model(text_only), config)
    generator = torch.Generator().manual_seed(8)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            noise = torch.randn(parameter.shape, generator=generator) * 0.1
            if "lora_" in name:
                parameter.data = noise.to(getattr(torch, dtype))
            else:
                parameter.data += noise.to(parameter.dtype)
    return model


def peft_merge(text_only: bool = False, **options: Any) -> dict[str, bytes]:
    """Save a random adapter as the run's; return PEFT's merge of it by the checkpoint's names."""
    import torch

    model = peft_model(text_only, **options)
    with artifact(ADAPTER, "adapter") as draft:
        model.save_pretrained(str(draft.path))
    merged = model.merge_and_unload().state_dict()
    if not any(name.endswith("experts.gate_up_proj") for name in shards.read_checkpoint(BASE)):
        merged = tiny_model.unstack(merged)
    if text_only:
        merged = {re.sub(r"^model\.", "model.language_model.", name): t for name, t in merged.items()}
    return {name: t.contiguous().view(torch.uint8).numpy().tobytes() for name, t in merged.items()}


def process(*what: str, words: list[str] = WORDS) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, given the settings."""
    command = [sys.executable, *what, *words]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def raw(directory: Path) -> dict[str, bytes]:
    """Every tensor's bytes."""
    return {name: shards.read_bytes(t) for name, t in shards.read_checkpoint(directory).items()}


def files(directory: Path, suffix: str) -> dict[str, bytes]:
    """The bytes of the files whose name ends in `suffix`."""
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.name.endswith(suffix)}


def headers(directory: Path) -> dict[str, bytes]:
    """The header of every shard, its length included."""
    shard_bytes = files(directory, ".safetensors")
    return {name: b[: 8 + int.from_bytes(b[:8], "little")] for name, b in shard_bytes.items()}


def refused(words: list[str] = WORDS) -> str:
    """The one line with which the merge refuses, having left nothing behind."""
    with pytest.raises(UserError) as caught:
        merge.main(words)
    assert not MERGED.exists()
    assert not MERGED.with_name("merged.partial").exists()
    message = str(caught.value)
    assert "\n" not in message
    return message
