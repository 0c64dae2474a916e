"""A BF16 checkpoint -> its NVFP4 one by llm-compressor, vision and MTP as they were."""

import contextlib
import io
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core import config, generate, shards
from core.chat import Row
from core.errors import UserError
from core.profile import Profile, Quant
from core.progress import Progress
from core.render import render
from core.shards import TensorInfo
from quant import dequantize, lora, merge


def scheme(profile: Profile) -> Quant:
    """How the profile's checkpoints are quantised; UserError where they are not."""
    if profile.quant is None:
        raise UserError(f"PROFILE={profile.name} has no NVFP4 stage (quant is None in its profile)")
    return profile.quant


def recorded(settings: Any) -> dict[str, Any]:
    """The settings of a stage that quantises, as its manifest compares them, with the scheme."""
    quant = scheme(settings.profile)
    return {**config.recorded(settings), "SCHEME": quant.scheme, "IGNORE": list(quant.ignore)}


def quantize(
    source: Path, target: Path, *, base: Path, profile: Profile, rows: Sequence[Row]
) -> dict[str, int]:
    """Write the BF16 checkpoint `source` to the directory `target` in the profile's scheme.

    `rows` calibrate the activations' scales, rendered by the source's own chat template; every expert sees
    every token. The MTP head comes from `base`, the files beside the weights from `source`. Returns the
    counts: tensors, bytes, quantised matrices. The same arguments give the same bytes.

    Raises UserError on a damaged checkpoint, a base without the MTP head that the source declares, no rows.
    """
    tensors = shards.read_checkpoint(source)
    size = sum(info.stop - info.start for info in tensors.values())
    mtp = _mtp(source, base, profile)
    merge.require_space(target, size // 2)
    _compress(source, tensors, target, profile, rows)
    if mtp:
        _add_mtp(base, target)
    _complete(source, target)
    written = shards.read_checkpoint(target)
    verify({**tensors, **mtp}, written)
    return {
        "tensors": len(written),
        "bytes": sum(info.stop - info.start for info in written.values()),
        "quantized_linears": sum(name.endswith(".weight_packed") for name in written),
    }


def verify(expected: Mapping[str, TensorInfo], written: Mapping[str, TensorInfo]) -> None:
    """Check a finished checkpoint by reading it: it holds every tensor, untouched ones by the same bytes."""
    restored = dequantize.plan(written)
    assert {n: t.shape for n, t in restored.items()} == {n: t.shape for n, t in expected.items()}
    for name, tensor in restored.items():
        kept = tensor.untouched
        if kept is not None:
            assert kept.dtype == expected[name].dtype, f"{name} is {kept.dtype}"
            assert merge.same_bytes(kept, expected[name]), f"{name} is not the source's"


def _mtp(source: Path, base: Path, profile: Profile) -> dict[str, TensorInfo]:
    """The base's MTP tensors, which transformers neither loads nor saves; none where none is declared."""
    settings = json.loads((source / "config.json").read_text(encoding="utf-8"))
    text = settings.get("text_config", settings)
    if not profile.mtp_prefix or not text.get("mtp_num_hidden_layers"):
        return {}
    found = {n: i for n, i in shards.read_checkpoint(base).items() if n.startswith(profile.mtp_prefix)}
    if not found:
        raise UserError(
            f"{base}: no tensor under {profile.mtp_prefix}, but config.json of {source} declares an MTP head"
            " (mtp_num_hidden_layers); fetch the base again: make base"
        )
    return found


def _compress(
    source: Path, tensors: Mapping[str, TensorInfo], target: Path, profile: Profile, rows: Sequence[Row]
) -> None:
    """Calibrate and quantise layer by layer, and save what transformers knows of the checkpoint."""
    tokenizer = generate.load_tokenizer(source)
    samples = [{"input_ids": sample.input_ids} for row in rows for sample in render(row, tokenizer)]
    if not samples:
        raise UserError("no calibration rows, expected one or more: make dataset")

    os.environ.setdefault("LLM_COMPRESSOR_LOG_LEVEL", "ERROR")  # read when it is imported
    import torch
    from datasets import Dataset
    from llmcompressor.entrypoints.oneshot import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from transformers import AutoModelForImageTextToText

    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    # On the CPU: the pipeline brings one decoder layer at a time to the accelerator.
    model = AutoModelForImageTextToText.from_pretrained(str(source), dtype="auto", local_files_only=True)
    layers: Any = model.get_submodule(profile.layers_prefix)
    # Each sample passes a layer once for its scales and once, quantised, for the next layer's input.
    progress = Progress("quantize: samples through a layer", 2 * len(layers) * len(samples))
    quant = scheme(profile)
    with _quietly(layers, progress):
        oneshot(
            model=model,
            processor=tokenizer,
            recipe=QuantizationModifier(targets="Linear", scheme=quant.scheme, ignore=list(quant.ignore)),
            dataset=Dataset.from_list(samples),
            num_calibration_samples=len(samples),
            shuffle_calibration_samples=False,
            moe_calibrate_all_experts=True,
        )
        _restore(model, tensors)
        model.save_pretrained(target)
    progress.close(f"{len(samples)} samples, {len(layers)} layers")


@contextlib.contextmanager
def _quietly(layers: Iterable[Any], progress: Progress) -> Iterator[None]:
    """Without the libraries' bars and warnings; `progress` steps whenever a layer has run."""
    terminal = sys.stderr

    def step(*_: Any) -> None:
        with contextlib.redirect_stderr(terminal):
            progress.step()

    hooks = [layer.register_forward_hook(step) for layer in layers]
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
        for hook in hooks:
            hook.remove()


def _restore(model: Any, tensors: Mapping[str, TensorInfo]) -> None:
    """Give every parameter that is not quantised the source's value and dtype again.

    Loading rounds a float32 A_log to the config's dtype, and llm-compressor 0.14 rounds the weight of every
    norm that adds 1 to it: it calibrates with 1 + weight in bfloat16 and subtracts the 1 afterwards
    (`modeling/offset_norm.py`).
    """
    import torch
    from compressed_tensors.offload import disable_onloading

    with disable_onloading():  # what is set is then what is saved, on whatever device the module runs
        for name in [name for name, _ in model.named_parameters() if name in tensors]:
            parent, _, leaf = name.rpartition(".")
            module = model.get_submodule(parent)
            if not hasattr(module, "quantization_scheme"):
                setattr(module, leaf, torch.nn.Parameter(lora.load(tensors[name]), requires_grad=False))


def _add_mtp(base: Path, target: Path) -> None:
    """Write the base's MTP tensors to a shard of their own, and `re:^mtp.*` to the ignore list."""
    from compressed_tensors.utils import save_mtp_tensors_to_checkpoint

    save_mtp_tensors_to_checkpoint(str(base), str(target))


def _complete(source: Path, target: Path) -> None:
    """The index, and the files beside the weights: the source's, its config with the quantisation added."""
    quantization = dequantize.read_config(target)["quantization_config"]
    merge.copy_other_files(source, target)
    settings = json.loads((source / "config.json").read_text(encoding="utf-8"))
    dequantize.write_config(target, {**settings, "quantization_config": quantization})
    tensors = [i for file in sorted(target.glob("*.safetensors")) for i in shards.read_header(file).values()]
    total = sum(info.stop - info.start for info in tensors)
    shards.write_index(target, {info.name: info.file.name for info in tensors}, total)
    for file in target.iterdir():
        file.chmod(0o644)
