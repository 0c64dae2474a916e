"""What the report shows, gathered from the run's manifests, verdicts and samples."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import artifacts, chat, verdicts
from core.artifacts import digest
from core.errors import UserError
from core.profile import Data
from core.settings import RunSettings
from core.verdicts import Verdict
from eval import evaluations
from eval.outcomes import Sample
from eval.reporting.words import CHECKPOINTS

Manifest = dict[str, Any]
Step = dict[str, Any]
NVFP4, LIVE = "NVFP4", "Live tasks on real servers"
"""What may not have been measured."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that the report shows."""

    profile: str
    run: str
    judged: dict[str, Any]
    """The verdict of the checkpoint that went furthest; see `eval.verdict.judge`."""
    checkpoint: str
    """Its name."""
    missing: dict[str, str]
    """What was not measured, and why."""
    samples: dict[str, list[Sample]]
    """What each checkpoint did, sample by sample."""
    rows: dict[str, chat.Row]
    """The dataset's held-out rows by id."""
    steps: list[Step]
    """Training's steps, with `step` and `loss`."""
    evaluations: list[Step]
    """The looks at held-out rows while it trained, with `step` and `eval_loss`."""
    stages: dict[str, tuple[Path, Manifest]]
    """Place and manifest of each stage's artefact, in the order of the chain."""

    @property
    def verdict(self) -> Verdict:
        """The verdict of every gate."""
        return Verdict({gate: found["verdict"] for gate, found in self.judged["gates"].items()})

    @property
    def last(self) -> list[Sample]:
        """What the judged checkpoint did."""
        return self.samples[self.checkpoint]

    def counts(self, stage: str) -> dict[str, Any]:
        """The counts of a stage's manifest; empty where it has not run."""
        return self.stages[stage][1].get("counts", {}) if stage in self.stages else {}


def collect(settings: RunSettings) -> Facts:
    """Read everything; UserError where the merged checkpoint has no verdict, or not of today's inputs."""
    adapter = settings.out_dir / "adapter"
    artifacts.require(adapter, "train")
    profile, missing = settings.profile, {}
    name, judged = "merged", read_verdict(settings, "merged")
    if profile.quant is not None:
        try:
            name, judged = "nvfp4", read_verdict(settings, "nvfp4")
        except UserError as error:
            missing[NVFP4] = str(error)
    if isinstance(profile.data, Data) and "live" not in judged["gates"]:
        named = "live" in profile.gates
        missing[LIVE] = "no task of LIVE could be run" if named else "the profile names no gate for them"
    stages = dict(stages_of(settings))
    compared = checkpoints(judged)
    for stage in (f"eval-{one}{part}" for one in compared for part in ("", "-loss")):
        if changed := changed_inputs(stages)[stage]:
            path, what = stages[stage][0], " and the ".join(changed)
            raise UserError(f"{path}: the {what} changed since: make {verdicts.target(name)}")
    steps = _lines(adapter / "loss.jsonl")
    return Facts(
        profile=profile.name,
        run=settings.run,
        judged=judged,
        checkpoint=name,
        missing=missing,
        samples={one: evaluations.samples(settings.out_dir, one) for one in compared},
        rows={row.id: row for row in chat.read_rows(settings.data_dir / "dataset" / "eval.jsonl")},
        steps=steps,
        evaluations=_evaluations(settings.out_dir / "metrics.jsonl", steps),
        stages=stages,
    )


def read_verdict(settings: RunSettings, name: str) -> dict[str, Any]:
    """The verdict on the run's checkpoint `name`.

    UserError where there is none, or where checkpoint or measurements have changed since.
    """
    checkpoint = settings.merged_dir if name == "merged" else settings.nvfp4_dir
    verdicts.read(settings.out_dir, name, checkpoint)
    path = verdicts.directory(settings.out_dir, name)
    for role, one in artifacts.require(path, "eval")["inputs"].items():
        today = artifacts.require(Path(one["path"]), verdicts.target(name))
        if role != "checkpoint" and digest(today) != one["sha256"]:
            raise UserError(f"{path} is of earlier measurements: make {verdicts.target(name)}")
    return json.loads((path / verdicts.FILE).read_text(encoding="utf-8"))


def checkpoints(judged: Mapping[str, Any]) -> list[str]:
    """Those that a verdict compares."""
    found = {name for gate in judged["gates"].values() for name in gate}
    return [name for name in CHECKPOINTS if name in found]


def stages_of(settings: RunSettings) -> Iterator[tuple[str, tuple[Path, Manifest]]]:
    """Every stage that has left an artefact, with its place and manifest."""
    places = {
        "base": settings.base_dir,
        "production": settings.production_dir,
        "schemas": settings.data_dir / "schemas",
        "sources": settings.data_dir / "raw",
        "replay": settings.data_dir / "replay",
        "dataset": settings.data_dir / "dataset",
        "train": settings.out_dir / "adapter",
        "merge": settings.merged_dir,
        "eval-base": evaluations.answers_dir(settings.out_dir, "base"),
        "eval-base-loss": evaluations.losses_dir(settings.out_dir, "base"),
        "eval-merged": evaluations.answers_dir(settings.out_dir, "merged"),
        "eval-merged-loss": evaluations.losses_dir(settings.out_dir, "merged"),
        "quantize": settings.nvfp4_dir,
        "dequantize": settings.dequantized_dir,
        "eval-nvfp4": evaluations.answers_dir(settings.out_dir, "nvfp4"),
        "eval-nvfp4-loss": evaluations.losses_dir(settings.out_dir, "nvfp4"),
    }
    for name, path in places.items():
        manifest = artifacts.read_manifest(path)
        if manifest is not None:
            yield name, (path, manifest)


def changed_inputs(stages: Mapping[str, tuple[Path, Manifest]]) -> dict[str, list[str]]:
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


def _evaluations(path: Path, steps: list[Step]) -> list[Step]:
    """Those of a metrics.jsonl, if it tells of the training with these steps and of no other."""
    entries = _lines(path) if path.exists() else []
    told = [(one["step"], one["loss"]) for one in entries if "loss" in one]
    if told != [(one["step"], one["loss"]) for one in steps]:
        return []
    return [one for one in entries if "eval_loss" in one]


def _lines(path: Path) -> list[Any]:
    # Split as bytes: as text, a line would also end at the U+2028 that JSON leaves raw.
    return [json.loads(line) for line in path.read_bytes().splitlines()]
