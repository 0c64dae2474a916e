"""`make eval`: base and one checkpoint of the run on the same held-out rows, and the verdict of the gates.

Exit code 1 where the verdict is no pass and FORCE is blank. `make baseline` (CHECKPOINT=base) measures the
base alone, before anything is trained; with ENDPOINT it is the model in production that answers.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core import artifacts, config, errors, verdicts
from core.errors import UserError
from core.settings import EvalSettings
from core.verdicts import Verdict
from eval import evaluations, measure, report, table
from eval.models.weights import Weights
from eval.outcomes import Outcomes, outcomes
from eval.verdict import judge

BASE = "base"
CHECKPOINTS = (BASE, "merged", "nvfp4")
SAME_ROWS = ("EVAL_LIMIT", "HELD_OUT_SKILLS")


@dataclass(frozen=True)
class Measured:
    """A checkpoint, what is run in its place in this process, and make's names for what makes them."""

    checkpoint: Path
    target: str
    weights: Path
    weights_target: str


def main(words: list[str]) -> int:
    """Measure, judge and print; exit code 0 where the gates pass or FORCE=1, else 1."""
    settings = config.parse(EvalSettings, words)
    name, profile = settings.checkpoint, settings.profile
    if name not in CHECKPOINTS:
        raise UserError(f"CHECKPOINT={name}: expected {', '.join(CHECKPOINTS)}")
    if not profile.gates:
        raise UserError(f"PROFILE={profile.name} has no eval stage (gates is empty in its profile)")
    base = Measured(settings.base_dir, "base", settings.base_dir, "base")
    if name == BASE:
        # What ENDPOINT serves fills the memory that the base's weights would take.
        _measure(BASE, base, settings, losses=not settings.endpoint)
        print("", *table.measured(_outcomes(BASE, settings)), sep="\n")
        return errors.DONE
    measured = _checkpoint(settings)
    _measure(BASE, base, settings)
    _measure(name, measured, settings)
    names = [BASE, *(["merged"] if name == "nvfp4" and _merged_on_the_same_rows(settings) else []), name]

    judged = judge(profile.gates, {one: _outcomes(one, settings) for one in names})
    _write(judged, measured.checkpoint, names, settings)
    counts = {one: _counts(one, settings) for one in names}
    for part in (table.rows(judged, names), table.gates(judged), table.faults(counts), table.rules(judged)):
        print("", *part, sep="\n")
    print(*table.kept(judged), sep="\n")
    verdict = Verdict({gate: found["verdict"] for gate, found in judged["gates"].items()})
    forced = not verdict.passes and settings.force
    print(f"eval: {name} against base: {verdict}{', FORCE=1' if forced else ''}")
    report.write(settings)
    return errors.DONE if verdict.passes or settings.force else errors.NEGATIVE


def _measure(name: str, one: Measured, settings: EvalSettings, *, losses: bool = True) -> None:
    weights = Weights(one.weights, settings.profile.train.dtype)
    if settings.serve_cmd and name != BASE:
        measure.answers(name, one.checkpoint, one.target, weights, settings)
    else:
        measure.answers(name, one.weights, one.weights_target, weights, settings)
    if losses:
        measure.losses(name, one.weights, one.weights_target, weights, settings)


def _checkpoint(settings: EvalSettings) -> Measured:
    """What is judged; for nvfp4 what runs in this process is its dequantised copy.

    UserError where that is of another checkpoint.
    """
    if settings.checkpoint == "merged":
        return Measured(settings.merged_dir, "merge", settings.merged_dir, "merge")
    judged, copy = settings.nvfp4_dir, settings.dequantized_dir
    today = artifacts.digest(artifacts.require(judged, "quantize"))
    source = artifacts.require(copy, "dequantize")["inputs"].get("nvfp4", {}).get("sha256")
    if source != today:
        raise UserError(f"{copy} is of another checkpoint than {judged} is today: make dequantize")
    return Measured(judged, "quantize", copy, "dequantize")


def _counts(name: str, settings: EvalSettings) -> dict[str, Any]:
    return artifacts.require(evaluations.answers_dir(settings.out_dir, name), "eval")["counts"]


def _outcomes(name: str, settings: EvalSettings) -> Outcomes:
    return outcomes(evaluations.samples(settings.out_dir, name), settings.held_out_skills)


def _merged_on_the_same_rows(settings: EvalSettings) -> bool:
    """Whether the merged checkpoint was measured on the rows that the base was measured on."""
    base, merged = (
        artifacts.read_manifest(evaluations.answers_dir(settings.out_dir, one)) for one in (BASE, "merged")
    )
    if base is None or merged is None:
        return False
    rows = [
        ([one["settings"][key] for key in SAME_ROWS], one["inputs"]["dataset"]["sha256"])
        for one in (base, merged)
    ]
    return rows[0] == rows[1]


def _write(judged: dict[str, Any], checkpoint: Path, names: list[str], settings: EvalSettings) -> None:
    """Write the verdict where quantize, deploy and report look for it; not where it stands already."""
    name = settings.checkpoint
    path = verdicts.directory(settings.out_dir, name)
    roles = {"base": "baseline", name: "measured"}
    inputs = {"checkpoint": artifacts.as_input(checkpoint, artifacts.require(checkpoint, "all"))}
    for one in names:
        role = roles.get(one, one)
        for suffix, place in (("", evaluations.answers_dir), ("-loss", evaluations.losses_dir)):
            directory = place(settings.out_dir, one)
            inputs[role + suffix] = artifacts.as_input(directory, artifacts.require(directory, "eval"))
    gates = {gate: asdict(one) for gate, one in settings.profile.gates.items()}
    recorded = {"HELD_OUT_SKILLS": list(settings.held_out_skills), "gates": gates}
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
