"""A run whose merged checkpoint is quantised by llm-compressor and dequantised again, for tests of both."""

import contextlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from core import artifacts, chat, shards, verdicts
from core.errors import DONE
from quant import dequantize, quantize
from tests import merging

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

ROOT = Path(__file__).parent.parent
WORDS = ["PROFILE=tiny", "RUN=one", "MODELS_DIR=models"]
QUANTIZE = [*WORDS, "QUANT=full", "CALIBRATION_ROWS=4", "CALIBRATION_LENGTH=300"]
BASE, MERGED = Path("models/tiny"), Path("models/one/merged")
NVFP4, BF16, VERDICT = Path("models/one/nvfp4"), Path("models/one/nvfp4-bf16"), Path("out/one/verdict/merged")
LAYERS = "model.language_model.layers"
A_LOG = f"{LAYERS}.0.linear_attn.A_log"
PASSES = {"loss": "no_change", "tool_calls": "improves", "skills": "improves"}


def make(place: Path, base_dir: Path) -> None:
    """Let quantize and dequantize run in a directory, on a merged checkpoint unlike its base.

    Its MTP head is zeroed and one of its A_log is float32, which the config's dtype is not.
    """
    import torch

    with contextlib.chdir(place):
        shutil.copytree(base_dir, BASE)
        merging.hand_made(lambda _, config: config.update(layers_to_transform=[3]))
        tensors = load(BASE)
        tensors |= {n: torch.zeros_like(t) for n, t in tensors.items() if n.startswith("mtp.")}
        tensors[A_LOG] = tensors[A_LOG].float() + 1e-6
        with artifact(MERGED) as draft:
            for file in BASE.iterdir():
                if file.suffix != ".safetensors" and file.name != artifacts.MANIFEST:
                    shutil.copy(file, draft.path)
            shards.write_checkpoint(draft.path, tensors, max_shard_bytes=1_500_000)
        with artifact(Path("data/tiny/dataset"), "dataset") as draft:
            rows = chat.read_rows(ROOT / "examples/replay.jsonl")[:8]
            chat.write_rows(draft.path / "train.jsonl", rows)
        judge(PASSES)
        assert quantize.main(QUANTIZE) == DONE
        assert dequantize.main(WORDS) == DONE


def artifact(path: Path, kind: str = "checkpoint", **inputs: dict[str, str]) -> Any:
    """An artefact under construction."""
    return artifacts.create(path, kind=kind, profile="tiny", run="one", settings={}, inputs=inputs)


def judge(gates: dict[str, str]) -> None:
    """Write a verdict on the merged checkpoint."""
    judged = artifacts.as_input(MERGED, artifacts.require(MERGED, "merge"))
    with artifact(VERDICT, "verdict", checkpoint=judged) as draft:
        found = {"gates": {gate: {"verdict": verdict} for gate, verdict in gates.items()}}
        (draft.path / verdicts.FILE).write_text(json.dumps(found), encoding="utf-8")


def load(checkpoint: Path) -> dict[str, Any]:
    """Every tensor of a checkpoint."""
    from safetensors.torch import load_file

    return {n: t for file in shards.shard_files(checkpoint) for n, t in load_file(file).items()}


def raw(checkpoint: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every tensor's dtype, shape and bytes."""
    found = shards.read_checkpoint(checkpoint).items()
    return {name: (info.dtype, info.shape, shards.read_bytes(info)) for name, info in found}


def quantized_names() -> set[str]:
    """The matrices that the ignore list leaves to NVFP4, as the checkpoint is saved: experts one by one."""
    names = {f"{LAYERS}.{n}.self_attn.{p}_proj" for n in (1, 3) for p in "qkvo"}
    for mlp in (f"{LAYERS}.{n}.mlp" for n in range(4)):
        modules = [f"{mlp}.shared_expert", *(f"{mlp}.experts.{e}" for e in range(8))]
        names |= {f"{module}.{p}_proj" for module in modules for p in ("gate", "up", "down")}
    return names


def matrix(tensors: dict[str, Any], name: str) -> Any:
    """One of `quantized_names` out of tensors in the base's layout, where experts are fused."""
    match = re.fullmatch(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj", name)
    if match is None:
        return tensors[f"{name}.weight"].float()
    experts, index, leaf = match[1], int(match[2]), match[3]
    if leaf == "down":
        return tensors[f"{experts}.down_proj"][index].float()
    return tensors[f"{experts}.gate_up_proj"][index].float().chunk(2)[leaf == "up"]


def relative_errors(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, float]:
    """||found - wanted|| / ||wanted|| of each quantised matrix."""
    pairs = {name: (matrix(found, name), matrix(wanted, name)) for name in quantized_names()}
    return {name: float((one - other).norm() / other.norm()) for name, (one, other) in pairs.items()}


def damage(checkpoint: Path, change: Any) -> None:
    """Write the checkpoint anew with its tensors changed by `change`."""
    tensors = load(checkpoint)
    change(tensors)
    for file in shards.shard_files(checkpoint):
        file.unlink()
    shards.write_checkpoint(checkpoint, tensors, max_shard_bytes=10_000_000)
