"""The held-out rows that an evaluation is of, and the digests of what it depends on."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from core import artifacts, chat
from core.chat import Row
from core.settings import EvalSettings
from eval import calibration, outcomes
from eval.gates import near_miss, skills


def rules_input(rows: Iterable[Row], *, calibrations: bool = False) -> dict[str, str]:
    """The rules that the skills' rows are judged by, read and checked; rows of one skill share a file.

    With `calibrations`, the fixtures of a judge as well.
    """
    files = {}
    for row in rows:
        judged = row.bucket in outcomes.ROWS[outcomes.SKILLS] or near_miss.is_near_miss(row)
        if judged and row.source not in files:
            skills.rules_of(row)
            files[row.source] = artifacts.file_sha256(skills.rules_file(row))
            fixtures = calibration.beside(row)
            if calibrations and fixtures.exists():
                files[str(fixtures)] = artifacts.file_sha256(fixtures)
    whole = json.dumps(files, sort_keys=True).encode()
    return {"path": " ".join(sorted(files)), "sha256": hashlib.sha256(whole).hexdigest()}


def limited(rows: Iterable[Row], limit: int) -> list[Row]:
    """The first `limit` rows of each bucket by their ids, all where it is 0; whatever the order of rows."""
    kept, seen = [], Counter()
    for row in sorted(rows, key=lambda row: row.id):
        seen[row.bucket] += 1
        if not limit or seen[row.bucket] <= limit:
            kept.append(row)
    return kept


def read(
    checkpoint: Path, target: str, settings: EvalSettings
) -> tuple[list[Row], dict[str, dict[str, str]]]:
    """The rows that EVAL_LIMIT leaves, and checkpoint and dataset as inputs; UserError where one is missing.

    `target` is make's name for the stage that makes the checkpoint.
    """
    path = settings.data_dir / "dataset"
    inputs = {
        "checkpoint": artifacts.as_input(checkpoint, artifacts.require(checkpoint, target)),
        "dataset": artifacts.as_input(path, artifacts.require(path, "dataset")),
    }
    return limited(chat.read_rows(path / "eval.jsonl"), settings.eval_limit), inputs
