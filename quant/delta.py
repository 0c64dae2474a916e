"""QUANT=delta: production's NVFP4 checkpoint with the adapter in it; what is not tuned keeps its bytes.

Production is of the same base, so its weights are the base's quantised, and only the groups that the adapter
touches change. They are merged and quantised anew as a shard passes by, with production's activation scales:
no GPU, no calibration, no merged checkpoint in between.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import shards
from core.artifacts import Draft
from core.errors import UserError
from core.profile import Profile
from core.shards import TensorInfo
from quant import dequantize, lora, merge, mtp, nvfp4
from quant.merging import plan, rows
from quant.merging.stream import Passed, Piece, patched, write_shard
from quant.quantising import choices, keep, provenance, repack
from quant.quantising.repack import Scales
from quant.quantising.touched import OTHER_WAY, Places, Touched

RECIPE = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
"""What config.json says of weights in NVFP4."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a delta is made of."""

    production: Path
    base: Path
    adapter: Path
    profile: Profile
    keep_tuned: bool
    """Whether touched groups stay in BF16 (`quant/quantising/keep.py`)."""


@merge.one_thread_each()
def quantize(job: Job, draft: Draft, *, force: bool) -> None:
    """Write the checkpoint into `draft` and fill its counts.

    Goes on from the shards that an interrupted run finished. UserError on a damaged input, an adapter that
    does not fit the base, a production that does not fit either; Refused where production is not the base in
    NVFP4 and `force` is not set, before a byte is written.
    """
    production, base = shards.read_checkpoint(job.production), shards.read_checkpoint(job.base)
    check_recipe(job.production)
    adapter = lora.read(job.adapter)
    ops = plan.make(adapter, base)
    lora.check_finite(adapter)
    places = Places(production, base, ops, nvfp4.scheme(job.profile))
    touched = places.touched()
    scales = repack.survey(touched.groups)
    findings = provenance.check(places, touched, scales)
    provenance.require(findings, job.production, force=force)

    made = choices.TUNED_IN_BF16 if job.keep_tuned else choices.DELTA
    compared = choices.report(touched, scales, production, job.production, job.profile, made)
    kept = keep.kept(touched.groups) if job.keep_tuned else []
    names = [matrix.module for group in kept for matrix in group]
    write(job, production, touched, scales, names, draft)
    missing = _restore_mtp(job, production, draft.path)
    written = shards.read_checkpoint(draft.path)
    draft.counts |= {
        "tensors": len(written),
        "bytes": sum(info.stop - info.start for info in written.values()),
        "quantized_linears": sum(name.endswith(".weight_packed") for name in written),
        "requantized": sum(len(group) for group in touched.groups) - len(names),
        "kept_in_bf16": len(names),
        "mtp_restored": missing,
        "provenance": findings.recorded(forced=force),
        **compared,
    }


def write(
    job: Job,
    production: Mapping[str, TensorInfo],
    touched: Touched,
    scales: Mapping[str, Scales],
    kept: Sequence[str],
    draft: Draft,
) -> None:
    """Write and verify every shard; the modules `kept` in BF16."""
    files = [file for file in shards.shard_files(job.production) if file.name not in draft.finished]
    merge.require_space(draft.path, sum(file.stat().st_size for file in files))
    if draft.finished:
        print(f"quantize: going on, {len(draft.finished)} shards are finished")
    merge.copy_other_files(job.production, draft.path)

    def one(file: Path, passed: Passed) -> tuple[str, dict[str, Any]]:
        pieces = _pieces(file, touched, scales, kept)
        return write_shard(draft.path / file.name, pieces, passed), {}

    merge.stream("quantize", files, one, draft)
    if kept:
        keep.ignore(draft.path, kept)
    _verify(production, shards.read_checkpoint(draft.path), touched, kept)


def check_recipe(production: Path) -> None:
    """UserError where config.json says another quantisation than NVFP4's, or more than one."""
    groups = dequantize.read_config(production)["quantization_config"].get("config_groups", {})
    for name, group in groups.items():
        weights = group.get("weights") or {}
        for key, value in RECIPE.items():
            if weights.get(key) != value:
                raise UserError(
                    f"{production / 'config.json'}: {name} has weights with {key} {weights.get(key)},"
                    f" expected {value}, as NVFP4 has; {OTHER_WAY}"
                )


def _pieces(file: Path, touched: Touched, scales: Mapping[str, Scales], kept: Sequence[str]) -> list[Piece]:
    loaded = rows.Loaded(2)
    patches: dict[TensorInfo, Piece] = {}
    for at, tuned in touched.plain.items():
        if at.file == file:
            patches[at] = repack.merged(tuned, loaded)
    whole, own = set(kept), {}
    for group in touched.groups:
        for matrix in group:
            if matrix.module in whole:
                if matrix.quantized.packed.file == file:
                    own[matrix.module] = matrix
                continue
            made = repack.pieces(matrix, scales[matrix.module], loaded)
            patches |= {at: piece for at, piece in made.items() if at.file == file}
    if not own:
        return patched(file, patches)
    tensors = list(shards.read_header(file).values())
    return keep.relaid(tensors, own, lambda matrix: repack.weight(matrix, loaded), patches)


def _restore_mtp(job: Job, production: Mapping[str, TensorInfo], target: Path) -> int:
    """Bring the base's MTP head where production lacks the one that it declares; how many tensors."""
    prefix = job.profile.mtp_prefix
    config = json.loads((job.production / "config.json").read_text(encoding="utf-8"))
    declared = config.get("text_config", config).get("mtp_num_hidden_layers")
    if not prefix or not declared or any(name.startswith(prefix) for name in production):
        return 0
    count = mtp.inject(job.base, target)
    if f"re:^{prefix}*" not in dequantize.read_config(target)["quantization_config"]["ignore"]:
        keep.ignore(target, [f"re:^{prefix}*"])
    print(f"quantize: {job.production} has no MTP head; the base's {count} tensors are added")
    return count


def _verify(
    production: Mapping[str, TensorInfo],
    written: Mapping[str, TensorInfo],
    touched: Touched,
    kept: Sequence[str],
) -> None:
    """Check a finished checkpoint by reading its headers, and pages of every tensor that is not tuned."""
    gone = {f"{module}.{part}" for module in kept for part in keep.PARTS}
    expected = {name for name in production if name not in gone} | {f"{module}.weight" for module in kept}
    assert written.keys() == expected, "the checkpoint holds other tensors than production"
    changed = {at.name for at in touched.plain}
    for group in touched.groups:
        for matrix in group:
            whole = matrix.quantized
            changed |= {info.name for info in (whole.packed, whole.scale, whole.global_scale)}
    for name in expected & production.keys():
        ours, theirs = written[name], production[name]
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), f"{name} is laid out anew"
        assert name in changed or merge.sampled(ours) == merge.sampled(theirs), f"{name} is not production's"
