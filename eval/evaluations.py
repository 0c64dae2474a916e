"""Where the evaluations of a run are kept: a checkpoint's answers and its losses, an artefact each.

They stand apart because they are taken of different things: answers of a server where there is one, losses
of the weights. `out/<RUN>/eval/<name>` has the answers, `out/<RUN>/eval/<name>-loss` the losses.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core import artifacts
from core.artifacts import Draft
from core.settings import EvalSettings
from eval.outcomes import Sample

SAMPLES = "samples.jsonl"
LOGS, CACHE = "logs", ".answers"
"""Beside the evaluations: Inspect's logs of each, and the answers of one that was interrupted."""


def answers_dir(out_dir: Path, name: str) -> Path:
    """The artefact of a checkpoint's answers."""
    return out_dir / "eval" / name


def losses_dir(out_dir: Path, name: str) -> Path:
    """The artefact of a checkpoint's losses."""
    return out_dir / "eval" / f"{name}-loss"


def samples(out_dir: Path, name: str) -> list[Sample]:
    """All samples of a checkpoint: of its losses where they are measured, and of its answers."""
    files = (losses_dir(out_dir, name) / SAMPLES, answers_dir(out_dir, name) / SAMPLES)
    lines = [line for file in files if file.exists() for line in file.read_bytes().splitlines()]
    return [json.loads(line) for line in lines]


@contextlib.contextmanager
def unless_known(
    path: Path, recorded: dict[str, Any], inputs: dict[str, dict[str, str]], settings: EvalSettings
) -> Iterator[Draft | None]:
    """A draft of the artefact, or None, saying so, where it is there already."""
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"eval: up to date ({path})")
        yield None
        return
    with artifacts.create(
        path,
        kind="evaluation",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        yield draft
