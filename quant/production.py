"""Production's checkpoint: made here for an embedded profile (its base in NVFP4), else looked for.

It is what `make deploy` replaces and compares with; training needs none.
"""

from pathlib import Path

from core import artifacts, chat, config, errors
from core.settings import BaseSettings
from quant import nvfp4

ROWS = Path("examples/replay.jsonl")
"""What calibrates the embedded one: prompts of what the base knows."""


def main(words: list[str]) -> int:
    """Make production's checkpoint, or record the download; exit code 0, also where it is not there."""
    settings = config.parse(BaseSettings, words)
    profile, path = settings.profile, settings.production_dir
    if not profile.production:
        print(f"production: PROFILE={profile.name} has none")
        return errors.DONE
    if profile.embedded and profile.quant:
        return _make(settings)
    if not (path / "config.json").exists():
        print(f"production: {path} is not there, only deploying needs it:")
        print(f"  hf download {profile.production} --local-dir {path}")
        return errors.DONE
    manifest = artifacts.record(path, kind="checkpoint", profile=profile.name)
    print(f"production: {path}, {len(manifest['files'])} files, sha256 {artifacts.digest(manifest)[:12]}")
    return errors.DONE


def _make(settings: BaseSettings) -> int:
    profile, path, base = settings.profile, settings.production_dir, settings.base_dir
    quant = nvfp4.scheme(profile)
    recorded = {
        **nvfp4.recorded(settings),
        "CALIBRATION_ROWS": quant.calibration_rows,
        "CALIBRATION_LENGTH": quant.calibration_length,
    }
    inputs = {
        "base": artifacts.as_input(base, artifacts.require(base, "base")),
        "replay prompts": {"path": str(ROWS), "sha256": artifacts.file_sha256(ROWS)},
    }
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"production: up to date ({path})")
        return errors.DONE
    rows = chat.read_rows(ROWS)[: quant.calibration_rows]
    with artifacts.create(
        path, kind="checkpoint", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        draft.counts = nvfp4.quantize(base, draft.path, base=base, profile=profile, rows=rows)
    print(f"production: the base in {quant.scheme}, {draft.counts['bytes'] / 1e6:,.1f} MB at {path}")
    return errors.DONE


if __name__ == "__main__":
    errors.run(main)
