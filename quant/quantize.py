"""`make quantize`: the merged checkpoint in NVFP4, if its verdict allows it."""

from core import artifacts, chat, config, errors, verdicts
from core.errors import UserError
from core.settings import QuantizeSettings
from quant import nvfp4


def main(words: list[str]) -> int:
    """Quantise the run's merged checkpoint; exit code 0, or 1 where its verdict is no pass.

    `FORCE=1` quantises all the same and is recorded. Raises UserError on a missing or damaged input.
    """
    settings = config.parse(QuantizeSettings, words)
    recorded = nvfp4.recorded(settings)
    source, target, dataset_dir = settings.merged_dir, settings.nvfp4_dir, settings.data_dir / "dataset"
    merged = artifacts.require(source, "merge")
    inputs = {
        "merged": artifacts.as_input(source, merged),
        "dataset": artifacts.as_input(dataset_dir, artifacts.require(dataset_dir, "dataset")),
        "base": artifacts.as_input(settings.base_dir, artifacts.require(settings.base_dir, "base")),
    }
    if merged["inputs"].get("base", inputs["base"])["sha256"] != inputs["base"]["sha256"]:
        raise UserError(f"{source}: merged into another base than {settings.base_dir} is today: make merge")
    verdict, passes = _verdict(settings)
    if not passes and not settings.force:
        print(f"quantize: refused, {verdict}; to quantise all the same: make quantize FORCE=1")
        return errors.NEGATIVE
    if not artifacts.differences(artifacts.read_manifest(target), recorded, inputs):
        print(f"quantize: up to date ({target})")
        return errors.DONE
    rows = chat.read_rows(dataset_dir / "train.jsonl")[: settings.calibration_rows]
    with artifacts.create(
        target,
        kind="checkpoint",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        counts = nvfp4.quantize(
            source, draft.path, base=settings.base_dir, profile=settings.profile, rows=rows
        )
        draft.counts = {**counts, "verdict": verdict, "forced": not passes}
    print(
        f"quantize: {counts['quantized_linears']} matrices of {counts['tensors']} tensors in"
        f" {recorded['SCHEME']}, {counts['bytes'] / 1e6:,.1f} MB in {target}; verdict: {verdict}"
    )
    return errors.DONE


def _verdict(settings: QuantizeSettings) -> tuple[str, bool]:
    """What the gates say of the merged checkpoint, and whether that lets it pass."""
    try:
        verdict = verdicts.read(settings.out_dir, "merged", settings.merged_dir)
    except UserError as error:
        return str(error), False
    return str(verdict), verdict.passes


if __name__ == "__main__":
    errors.run(main)
