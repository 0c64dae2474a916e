"""Whether production's activation scales still hold the tuned model's activations: an estimate by a forward.

NVFP4 scales each 16 activations by an FP8 number times input_global_scale, which calibration set so that the
largest activation seen gets the largest product, 448 * 6. What is larger is cut off. The forward runs the
merged model in BF16 on a few training rows; the inputs of experts' down_proj are inside their kernel, so they
are not seen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core import chat, generate, shards
from core.shards import TensorInfo
from quant.merging import rows
from quant.quantising import calibration
from quant.quantising.pack import GROUP, MOST
from quant.quantising.provenance import families

if TYPE_CHECKING:
    import torch

SAMPLES, LENGTH = 4, 1024
"""Rows, and the last tokens of each."""
ON_A_CPU = 4_000_000_000
"""Bytes of the largest model that is run without a GPU."""
LIMIT = ".input_global_scale"


@dataclass
class Seen:
    """What a module's inputs were, against the largest that its scale can hold."""

    limit: float
    largest: float = 0.0
    blocks: int = 0
    """Groups of 16 activations."""
    cut: int = 0
    """Those of them with a value beyond the limit."""

    def look(self, inputs: "torch.Tensor") -> None:
        """Count the groups of `inputs` [..., I]."""
        magnitudes = inputs.detach().float().unflatten(-1, (-1, GROUP)).abs().amax(-1)
        self.largest = max(self.largest, magnitudes.max().item())
        self.blocks += magnitudes.numel()
        self.cut += int((magnitudes > self.limit).sum())


def estimate(merged: Path, production: Mapping[str, TensorInfo], dataset: Path) -> dict[str, Any]:
    """Print and return, by family of layers, how much of the activations production's scales would cut off.

    `{"skipped": reason}` where nothing can run the merged model or there are no rows.
    """
    reason = _why_not(merged, dataset)
    if reason:
        print(f"saturation: not estimated, {reason}")
        return {"skipped": reason}
    seen = _forward(merged, limits(production), chat.read_rows(dataset / "train.jsonl"))
    found = {}
    for family, names in families(list(seen)).items():
        own = [seen[name] for name in names]
        blocks, cut = sum(one.blocks for one in own), sum(one.cut for one in own)
        worst = max(one.largest / one.limit for one in own)
        found[family] = {"largest": round(worst, 3), "cut": cut / blocks, "blocks": blocks}
        print(
            f"saturation: {family}: largest input {worst:.2f} of what production's scale holds,"
            f" {cut} of {blocks} groups cut off"
        )
    return found


def limits(production: Mapping[str, TensorInfo]) -> dict[str, float]:
    """The largest activation that each module's scale holds; one for all experts of a layer, where they share
    their input (gate, up)."""
    found = {}
    for name, info in production.items():
        module = name.removesuffix(LIMIT)
        if module == name:
            continue
        experts, _, expert = module.partition(".experts.")
        if expert and not expert.endswith("gate_proj"):
            continue
        scale = float(np.frombuffer(rows.read(info), np.float32)[0])
        module = f"{experts}.experts" if expert else module
        found[module] = min(MOST / scale, found.get(module, float("inf")))
    return found


def _why_not(merged: Path, dataset: Path) -> str | None:
    import torch

    if not (dataset / "train.jsonl").exists():
        return f"{dataset} is not there"
    size = sum(info.stop - info.start for info in shards.read_checkpoint(merged).values())
    if not torch.cuda.is_available():
        return f"no GPU here for a model of {size / 1e9:.0f} GB" if size > ON_A_CPU else None
    free, _ = torch.cuda.mem_get_info()
    lacking = f"the model's {size / 1e9:.0f} GB do not fit into {free / 1e9:.0f} GB of free GPU memory"
    return lacking if free < 1.1 * size else None


def _forward(merged: Path, limits: Mapping[str, float], data: Sequence[chat.Row]) -> dict[str, Seen]:
    import torch
    from transformers import AutoModelForImageTextToText

    tokenizer = generate.load_tokenizer(merged)
    samples = calibration.samples(calibration.choose(data, SAMPLES), tokenizer, LENGTH)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = AutoModelForImageTextToText.from_pretrained(str(merged), dtype="auto", local_files_only=True)
    model = model.to(device)
    seen = {name: Seen(limit) for name, limit in limits.items()}
    for name, one in _hooked(model, seen):
        model.get_submodule(name).register_forward_pre_hook(one)
    with torch.no_grad():
        for sample in samples:
            model(input_ids=torch.tensor([sample], device=device))
    return {name: one for name, one in seen.items() if one.blocks}


def _hooked(model: Any, seen: Mapping[str, Seen]) -> Iterator[tuple[str, Callable[..., None]]]:
    names = {name for name, _ in model.named_modules()}
    for name in names & seen.keys():
        yield name, lambda _, args, name=name: seen[name].look(args[0])
