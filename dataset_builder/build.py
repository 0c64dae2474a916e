"""`make dataset`: rows from schemas, requests, skills, transcripts and replay; checked, split, written.

The same settings and inputs give the same bytes.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, endpoint, errors
from core.chat import Row
from core.errors import UserError
from core.profile import Conversations, Data
from core.settings import ConversationsSettings, DatasetSettings
from dataset_builder import conversations, raw, reading, replay, teacher
from dataset_builder.buckets import (
    adherence,
    delegation,
    mcp,
    mcp_calls,
    near_miss,
    negatives,
    no_tool,
    penpot,
    recovery,
    transcripts,
)
from dataset_builder.buckets import errors as error_rows
from dataset_builder.buckets import skills as skill_rows
from dataset_builder.sanitizing.inputs import read_key
from dataset_builder.sources import Sources
from dataset_builder.verifying import checks, gate, page, rulebook, split
from dataset_builder.verifying.figures import figures
from dataset_builder.verifying.rulebook import Rulebook
from dataset_builder.verifying.verification import Verified, verify

Bucket = Callable[[Sources, random.Random, str, int], list[Row]]
BUCKETS: dict[str, Bucket] = {
    "mcp_calls": mcp_calls.rows,
    "synonyms": mcp_calls.synonyms,
    "skills": skill_rows.rows,
    "near_miss": near_miss.rows,
    "no_tool": no_tool.rows,
    "recovery": recovery.rows,
    "penpot": penpot.rows,
    "mcp": mcp.rows,
    "adherence": adherence.rows,
    "delegation": delegation.rows,
    "negatives": negatives.rows,
    "errors": error_rows.rows,
    "transcripts": transcripts.rows,
}
"""First those of the user's own wordings and demonstrations, then those of schemas, skills, transcripts."""
PUBLISHED_SEEDS = range(100)
"""Seeds below 100 draw the wordings of figures that are published, others those of development."""


def main(words: list[str]) -> int:
    """Build; exit code 0, or 1 where the gate finds a secret in a row.

    UserError on a broken source, a leak between the sides, a held-out skill in training.
    """
    profile = config.resolve(DatasetSettings, words)["profile"].value
    if isinstance(profile.data, Conversations):
        return conversations.build(config.parse_part(ConversationsSettings, words), profile.data)
    if profile.data is None:
        raise UserError(f"PROFILE={profile.name} has no dataset stage (data is None in its profile)")
    settings = config.parse(DatasetSettings, words)
    if settings.data:
        raise UserError(f"DATA={settings.data}: PROFILE={profile.name} makes rows from servers and skills")
    if settings.judge and not settings.teacher:
        raise UserError("JUDGE=1 without TEACHER: name the server whose model judges, TEACHER=http://…/v1")
    path, inputs = settings.data_dir / "dataset", _inputs(settings, profile.data)
    recorded = config.recorded(settings)
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"dataset: up to date ({path})")
        return errors.DONE

    from core.generate import load_tokenizer

    sources, left_out = reading.read(settings, profile.data)
    tokenizer = load_tokenizer(settings.base_dir)
    with artifacts.create(
        path, kind="dataset", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        book = rulebook.of(sources.rules, sources.tools, sources.servers)
        made = _build(settings, profile.data, sources, book, tokenizer)
        sides = {"train.jsonl": split.shuffled(made.train, settings.data_seed), "eval.jsonl": made.held_out}
        allowed = Path(settings.secrets_allowed) if settings.secrets_allowed else None
        gate.refuse_secrets(sides, tokenizer, allowed, raw.read_known_values(settings))
        for name, rows in sides.items():
            chat.write_rows(draft.path / name, rows)
        train, held_out = sides.values()
        draft.counts = figures(train, held_out, made.dropped, book, settings.held_out_skills)
        left_out += transcripts.left_out(sources)
        draft.counts |= {"transcripts_left_out": dict(left_out)}
        # Beside the artefact, for a page is no part of what training depends on; before it is complete, so
        # that there is none without its page.
        shown = settings.data_dir / "dataset.html"
        content = page.render(profile.name, draft.counts, train, held_out, made.dropped)
        artifacts.write_atomically(shown, content)
    _report(draft.counts, path)
    print(f"dataset: leaf through it in {shown}")
    return errors.DONE


def _inputs(settings: DatasetSettings, data: Data) -> dict[str, dict[str, str]]:
    stages = {"schemas": "schemas", "raw": "sources", "replay": "replay"}
    places = {target: settings.data_dir / name for name, target in stages.items()}
    places["base"] = settings.base_dir
    inputs = {
        target: artifacts.as_input(place, artifacts.require(place, target))
        for target, place in places.items()
    }
    sources = artifacts.require(settings.data_dir / "raw", "sources")
    inputs["known values"] = sources["inputs"]["known values"]
    drafts = settings.data_dir / "rules"
    inputs["rules"] = {"path": str(drafts), "sha256": artifacts.tree_sha256(drafts)}
    named = {"requests": settings.requests, "allowed secrets": settings.secrets_allowed}
    for name, file in (named | {"general": str(data.general)}).items():
        if file:
            inputs[name] = {"path": file, "sha256": artifacts.file_sha256(Path(file))}
    return inputs


def _build(
    settings: DatasetSettings, data: Data, sources: Sources, book: Rulebook, tokenizer: Any
) -> Verified:
    side = "eval" if settings.eval_seed in PUBLISHED_SEEDS else "dev"
    answered, kept_back = replay.load(settings.data_dir / "replay")
    for skill, why in adherence.unmade(sources).items() if settings.rows.get("adherence") else ():
        print(f"dataset: adherence: no rows of {skill}: {why}")
    train = _rows(sources, settings.rows, settings.data_seed, "train") + answered
    held_out = _rows(sources, data.eval_rows, settings.eval_seed, side) + kept_back
    key, known = read_key(settings.data_dir / raw.KEY), raw.read_known_values(settings)
    train, held_out = gate.hidden(train, key, known), gate.hidden(held_out, key, known)
    general = gate.hidden(conversations.general(data.general), key, known)
    sha256 = {tool.shown_name: tool.sha256 for tool in sources.tools.values()}
    refused: dict[str, str] = {}
    if settings.teacher:

        def sound(rows: Sequence[Row]) -> set[str]:
            return {row.id for row in checks.keep(rows, sha256=sha256, rules_of=book)[0]}

        server, store = endpoint.connect(settings.teacher, "TEACHER"), settings.data_dir / "teacher.jsonl"
        train, held_out = teacher.reword_sides(train, held_out, server, store, sound)
        refused = teacher.judge([*train, *held_out], server, store) if settings.judge else {}
    return verify(
        train,
        [*held_out, *general],  # in its own words, whatever the teacher's
        tokenizer=tokenizer,
        max_length=settings.max_length,
        sha256=sha256,
        rules_of=book,
        skills=sources.skills,
        held_out_skills=sources.held_out_skills,
        judge=(lambda row: refused.get(row.id)) if settings.judge else None,
    )


def _rows(sources: Sources, counts: dict[str, int], seed: int, side: str) -> list[Row]:
    rows = []
    for bucket, make in BUCKETS.items():
        if counts.get(bucket):
            rng = random.Random(f"{seed} {side} {bucket}")
            made = make(sources, rng, side, counts[bucket])
            if len(made) < counts[bucket] and bucket != "transcripts":  # of those all are taken
                print(
                    f"dataset: {bucket} ({side}): {len(made)} of {counts[bucket]} rows, for want of sources"
                )
            rows += made
    return rows


def _report(counts: dict[str, Any], path: Path) -> None:
    print(f"{'bucket':<12} {'train':>6} {'held out':>9}")
    for bucket in counts["train"] | counts["eval"]:
        print(f"{bucket:<12} {counts['train'].get(bucket, 0):>6} {counts['eval'].get(bucket, 0):>9}")
    for reason, count in counts["dropped"].items():
        print(f"dropped {count}: {reason}")
    for reason, count in counts["transcripts_left_out"].items():
        print(f"transcripts: {count} {reason}")
    print(f"dataset: {sum(counts['train'].values())} training rows at {path}")


if __name__ == "__main__":
    errors.run(main)
