"""A base read shard by shard, each let go of before the next.

transformers maps every shard into memory until all are loaded. Where a GPU shares the system's memory, the
checkpoint is then there twice: 134 GB where 72 GB would do, on a GB10. Here one shard is mapped at a
time, and its pages leave the page cache as soon as its tensors are copied.
"""

import os
from pathlib import Path
from typing import Any

from core import generate, shards
from core.progress import Progress


def load(checkpoint: Path, dtype: str, tokens: int) -> Any | None:
    """The model of `generate.load_model`, on the same device; the arguments are its own.

    None where the checkpoint's names or shapes are not the model's, so that transformers must convert them.
    """
    import torch
    from safetensors import safe_open

    device = generate.device()
    model = generate.empty_model(checkpoint, dtype, tokens)
    infos = shards.read_checkpoint(checkpoint)
    empty = {name: parameter for name, parameter in model.named_parameters() if parameter.is_meta}
    if any(name not in infos or infos[name].shape != tuple(p.shape) for name, p in empty.items()):
        return None
    files = sorted({infos[name].file for name in empty})
    progress = Progress("load: shards", len(files))
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in (name for name in empty if infos[name].file == file):
                value = torch.empty(empty[name].shape, dtype=empty[name].dtype, device=device)
                value.copy_(tensors.get_tensor(name))
                _put(model, name, value)
        let_go(file)
        progress.step()
    progress.close()
    model.tie_weights()
    return model.to(device).eval()


def let_go(file: Path) -> None:
    """Drop a file's pages from the page cache, where the system can."""
    if hasattr(os, "posix_fadvise"):
        handle = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def _put(model: Any, name: str, value: Any) -> None:
    import torch

    module, _, leaf = name.rpartition(".")
    model.get_submodule(module)._parameters[leaf] = torch.nn.Parameter(value, requires_grad=False)
