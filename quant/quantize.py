"""`make quantize`: the run's checkpoint in NVFP4, if the verdict on the merged one allows it.

Two ways (QUANT). delta takes production's NVFP4 checkpoint and changes what the adapter touches
(`quant/delta.py`); full calibrates the merged checkpoint anew by llm-compressor (`quant/nvfp4.py`). Their
weights are the same to the bit; what differs are the scales of the activations.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, errors, shards, verdicts
from core.artifacts import Draft
from core.errors import UserError, did_you_mean
from core.settings import QuantizeSettings
from quant import delta, lora, nvfp4
from quant.delta import Job
from quant.merging import plan
from quant.quantising import calibration, choices, recipe, saturation

Inputs = dict[str, dict[str, str]]
VALUES = {"QUANT": ("full", "delta"), "KEEP_TUNED": ("", "bf16")}
ONLY_FULL = ("CALIBRATION_ROWS", "CALIBRATION_LENGTH")
"""Settings that change nothing of a delta."""


def main(words: list[str]) -> int:
    """Quantise the run's checkpoint; exit code 0, or 1 where verdict or provenance do not let it pass.

    `FORCE=1` quantises all the same and is recorded. Raises UserError on a missing or damaged input.
    """
    settings = config.parse(QuantizeSettings, words)
    for name, allowed in VALUES.items():
        if (value := getattr(settings, name.lower())) not in allowed:
            known = " or ".join(word or "blank" for word in allowed)
            raise UserError(f"{name}={value}: expected {known}{did_you_mean(value, allowed)}")
    recorded = nvfp4.recorded(settings)
    if settings.quant == "delta":
        recorded = {name: value for name, value in recorded.items() if name not in ONLY_FULL}
    verdict, passes = _verdict(settings)
    if not passes and not settings.force:
        print(f"quantize: refused, {verdict}; to quantise all the same: make quantize FORCE=1")
        return errors.NEGATIVE
    inputs = _inputs(settings)
    target = settings.nvfp4_dir
    if not artifacts.differences(artifacts.read_manifest(target), recorded, inputs):
        print(f"quantize: up to date ({target})")
        return errors.DONE
    ways: dict[str, Callable[[QuantizeSettings, Draft], None]] = {"full": _full, "delta": _delta}
    with artifacts.create(
        target,
        kind="checkpoint",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
        resume=settings.quant == "delta",
    ) as draft:
        ways[settings.quant](settings, draft)
        draft.counts |= {"verdict": verdict, "forced": not passes}
    print(
        f"quantize: {draft.counts['quantized_linears']} matrices of {draft.counts['tensors']} tensors in"
        f" {recorded['SCHEME']}, {draft.counts['bytes'] / 1e6:,.1f} MB in {target}; verdict: {verdict}"
    )
    return errors.DONE


def _delta(settings: QuantizeSettings, draft: Draft) -> None:
    job = Job(
        production=settings.production_dir,
        base=settings.base_dir,
        adapter=settings.out_dir / "adapter",
        profile=settings.profile,
        keep_tuned=bool(settings.keep_tuned),
    )
    delta.quantize(job, draft, force=settings.force)
    production = shards.read_checkpoint(job.production)
    dataset = settings.data_dir / "dataset"
    draft.counts["saturation"] = saturation.estimate(settings.merged_dir, production, dataset)


def _full(settings: QuantizeSettings, draft: Draft) -> None:
    adapter, base = settings.out_dir / "adapter", shards.read_checkpoint(settings.base_dir)
    recipe.check_widths(base, settings.profile)
    ops = plan.make(lora.read(adapter), base) if artifacts.read_manifest(adapter) else []
    rows = chat.read_rows(settings.data_dir / "dataset" / "train.jsonl")
    draft.counts |= nvfp4.quantize(
        settings.merged_dir,
        draft.path,
        base=settings.base_dir,
        profile=settings.profile,
        rows=calibration.choose(rows, settings.calibration_rows),
        length=settings.calibration_length,
        keep=recipe.tuned(ops, base, settings.profile) if settings.keep_tuned else (),
    )
    if ops:
        draft.counts |= choices.after(draft.path, base, ops, settings.profile, kept=bool(settings.keep_tuned))


def _inputs(settings: QuantizeSettings) -> Inputs:
    """What the checkpoint is made of; UserError where something is missing or is not what was merged."""

    def made(path: Path, target: str) -> dict[str, str]:
        return artifacts.as_input(path, artifacts.require(path, target))

    adapter = settings.out_dir / "adapter"
    found = {"merged": made(settings.merged_dir, "merge"), "base": made(settings.base_dir, "base")}
    if settings.quant == "delta":
        found["production"] = _production(settings)
    else:
        found["dataset"] = made(settings.data_dir / "dataset", "dataset")
    # Calibrating anew needs no adapter, only to keep what it tuned and to say what is left of that.
    if settings.quant == "delta" or settings.keep_tuned or artifacts.read_manifest(adapter):
        found["adapter"] = made(adapter, "train")
    merged = artifacts.require(settings.merged_dir, "merge")["inputs"]
    for name in merged.keys() & {"base", "adapter"} & found.keys():
        if merged[name]["sha256"] != found[name]["sha256"]:
            raise UserError(
                f"{settings.merged_dir}: merged from another {name} than {found[name]['path']} is today:"
                " make merge"
            )
    return found


def _production(settings: QuantizeSettings) -> dict[str, Any]:
    path, profile = settings.production_dir, settings.profile
    if not (path / "config.json").exists():
        raise UserError(
            f"{path}: no checkpoint; QUANT=delta starts from production's: hf download {profile.production}"
            f" --local-dir {path}, or name another by PRODUCTION, or calibrate anew: make quantize QUANT=full"
        )
    manifest = artifacts.read_manifest(path)
    return artifacts.as_input(
        path, manifest or artifacts.record(path, kind="checkpoint", profile=profile.name)
    )


def _verdict(settings: QuantizeSettings) -> tuple[str, bool]:
    """What the gates say of the merged checkpoint, and whether that lets it pass."""
    try:
        verdict = verdicts.read(settings.out_dir, "merged", settings.merged_dir)
    except UserError as error:
        return str(error), False
    return str(verdict), verdict.passes


if __name__ == "__main__":
    errors.run(main)
