"""`make dataset`: rows from schemas, requests, skills and replay; checked, split, written.

The same settings and inputs give the same bytes.
"""

import random
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, errors
from core.chat import Row
from core.errors import UserError
from core.profile import Data
from core.settings import DatasetSettings
from dataset_builder import page, raw, replay, rulebook, split
from dataset_builder import sources as src
from dataset_builder.buckets import mcp_calls, no_tool, recovery
from dataset_builder.buckets import skills as skill_rows
from dataset_builder.figures import figures
from dataset_builder.requests import load_requests
from dataset_builder.rulebook import Rulebook
from dataset_builder.schemas import load_tools
from dataset_builder.skills import Skill, load_scenario, load_skills
from dataset_builder.verification import Verified, verify

BUCKETS = {
    "mcp_calls": mcp_calls.rows,
    "synonyms": mcp_calls.synonyms,
    "skills": skill_rows.rows,
    "no_tool": no_tool.rows,
    "recovery": recovery.rows,
}
PUBLISHED_SEEDS = range(100)
"""Seeds below 100 draw the wordings of figures that are published, others those of development."""


def main(words: list[str]) -> int:
    """Build; exit code 0. UserError on a broken source, a secret in a row, a leak between the sides."""
    settings = config.parse(DatasetSettings, words)
    profile = settings.profile
    if profile.data is None:
        raise UserError(f"PROFILE={profile.name} has no dataset stage (data is None in its profile)")
    path, schemas_dir = settings.data_dir / "dataset", settings.data_dir / "schemas"
    raw_dir, replay_dir = settings.data_dir / "raw", settings.data_dir / "replay"
    inputs = {
        "base": artifacts.as_input(settings.base_dir, artifacts.require(settings.base_dir, "base")),
        "schemas": artifacts.as_input(schemas_dir, artifacts.require(schemas_dir, "schemas")),
        "sources": artifacts.as_input(raw_dir, artifacts.require(raw_dir, "sources")),
        "replay": artifacts.as_input(replay_dir, artifacts.require(replay_dir, "replay")),
    }
    if settings.requests:
        sha256 = artifacts.file_sha256(Path(settings.requests))
        inputs["requests"] = {"path": settings.requests, "sha256": sha256}
    recorded = config.recorded(settings)
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"dataset: up to date ({path})")
        return errors.DONE

    skills = load_skills(raw.directories(raw_dir, "skills"))
    book = rulebook.of_skills(skills, settings.data_dir / "rules")
    sources = _read(settings, profile.data, schemas_dir, skills)
    with artifacts.create(
        path, kind="dataset", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        made = _build(settings, profile.data, sources, skills, book)
        train = split.shuffled(made.train, settings.data_seed)
        chat.write_rows(draft.path / "train.jsonl", train)
        chat.write_rows(draft.path / "eval.jsonl", made.held_out)
        draft.counts = figures(train, made.held_out, made.dropped, book, profile.held_out_skills)
        content = page.render(profile.name, draft.counts, train, made.held_out, made.dropped)
        (draft.path / "dataset.html").write_text(content, encoding="utf-8")
    _report(draft.counts, path)
    return errors.DONE


def _read(settings: DatasetSettings, data: Data, schemas_dir: Path, skills: list[Skill]) -> src.Sources:
    tools = load_tools(schemas_dir)
    found = [(skill, load_scenario(skill, tools)) for skill in skills]
    return src.Sources(
        tools=tools,
        requests=load_requests(Path(settings.requests), tools) if settings.requests else [],
        scenarios=[(skill, scenario) for skill, scenario in found if scenario is not None],
        tools_shown=settings.tools_shown,
        skill_prompt=data.skill_prompt,
        held_out_skills=settings.profile.held_out_skills,
    )


def _build(
    settings: DatasetSettings, data: Data, sources: src.Sources, skills: list[Skill], book: Rulebook
) -> Verified:
    side = "eval" if settings.eval_seed in PUBLISHED_SEEDS else "dev"
    answered, kept_back = replay.load(settings.data_dir / "replay")
    train = _rows(sources, settings.rows, settings.data_seed, "train") + answered
    held_out = _rows(sources, data.eval_rows, settings.eval_seed, side) + kept_back

    from core.generate import load_tokenizer

    return verify(
        train,
        held_out,
        tokenizer=load_tokenizer(settings.base_dir),
        max_length=settings.max_length,
        sha256={tool.shown_name: tool.sha256 for tool in sources.tools.values()},
        rules_of=book,
        skills=skills,
        held_out_skills=sources.held_out_skills,
    )


def _rows(sources: src.Sources, counts: dict[str, int], seed: int, side: str) -> list[Row]:
    rows = []
    for bucket, make in BUCKETS.items():
        rng = random.Random(f"{seed} {side} {bucket}")
        rows += make(sources, rng, side, counts.get(bucket, 0))
    return rows


def _report(counts: dict[str, Any], path: Path) -> None:
    print(f"{'bucket':<12} {'train':>6} {'held out':>9}")
    for bucket in counts["train"] | counts["eval"]:
        print(f"{bucket:<12} {counts['train'].get(bucket, 0):>6} {counts['eval'].get(bucket, 0):>9}")
    for reason, count in counts["dropped"].items():
        print(f"dropped {count}: {reason}")
    print(f"dataset: {sum(counts['train'].values())} training rows at {path}")


if __name__ == "__main__":
    errors.run(main)
