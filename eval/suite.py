"""`make eval`: base and one checkpoint of the run on the same held-out rows, and the verdict of the gates.

Exit code 1 where the verdict is no pass and FORCE is blank.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core import artifacts, config, errors, verdicts
from core.errors import UserError
from core.settings import EvalSettings
from core.verdicts import Verdict
from eval import measure, report, table
from eval.verdict import judge

CHECKPOINTS = ("merged", "nvfp4")


def main(words: list[str]) -> int:
    """Measure, judge and print; exit code 0 where the gates pass or FORCE=1, else 1."""
    settings = config.parse(EvalSettings, words)
    name, profile = settings.checkpoint, settings.profile
    if name not in CHECKPOINTS:
        raise UserError(f"CHECKPOINT={name}: expected {' or '.join(CHECKPOINTS)}")
    if not profile.gates:
        raise UserError(f"PROFILE={profile.name} has no eval stage (gates is empty in its profile)")
    judged_dir, measured_dir, target = _checkpoint(settings)
    manifests = {"base": measure.measure("base", settings.base_dir, "base", settings)}
    if name == "nvfp4":
        manifests |= _merged_on_the_same_rows(settings, manifests["base"])
    manifests[name] = measure.measure(name, measured_dir, target, settings)

    judged = judge(profile.gates, {one: measure.statistics(m) for one, m in manifests.items()})
    _write(judged, judged_dir, manifests, settings)
    print("", *table.rows(judged, list(manifests)), "", *table.gates(judged), sep="\n")
    print(*table.kept(judged, "merged", "nvfp4"), sep="\n")
    verdict = Verdict({gate: found["verdict"] for gate, found in judged["gates"].items()})
    forced = not verdict.passes and settings.force
    print(f"eval: {name} against base: {verdict}{', FORCE=1' if forced else ''}")
    report.write(settings)
    return errors.DONE if verdict.passes or settings.force else errors.NEGATIVE


def _checkpoint(settings: EvalSettings) -> tuple[Path, Path, str]:
    """The checkpoint that is judged, the one that is run in its place, and the latter's stage.

    What runs for nvfp4 is its dequantised copy; UserError where that is of another checkpoint.
    """
    if settings.checkpoint == "merged":
        return settings.merged_dir, settings.merged_dir, "merge"
    judged, copy = settings.nvfp4_dir, settings.dequantized_dir
    today = artifacts.digest(artifacts.require(judged, "quantize"))
    source = artifacts.require(copy, "dequantize")["inputs"].get("nvfp4", {}).get("sha256")
    if source != today:
        raise UserError(f"{copy} is of another checkpoint than {judged} is today: make dequantize")
    return judged, copy, "dequantize"


def _merged_on_the_same_rows(settings: EvalSettings, base: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The merged checkpoint's evaluation, if it is of the rows that `base` was measured on."""
    merged = artifacts.read_manifest(settings.out_dir / "eval" / "merged")
    if merged is None:
        return {}
    same = merged["inputs"] | {"checkpoint": base["inputs"]["checkpoint"]}
    return {} if artifacts.differences(base, merged["settings"], same) else {"merged": merged}


def _write(
    judged: dict[str, Any], checkpoint: Path, manifests: dict[str, dict[str, Any]], settings: EvalSettings
) -> None:
    """Write the verdict where quantize, deploy and report look for it; not where it stands already."""
    name = settings.checkpoint
    path = verdicts.directory(settings.out_dir, name)
    evaluated = {one: artifacts.as_input(settings.out_dir / "eval" / one, m) for one, m in manifests.items()}
    inputs = {
        "baseline": evaluated.pop("base"),
        "measured": evaluated.pop(name),
        "checkpoint": artifacts.as_input(checkpoint, artifacts.require(checkpoint, "all")),
        **evaluated,
    }
    gates = {gate: asdict(one) for gate, one in settings.profile.gates.items()}
    recorded = config.recorded(settings) | {"gates": gates}
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        return
    with artifacts.create(
        path,
        kind="verdict",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        text = json.dumps(judged, indent=1) + "\n"
        (draft.path / verdicts.FILE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    errors.run(main)
