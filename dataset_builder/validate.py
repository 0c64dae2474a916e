"""`make validate`: verify the dataset again, as it lies on the disk and as the trainer reads it.

Every check of the build, and two that only the files can fail: that they are those of the manifest, and that
Arrow, which the trainer goes through, gives back each row as it was.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, errors
from core.chat import Row
from core.errors import UserError
from core.profile import Conversations
from core.progress import Progress
from core.render import RenderError
from core.settings import ValidateSettings
from dataset_builder import raw, secrets_gate
from dataset_builder.documents.skills import load_skills
from dataset_builder.rules_stage import load_rules
from dataset_builder.schemas import load_servers, load_tools
from dataset_builder.verifying import checks, duplicates, gate, rulebook, split
from dataset_builder.verifying.rendering import measured
from dataset_builder.verifying.rulebook import Rulebook

MOST_LINES = 20
CHUNK = 256
"""Rows that are in Arrow at once."""


@dataclass(frozen=True)
class Violation:
    """What a row, or the dataset, fails: the row's id, the check, why."""

    row: str
    check: str
    reason: str


def main(words: list[str]) -> int:
    """Verify; exit code 0, or 1 after naming row and check. UserError on a missing or broken file."""
    settings = config.parse(ValidateSettings, words)
    if isinstance(settings.profile.data, Conversations):
        raise UserError(
            f"PROFILE={settings.profile.name} has no validate stage: make dataset checks every line"
        )
    path = settings.data_dir / "dataset"
    manifest = artifacts.require(path, "dataset")

    from core.generate import load_tokenizer

    tokenizer = load_tokenizer(settings.base_dir)
    schemas = settings.data_dir / "schemas"
    with raw.naming_originals(settings.data_dir / "raw"):
        skills = load_skills(raw.directories(settings.data_dir / "raw", "skills"))
        own = load_rules(skills, settings.data_dir / "rules")
    book = rulebook.of(own, load_tools(schemas), load_servers(schemas))
    sides = {name: chat.read_rows(path / f"{name}.jsonl") for name in ("train", "eval")}
    found = [
        Violation(name, "manifest", "changed since it was built: make dataset")
        for name, entry in manifest["files"].items()
        if artifacts.file_sha256(path / name) != entry["sha256"]
    ]
    progress = Progress("validate (rows)", sum(map(len, sides.values())))
    for rows in sides.values():
        found += faults_of_loading(rows, arrow_rows(rows))
        for row in rows:
            fault = fault_in_row(row, book, tokenizer, manifest["settings"]["MAX_LENGTH"])
            found += [fault] if fault else []
            progress.step()
    progress.close()
    found += [Violation("both sides", "leak", leak) for leak in split.leaks(sides["train"], sides["eval"])]
    leaked = split.held_out_skills_in(sides["train"], skills, settings.held_out_skills)
    found += [Violation("training", "held-out skill", leak) for leak in leaked]
    found += faults_between(sides["train"]) + faults_between(sides["eval"])
    allowed = Path(settings.secrets_allowed) if settings.secrets_allowed else None
    hits = secrets_gate.scan(
        gate.rendered({f"{name}.jsonl": rows for name, rows in sides.items()}, tokenizer),
        allowed,
        raw.read_known_values(settings),
    )
    found += [Violation(hit.row, "secret", f"{hit.rule} (fingerprint {hit.fingerprint})") for hit in hits]
    return _report(found, sum(map(len, sides.values())))


def fault_in_row(row: Row, book: Rulebook, tokenizer: Any, max_length: int) -> Violation | None:
    """The first check that a row fails by itself.

    A window of a long conversation lacks turns on purpose: the rules judged the whole before it was cut.
    """
    own = rulebook.binding(row, book)
    whole = "window" not in row.meta
    for check, fault in (
        ("format", checks.fault_in_format),
        ("schema", checks.fault_in_calls),
        ("rules", lambda row: checks.broken_rule(row, own) if whole else None),
        ("render", lambda row: _fault_in_rendering(row, tokenizer, max_length)),
    ):
        reason = fault(row)
        if reason:
            return Violation(row.id, check, reason)
    return None


def faults_between(rows: Sequence[Row]) -> list[Violation]:
    """Rows of one side that share an id or repeat each other."""
    ids = [row.id for row in rows]
    twice = {name for name in ids if ids.count(name) > 1} if len(set(ids)) < len(ids) else set()
    found = [Violation(name, "id", "is there twice") for name in sorted(twice)]
    repeated = duplicates.near_duplicates([row for row in rows if "window" not in row.meta])
    return found + [
        Violation(name, "duplicates", f"near-duplicate of {other}") for name, other in repeated.items()
    ]


def arrow_rows(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The rows as the trainer gets them, out of Arrow."""
    for start in range(0, len(rows), CHUNK):
        yield from chat.to_dataset(list(rows[start : start + CHUNK]))  # pyright: ignore[reportReturnType]


def faults_of_loading(rows: Iterable[Row], loaded: Iterable[dict[str, Any]]) -> list[Violation]:
    """Rows that a loader does not give back byte for byte, as canonical JSON: lost, added or null fields."""
    return [
        Violation(row.id, "arrow", "is not what was written: Arrow has changed its fields")
        for row, got in zip(rows, loaded, strict=True)
        if _canonical(asdict(row)) != _canonical(got)
    ]


def _canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _fault_in_rendering(row: Row, tokenizer: Any, max_length: int) -> str | None:
    try:
        tokens = measured(row, tokenizer)
    except RenderError as error:
        return str(error)
    if max(count for count, _ in tokens) > max_length:
        return f"over MAX_LENGTH={max_length}"
    if tokens != row.meta.get("tokens"):
        return f"has {tokens} tokens [all, labelled], its meta says {row.meta.get('tokens')}"
    return None


def _report(found: Sequence[Violation], count: int) -> int:
    for one in found[:MOST_LINES]:
        print(f"{one.row}: {one.check}: {one.reason}")
    if len(found) > MOST_LINES:
        print(f"and {len(found) - MOST_LINES} more")
    what = f"{len(found)} violations" if found else "each holds every check"
    print(f"validate: {count} rows, {what}")
    return errors.NEGATIVE if found else errors.DONE


if __name__ == "__main__":
    errors.run(main)
