"""llm-compressor's oneshot: calibrate and quantise layer by layer, from memory or from the disk.

It keeps the scales of an unfinished calibration in memory alone, so an interrupted run starts anew.
"""

import contextlib
import io
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.profile import Quant
from core.progress import Progress
from core.shards import TensorInfo
from quant import lora, merge

RESERVE = 12_000_000_000
"""Bytes beside the weights of a large model: a layer on the accelerator, the activations of all samples on
both sides of it, a shard being written."""
SHARD_SIZE = "4GB"


def compress(
    source: Path,
    tensors: Mapping[str, TensorInfo],
    target: Path,
    samples: Sequence[list[int]],
    *,
    quant: Quant,
    layers_prefix: str,
    tokenizer: Any,
    memory: int | None = None,
) -> None:
    """Save to `target` what transformers knows of the checkpoint `source`, its Linears in `quant`'s scheme.

    `samples` are token ids; every expert sees every token. `tensors` are the source's: those that are not
    quantised come back as they were. What exceeds `memory` bytes of weights (None: what is free) stays on
    the disk: read from the source, and written to a directory beside `target` that is gone afterwards.
    """
    os.environ.setdefault("LLM_COMPRESSOR_LOG_LEVEL", "ERROR")  # read when it is imported
    import torch
    from datasets import Dataset
    from llmcompressor.entrypoints.oneshot import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier

    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    size = sum(info.stop - info.start for info in tensors.values())
    room = _free(size) if memory is None else memory
    if size > room:
        merge.require_space(target.parent, size - room)
        print(f"quantize: {room / 1e9:.1f} of {size / 1e9:.1f} GB fit in memory, the rest stays on the disk")
    with _folder(target.with_name(target.name + ".offload")) as folder, _quietly():
        model = _load(source, room, folder)
        layers: Any = model.get_submodule(layers_prefix)
        # Each sample passes a layer once for its scales and once, quantised, for the next layer's input.
        progress = Progress("quantize: samples through a layer", 2 * len(layers) * len(samples))
        with _counted(layers, progress):
            oneshot(
                model=model,
                processor=tokenizer,
                recipe=QuantizationModifier(targets="Linear", scheme=quant.scheme, ignore=list(quant.ignore)),
                dataset=Dataset.from_list([{"input_ids": sample} for sample in samples]),
                num_calibration_samples=len(samples),
                max_seq_length=max(map(len, samples)),
                shuffle_calibration_samples=False,
                moe_calibrate_all_experts=True,
            )
        _restore(model, tensors)
        model.save_pretrained(target, max_shard_size=SHARD_SIZE)
    progress.close(f"{len(samples)} samples, {len(layers)} layers")


def _free(size: int) -> int:
    """Bytes of weights that memory can hold beside the work on them."""
    import psutil

    return max(0, psutil.virtual_memory().available - min(RESERVE, size))


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """An empty directory, gone afterwards; what a killed run left there goes first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _load(source: Path, memory: int, folder: Path) -> Any:
    """The model with its experts as Linears, on the CPU up to `memory` bytes and from there on the disk.

    The pipeline brings one decoder layer at a time to the accelerator.
    """
    from compressed_tensors.offload import disable_offloading, load_offloaded_model
    from llmcompressor.modeling.moe.linear_experts import LinearExperts2D
    from llmcompressor.modeling.moe.linearize import get_non_linearized_moes
    from transformers import AutoModelForImageTextToText

    loader: Any = AutoModelForImageTextToText
    with load_offloaded_model(loader):
        model = loader.from_pretrained(
            str(source),
            dtype="auto",
            local_files_only=True,
            device_map="auto_offload",
            max_memory={"cpu": memory},
            offload_folder=str(folder),
        )
    # Layer by layer: `linearize_moe`, for all at once, holds the experts twice.
    for name in [name for name, _ in get_non_linearized_moes(model)]:
        experts = model.get_submodule(name)
        with disable_offloading():  # or each expert would read the whole stack from the disk
            kind = LinearExperts2D.get_linear_experts_cls(type(experts))
            model.set_submodule(name, kind.from_experts_module(experts, experts.config))
    return model


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the libraries' bars and warnings."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def _counted(layers: Iterable[Any], progress: Progress) -> Iterator[None]:
    """`progress` steps whenever a layer has run; on the process's own stderr, whatever is redirected."""

    def step(*_: Any) -> None:
        with contextlib.redirect_stderr(sys.__stderr__):
            progress.step()

    hooks = [layer.register_forward_hook(step) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _restore(model: Any, tensors: Mapping[str, TensorInfo]) -> None:
    """Give every parameter that is not quantised the source's value and dtype again.

    Loading rounds a float32 A_log to the config's dtype, and llm-compressor 0.14 rounds the weight of every
    norm that adds 1 to it: it calibrates with 1 + weight in bfloat16 and subtracts the 1 afterwards
    (`modeling/offset_norm.py`).
    """
    import torch

    for name in [name for name, _ in model.named_parameters() if name in tensors]:
        parent, _, leaf = name.rpartition(".")
        module = model.get_submodule(parent)
        if not hasattr(module, "quantization_scheme"):
            # Anew, for an assignment would round to the dtype that is there.
            delattr(module, leaf)
            module.register_parameter(leaf, torch.nn.Parameter(lora.load(tensors[name]), requires_grad=False))
