"""What one checkpoint does on the held-out rows: three measurements, one artefact."""

import functools
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, generate
from core.artifacts import Draft
from core.chat import Row
from core.render import prompt_text
from core.settings import EvalSettings
from eval import rollout, stats
from eval.gates import formality, loss, skills, tool_calls
from eval.stats import Statistic

KINDS = ("loss", "tool_calls", "skills", "rules", "formality")
SKILLS, REPLAY, FORMAL, GENERAL = "skills", "replay", "formal", "general"
ROWS = {
    "mcp_calls": ("mcp_calls", "mcp", "penpot"),
    "synonyms": ("synonyms",),
    "delegation": ("delegation",),
    SKILLS: ("skills", "adherence"),
    "no_tool": ("no_tool", "negatives"),
    "recovery": ("recovery", "errors"),
    REPLAY: ("replay",),
    FORMAL: ("formal",),
    GENERAL: ("general",),
}
"""The rows of a table, and the dataset's buckets that count there."""
TRAINED = "trained"
"""The row of all buckets together but REPLAY and GENERAL, which are of what the base knew."""
HELD_OUT_SKILL = "held_out_skill"
"""The row of the skills that training never showed."""
KNOWN = (*ROWS[REPLAY], *ROWS[GENERAL])
SAMPLES = "samples.jsonl"

Sample = dict[str, Any]
"""One row and one measurement of it: `kind`, `id`, `bucket`, `skill`, and what was found."""
Measured = dict[str, dict[str, Statistic]]
"""The statistics of one checkpoint by kind and row."""


def measure(name: str, checkpoint: Path, target: str, settings: EvalSettings) -> dict[str, Any]:
    """The manifest of the evaluation of `checkpoint`, made anew only where an input changed.

    The artefact is `out/<RUN>/eval/<name>`; `target` is make's name for the stage that makes the checkpoint.
    Raises UserError on what is missing, and on broken rules before any weight is loaded.
    """
    path, dataset_dir = settings.out_dir / "eval" / name, settings.data_dir / "dataset"
    made = artifacts.require(checkpoint, target)
    dataset = artifacts.require(dataset_dir, "dataset")
    rows = limited(chat.read_rows(dataset_dir / "eval.jsonl"), settings.eval_limit)
    inputs = {
        "checkpoint": artifacts.as_input(checkpoint, made),
        "dataset": artifacts.as_input(dataset_dir, dataset),
        "rules": rules_input(rows),
    }
    recorded = config.recorded(settings)
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"eval: up to date ({path})")
        return artifacts.require(path, "eval")
    with artifacts.create(
        path,
        kind="evaluation",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        tokenizer = generate.load_tokenizer(checkpoint)
        model = generate.load_model(checkpoint, settings.profile.train.dtype)
        run(rows, model, tokenizer, draft, f"eval: {name}", settings)
    return artifacts.require(path, "eval")


def run(
    rows: Sequence[Row], model: Any, tokenizer: Any, draft: Draft, what: str, settings: EvalSettings
) -> None:
    """Take the measurements of `rows`; write the samples to the draft, and its counts."""
    assert settings.profile.data is not None  # its rows were made from it
    answer_tokens = settings.profile.data.answer_tokens
    answer = functools.partial(generate.generate, model, tokenizer, max_new_tokens=answer_tokens)
    whole = [row for row in rows if row.bucket in ROWS[SKILLS]]
    spoken = [row for row in rows if row.bucket in ROWS[FORMAL]]
    single = [row for row in rows if row.bucket not in (*ROWS[SKILLS], *ROWS[FORMAL], *ROWS[GENERAL])]
    seconds: dict[str, float] = {}
    with _timed(seconds, "loss"):
        losses = loss.measure(rows, model, tokenizer, what=f"{what} losses")
    with _timed(seconds, "tool_calls"):
        prompts = [prompt_text(tool_calls.history(row), row.tools, tokenizer) for row in single]
        answers = answer(prompts, what=f"{what} answers")
        calls = [tool_calls.score(row, text) for row, text in zip(single, answers, strict=True)]
    with _timed(seconds, "skills"):
        traces = rollout.run(whole, tokenizer, functools.partial(answer, what=f"{what} skills"))
        followed = [skills.score(row, trace) for row, trace in zip(whole, traces, strict=True)]
    with _timed(seconds, "formality"):
        prompts = [prompt_text(row.messages[:-1], row.tools, tokenizer) for row in spoken]
        said = answer(prompts, what=f"{what} answers")

    samples = [_sample("loss", row, loss=one) for row, one in zip(rows, losses, strict=True)]
    for row, text, score in zip(single, answers, calls, strict=True):
        samples.append(_sample("tool_calls", row, answer=text, **asdict(score)))
    for row, text in zip(spoken, said, strict=True):
        samples.append(_sample("formality", row, answer=text, **asdict(formality.score(text))))
    for row, trace, score in zip(whole, traces, followed, strict=True):
        samples.append(_sample("skills", row, trace=trace, **asdict(score)))
    with (draft.path / SAMPLES).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples)
    rules = skills.by_rule(zip(whole, followed, strict=True))
    draft.counts = counts(samples, settings.held_out_skills) | {
        "rules": {rule: asdict(one) for rule, one in rules.items()},
        "seconds": seconds,
    }


def counts(samples: Sequence[Sample], held_out: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Losses and rates by kind and row, as JSON; the same in any order of samples."""

    def found(kind: str, value: str) -> dict[str, list[Any]]:
        own = [one for one in samples if one["kind"] == kind]
        return {row: [one[value] for one in own if one["bucket"] in ROWS[row]] for row in ROWS}

    trained = [one["loss"] for one in samples if one["kind"] == "loss" and one["bucket"] not in KNOWN]
    unseen = [one["right"] for one in samples if one["kind"] == "skills" and one["skill"] in held_out]
    losses = {TRAINED: trained} | found("loss", "loss")
    return {
        "loss": {row: asdict(stats.mean_loss(own)) for row, own in losses.items() if own},
        "tool_calls": _rates(found("tool_calls", "right")),
        "skills": _rates(found("skills", "right") | {HELD_OUT_SKILL: unseen}),
        "formality": _rates(found("formality", "right")),
    }


def statistics(manifest: Mapping[str, Any]) -> Measured:
    """What an evaluation's manifest says, by kind and row."""
    counted = manifest["counts"]
    return {kind: {row: stats.from_json(one) for row, one in counted.get(kind, {}).items()} for kind in KINDS}


def limited(rows: Iterable[Row], limit: int) -> list[Row]:
    """The first `limit` rows of each bucket by their ids, all where it is 0; whatever the order of rows."""
    kept, seen = [], Counter()
    for row in sorted(rows, key=lambda row: row.id):
        seen[row.bucket] += 1
        if not limit or seen[row.bucket] <= limit:
            kept.append(row)
    return kept


def rules_input(rows: Iterable[Row]) -> dict[str, str]:
    """The rules that the skills' rows are judged by, read and checked; rows of one skill share a file."""
    files = {}
    for row in rows:
        if row.bucket in ROWS[SKILLS] and row.source not in files:
            skills.rules_of(row)
            files[row.source] = artifacts.file_sha256(skills.rules_file(row))
    whole = json.dumps(files, sort_keys=True).encode()
    return {"path": " ".join(sorted(files)), "sha256": hashlib.sha256(whole).hexdigest()}


def _sample(kind: str, row: Row, **found: Any) -> Sample:
    return {"kind": kind, "id": row.id, "bucket": row.bucket, "skill": row.skill, **found}


def _rates(found: Mapping[str, Sequence[bool]]) -> dict[str, Any]:
    return {row: asdict(stats.rate(sum(own), len(own))) for row, own in found.items() if own}


@contextmanager
def _timed(seconds: dict[str, float], kind: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    seconds[kind] = round(time.monotonic() - start, 1)
