"""A BF16 checkpoint -> its NVFP4 one by llm-compressor, vision and MTP as they were."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core import config, generate, shards
from core.chat import Row
from core.errors import UserError
from core.profile import Profile, Quant
from core.shards import TensorInfo
from core.yaml_files import read_yaml
from quant import dequantize, merge
from quant.deploying import preflight
from quant.inspecting.modules import stacked
from quant.quantising import calibration, oneshot

RECIPE = "recipe.yaml"
"""What llm-compressor did, beside the weights; it appends to the source's."""


def scheme(profile: Profile) -> Quant:
    """How the profile's checkpoints are quantised; UserError where they are not, or with the KV cache."""
    if profile.quant is None:
        raise UserError(f"PROFILE={profile.name} has no NVFP4 stage (quant is None in its profile)")
    if profile.quant.kv_cache_scheme:
        raise _kv_cache(f"PROFILE={profile.name}", profile.quant.kv_cache_scheme)
    return profile.quant


def recorded(settings: Any) -> dict[str, Any]:
    """The settings of a stage that quantises, as its manifest compares them, with the scheme."""
    quant = scheme(settings.profile)
    return {**config.recorded(settings), "SCHEME": quant.scheme, "IGNORE": list(quant.ignore)}


def quantize(
    source: Path,
    target: Path,
    *,
    base: Path,
    profile: Profile,
    rows: Sequence[Row],
    length: int | None = None,
    memory: int | None = None,
    keep: Sequence[str] = (),
) -> dict[str, int]:
    """Write the BF16 checkpoint `source` to the directory `target` in the profile's scheme.

    `rows` calibrate the activations' scales by their last `length` tokens (None: the profile's); every
    expert sees every token. Of the weights at most `memory` bytes are held in memory (None: what is free).
    The MTP head, tokenizer, chat template and preprocessors come from `base`, the files beside from `source`.
    The modules `keep` stay in BF16 beside those of the profile's ignore list. Returns the counts: tensors,
    bytes, quantised matrices. The same checkpoints, rows and length give the same bytes, whatever the memory.

    Raises UserError on a damaged checkpoint, one that is quantised already, a KV cache scheme, a base without
    the MTP head that the source declares, no rows.
    """
    quant = scheme(profile)
    quant = replace(quant, ignore=(*quant.ignore, *keep))
    tensors = shards.read_checkpoint(source)
    size = sum(info.stop - info.start for info in tensors.values())
    _refuse(source)
    mtp = _mtp(source, base, profile)
    merge.require_space(target, size // 2)
    tokenizer = generate.load_tokenizer(base)
    oneshot.compress(
        source,
        tensors,
        target,
        calibration.samples(rows, tokenizer, length or quant.calibration_length),
        quant=quant,
        layers_prefix=profile.layers_prefix,
        tokenizer=tokenizer,
        memory=memory,
    )
    finish(source, target, base=base, mtp=bool(mtp))
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
    assert {stacked(name) for name in restored} == {stacked(name) for name in expected}
    for name, tensor in restored.items():
        if name not in expected:  # a stack of what the source keeps expert by expert
            continue
        assert tensor.shape == expected[name].shape, f"{name} is {tensor.shape}"
        kept = tensor.untouched
        if kept is not None:
            assert kept.dtype == expected[name].dtype, f"{name} is {kept.dtype}"
            assert merge.same_bytes(kept, expected[name]), f"{name} is not the source's"


def finish(source: Path, target: Path, *, base: Path, mtp: bool) -> None:
    """Give a quantised `target` the base's MTP head, an index, and the files beside the weights.

    Whatever of it is there already is made anew: the second time changes nothing.
    """
    if mtp:
        _add_mtp(base, target)
    quantization = dequantize.read_config(target)["quantization_config"]
    recipe = (target / RECIPE).read_bytes()
    merge.copy_other_files(source, target)
    (target / RECIPE).write_bytes(recipe)
    for name in (name for names, _ in preflight.ROLES.values() for name in names):
        if (base / name).is_file():
            shutil.copyfile(base / name, target / name)
    settings = json.loads((source / "config.json").read_text(encoding="utf-8"))
    dequantize.write_config(target, {**settings, "quantization_config": quantization})
    tensors = [i for file in sorted(target.glob("*.safetensors")) for i in shards.read_header(file).values()]
    total = sum(info.stop - info.start for info in tensors)
    shards.write_index(target, {info.name: info.file.name for info in tensors}, total)
    for file in target.iterdir():
        file.chmod(0o644)


def _refuse(source: Path) -> None:
    """UserError where the source is quantised, or its recipe would be carried on with a KV cache scheme."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    if "quantization_config" in config:
        raise UserError(f"{source}: quantised already; expected the merged BF16 checkpoint: make merge")
    recipe = read_yaml(source / RECIPE) if (source / RECIPE).exists() else None
    if found := _value_of("kv_cache_scheme", recipe):
        raise _kv_cache(str(source / RECIPE), found)


def _value_of(key: str, node: Any) -> Any:
    """The first value of `key` that is set, anywhere in nested mappings and lists; None without."""
    if isinstance(node, dict) and node.get(key):
        return node[key]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return next((found for child in children if (found := _value_of(key, child))), None)


def _kv_cache(where: str, found: Any) -> UserError:
    return UserError(
        f"{where}: kv_cache_scheme is {found}, expected none: calibrated in one recipe with NVFP4 it corrupts"
        " the weights' scales; remove it: the server quantises its cache by itself (--kv-cache-dtype fp8)"
    )


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


def _add_mtp(base: Path, target: Path) -> None:
    """Write the base's MTP tensors to a shard of their own, and `re:^mtp.*` to the ignore list."""
    from compressed_tensors.utils import save_mtp_tensors_to_checkpoint

    save_mtp_tensors_to_checkpoint(str(base), str(target))
