"""A run that is ready to be quantised: base, production, adapter, merged checkpoint, verdict, dataset."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core import artifacts, chat, profile, shards, verdicts
from quant import lora, merge, nvfp4
from quant.merging import plan

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
ROOT = Path(__file__).parent.parent
WORDS = ["PROFILE=tiny", "RUN=one", "MODELS_DIR=models"]
BASE, PRODUCTION = Path("models/tiny"), Path("models/tiny-production")
MERGED, NVFP4, ADAPTER = Path("models/one/merged"), Path("models/one/nvfp4"), Path("out/one/adapter")
LAYERS = "model.language_model.layers"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
DELTANET = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
SHARED = ("shared_expert.gate_proj", "shared_expert.up_proj", "shared_expert.down_proj")
DENSE = (*ATTENTION, *DELTANET, *SHARED)
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
RANK = 4


def artifact(path: Path, kind: str = "checkpoint", **inputs: dict[str, str]) -> Any:
    """An artefact under construction."""
    return artifacts.create(path, kind=kind, profile="tiny", run="one", settings={}, inputs=inputs)


def as_input(path: Path) -> dict[str, str]:
    """An artefact as another's input."""
    return artifacts.as_input(path, artifacts.require(path, "all"))


def make(place: Path, base: Path) -> None:
    """In `place`: a copy of the tiny `base`, and production made of it by llm-compressor."""
    shutil.copytree(base, place / BASE)
    rows = chat.read_rows(ROOT / "examples/replay.jsonl")[:1]
    with artifact(place / PRODUCTION) as draft:
        oneshot(place / BASE, place / BASE, draft.path, rows)


def oneshot(source: Path, base: Path, target: Path, rows: list[chat.Row], **more: Any) -> None:
    """llm-compressor's NVFP4 of `source`."""
    tiny = profile.load("tiny")
    nvfp4.quantize(source, target, base=base, profile=tiny, rows=rows, length=64, **more)


def adapt(targets: tuple[str, ...] = DENSE, *, size: float = 0.02, experts: bool = False) -> None:
    """Make a random adapter the run's, merge it and let the gates pass it. `size` of lora_B's values."""
    import torch

    generator = torch.Generator().manual_seed(7)

    def half(rows: int, columns: int, scale: float) -> Any:
        return torch.randn(rows, columns, generator=generator) * scale

    tensors = {}
    for name, info in shards.read_checkpoint(BASE).items():
        module = "base_model.model." + name.removesuffix(".weight")
        if not name.startswith(f"{LAYERS}."):
            continue
        if len(info.shape) == 2 and module.endswith(tuple(f".{target}" for target in targets)):
            tensors[f"{module}.lora_A.weight"] = half(RANK, info.shape[1], info.shape[1] ** -0.5)
            tensors[f"{module}.lora_B.weight"] = half(info.shape[0], RANK, size)
        if experts and len(info.shape) == 3 and ".experts." in name:
            module = module.removesuffix(".down_proj").replace(".gate_up_proj", ".base_layer")
            count, rows, columns = info.shape
            tensors[f"{module}.lora_A.weight"] = half(RANK * count, columns, columns**-0.5)
            tensors[f"{module}.lora_B.weight"] = half(rows, RANK * count, size)
    config: dict[str, Any] = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK}
    config |= {"target_modules": list(targets), "target_parameters": EXPERTS if experts else None}
    save_adapter(tensors, config)


def save_adapter(tensors: dict[str, Any], config: dict[str, Any]) -> None:
    """Write the run's adapter, merge it and let the gates pass it."""
    from safetensors.torch import save_file

    with artifact(ADAPTER, "adapter", base=as_input(BASE)) as draft:
        save_file(tensors, draft.path / lora.WEIGHTS, metadata={"format": "pt"})
        (draft.path / lora.CONFIG).write_text(json.dumps(config), encoding="utf-8")
    base = shards.read_checkpoint(BASE)
    with artifact(MERGED, base=as_input(BASE), adapter=as_input(ADAPTER)) as draft:
        merge.write(BASE, base, plan.make(lora.read(ADAPTER), base), draft)
    judge("improves")


def judge(skills: str) -> None:
    """Write a verdict on the merged checkpoint."""
    with artifact(Path("out/one/verdict/merged"), "verdict", checkpoint=as_input(MERGED)) as draft:
        gates = {"tool_calls": {"verdict": "improves"}, "skills": {"verdict": skills}}
        (draft.path / verdicts.FILE).write_text(json.dumps({"gates": gates}), encoding="utf-8")


def dataset() -> None:
    """A few rows as the training set."""
    with artifact(Path("data/tiny/dataset"), "dataset") as draft:
        chat.write_rows(draft.path / "train.jsonl", chat.read_rows(ROOT / "examples/replay.jsonl")[:4])


def payload(path: Path) -> dict[str, bytes]:
    """Every file's bytes, the manifest's apart."""
    return {name: file.read_bytes() for name, file in artifacts.payload(path).items()}


def raw(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every tensor's dtype, shape and bytes."""
    found = shards.read_checkpoint(path).items()
    return {name: (info.dtype, info.shape, shards.read_bytes(info)) for name, info in found}


def change(checkpoint: Path, name: str, edit: Callable[[bytearray], Any]) -> None:
    """Change the bytes of one tensor where it lies."""
    info = shards.read_checkpoint(checkpoint)[name]
    data = bytearray(shards.read_bytes(info))
    edit(data)
    with info.file.open("r+b") as file:
        file.seek(info.start)
        file.write(data)


def rewrite(checkpoint: Path, edit: Callable[[dict[str, Any]], Any], shard_bytes: int = 10_000_000) -> None:
    """Write a checkpoint's shards anew, its tensors changed by `edit`."""
    from safetensors.torch import load_file

    files = shards.shard_files(checkpoint)
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    edit(tensors)
    for file in files:
        file.unlink()
    shards.write_checkpoint(checkpoint, tensors, max_shard_bytes=shard_bytes)
