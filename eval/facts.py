"""What the report shows, gathered from the run's manifests, verdicts and samples."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import artifacts, chat, verdicts
from core.artifacts import digest
from core.errors import UserError
from core.settings import RunSettings
from core.verdicts import Verdict
from eval import measure
from eval.measure import Measured, Sample

WRONG_A_BUCKET = 2


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that the report shows."""

    profile: str
    run: str
    verdict: Verdict
    judged: dict[str, Any]
    """The verdict of the checkpoint that went furthest; see `eval.verdict.judge`."""
    checkpoint: str
    """Its name."""
    missing: str
    """Why there is nothing on NVFP4, or blank."""
    measured: dict[str, Measured]
    """Statistics by checkpoint."""
    wrong: list[tuple[chat.Row, Sample]]
    """A few held-out rows that the checkpoint got wrong."""
    log: list[dict[str, float]]
    """Training's steps, with `step` and `loss`."""
    stages: dict[str, tuple[Path, dict[str, Any]]]
    """Place and manifest of each stage's artefact, in the order of the chain."""


def collect(settings: RunSettings) -> Facts:
    """Read everything; UserError where the merged checkpoint has no verdict, or not of today's inputs."""
    artifacts.require(settings.out_dir / "adapter", "train")
    name, missing, judged = "merged", "", read_verdict(settings, "merged")
    if settings.profile.quant is not None:
        try:
            name, judged = "nvfp4", read_verdict(settings, "nvfp4")
        except UserError as error:
            name, missing = "merged", str(error)
    found = {gate: one["verdict"] for gate, one in judged["gates"].items()}
    stages = dict(stages_of(settings))
    evaluated = {one: stages[f"eval-{one}"] for one in dict.fromkeys(("base", "merged", name))}
    for one, (path, _) in evaluated.items():
        changed = changed_inputs(stages)[f"eval-{one}"]
        if changed:
            what = " and the ".join(changed)
            raise UserError(f"{path}: the {what} changed since: make {verdicts.target(name)}")
    return Facts(
        profile=settings.profile.name,
        run=settings.run,
        verdict=Verdict(found),
        judged=judged,
        checkpoint=name,
        missing=missing,
        measured={one: measure.statistics(manifest) for one, (_, manifest) in evaluated.items()},
        wrong=wrong_answers(evaluated[name][0], settings.data_dir / "dataset"),
        log=_lines(settings.out_dir / "adapter" / "loss.jsonl"),
        stages=stages,
    )


def read_verdict(settings: RunSettings, name: str) -> dict[str, Any]:
    """The verdict on the run's checkpoint `name`.

    UserError where there is none, or where checkpoint or measurements have changed since.
    """
    checkpoint = settings.merged_dir if name == "merged" else settings.nvfp4_dir
    verdicts.read(settings.out_dir, name, checkpoint)
    path = verdicts.directory(settings.out_dir, name)
    judged_on = artifacts.require(path, "eval")["inputs"]
    for role, one in (("baseline", "base"), ("measured", name)):
        today = artifacts.require(settings.out_dir / "eval" / one, verdicts.target(name))
        if digest(today) != judged_on[role]["sha256"]:
            raise UserError(f"{path} is of earlier measurements: make {verdicts.target(name)}")
    return json.loads((path / verdicts.FILE).read_text(encoding="utf-8"))


def stages_of(settings: RunSettings) -> Iterator[tuple[str, tuple[Path, dict[str, Any]]]]:
    """Every stage that has left an artefact, with its place and manifest."""
    evaluations = settings.out_dir / "eval"
    places = {
        "base": settings.base_dir,
        "production": settings.production_dir,
        "schemas": settings.data_dir / "schemas",
        "sources": settings.data_dir / "raw",
        "replay": settings.data_dir / "replay",
        "dataset": settings.data_dir / "dataset",
        "train": settings.out_dir / "adapter",
        "merge": settings.merged_dir,
        "eval-base": evaluations / "base",
        "eval-merged": evaluations / "merged",
        "quantize": settings.nvfp4_dir,
        "dequantize": settings.dequantized_dir,
        "eval-nvfp4": evaluations / "nvfp4",
    }
    for name, path in places.items():
        manifest = artifacts.read_manifest(path)
        if manifest is not None:
            yield name, (path, manifest)


def wrong_answers(evaluation: Path, dataset_dir: Path) -> list[tuple[chat.Row, Sample]]:
    """The first wrong answers of each bucket, with their rows; a rollout counts as one answer."""
    rows = {row.id: row for row in chat.read_rows(dataset_dir / "eval.jsonl")}
    chosen: dict[str, list[tuple[chat.Row, Sample]]] = {}
    for sample in _lines(evaluation / measure.SAMPLES):
        own = chosen.setdefault(sample["bucket"], [])
        if not sample.get("right", True) and sample["id"] in rows and len(own) < WRONG_A_BUCKET:
            own.append((rows[sample["id"]], sample))
    return [one for own in chosen.values() for one in own]


def _lines(path: Path) -> list[Any]:
    # Split as bytes: as text, a line would also end at the U+2028 that JSON leaves raw.
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def changed_inputs(stages: Mapping[str, tuple[Path, dict[str, Any]]]) -> dict[str, list[str]]:
    """By stage, the inputs that are no longer what its artefact was made of."""
    today = {str(path): digest(manifest) for path, manifest in stages.values()}
    return {
        name: [
            what
            for what, one in manifest["inputs"].items()
            if today.get(one["path"], one["sha256"]) != one["sha256"]
        ]
        for name, (_, manifest) in stages.items()
    }
