"""`make dataset`: rows from schemas, requests, skills and replay; checked, split, written.

The same settings and inputs give the same bytes.
"""

import random
from collections import Counter
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, errors
from core.chat import Row
from core.errors import UserError
from core.profile import Data
from core.settings import DatasetSettings
from dataset_builder import checks, replay, split
from dataset_builder import sources as src
from dataset_builder.buckets import mcp_calls, no_tool, recovery, skills
from dataset_builder.requests import load_requests
from dataset_builder.schemas import load_tools
from dataset_builder.secrets import secrets_in
from dataset_builder.skills import load_scenario, load_skills

BUCKETS = {
    "mcp_calls": mcp_calls.rows,
    "synonyms": mcp_calls.synonyms,
    "skills": skills.rows,
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
    replay_dir = settings.data_dir / "replay"
    inputs = {
        "base": artifacts.as_input(settings.base_dir, artifacts.require(settings.base_dir, "base")),
        "schemas": artifacts.as_input(schemas_dir, artifacts.require(schemas_dir, "schemas")),
        "requests": {"path": str(settings.requests), "sha256": artifacts.file_sha256(settings.requests)},
        "replay": artifacts.as_input(replay_dir, artifacts.require(replay_dir, "replay")),
        "skills": _skills_input(settings.skills_dirs),
    }
    recorded = config.recorded(settings)
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"dataset: up to date ({path})")
        return errors.DONE

    sources = _read(settings, profile.data, schemas_dir)
    with artifacts.create(
        path, kind="dataset", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        train, held_out, dropped = _build(settings, profile.data, sources)
        chat.write_rows(draft.path / "train.jsonl", train)
        chat.write_rows(draft.path / "eval.jsonl", held_out)
        draft.counts = {
            "train": dict(Counter(row.bucket for row in train)),
            "eval": dict(Counter(row.bucket for row in held_out)),
            "dropped": dict(dropped),
        }
    _report(draft.counts, path)
    return errors.DONE


def _read(settings: DatasetSettings, data: Data, schemas_dir: Path) -> src.Sources:
    tools = load_tools(schemas_dir)
    found = [(skill, load_scenario(skill, tools)) for skill in load_skills(settings.skills_dirs)]
    return src.Sources(
        tools=tools,
        requests=load_requests(settings.requests, tools),
        scenarios=[(skill, scenario) for skill, scenario in found if scenario is not None],
        tools_shown=settings.tools_shown,
        skill_prompt=data.skill_prompt,
        held_out_skills=settings.profile.held_out_skills,
    )


def _build(
    settings: DatasetSettings, data: Data, sources: src.Sources
) -> tuple[list[Row], list[Row], Counter[str]]:
    side = "eval" if settings.eval_seed in PUBLISHED_SEEDS else "dev"
    answered, kept_back = replay.load(settings.data_dir / "replay")
    train = _rows(sources, settings.rows, settings.data_seed, "train") + answered
    held_out = _rows(sources, data.eval_rows, settings.eval_seed, side)

    from core.generate import load_tokenizer

    tokenizer = load_tokenizer(settings.base_dir)
    digests = {tool.shown_name: tool.sha256 for tool in sources.tools.values()}
    train, dropped = checks.keep(train, tokenizer, settings.max_length, digests)
    held_out, more = checks.keep(held_out + kept_back, tokenizer, settings.max_length, digests)
    _refuse("a secret in row {}: {}; remove it from its source", secrets_in(train + held_out))
    _refuse("{}; reword it in its source{}", [(leak, "") for leak in split.leaks(train, held_out)])
    return split.shuffled(train, settings.data_seed), held_out, dropped + more


def _rows(sources: src.Sources, counts: dict[str, int], seed: int, side: str) -> list[Row]:
    rows = []
    for bucket, make in BUCKETS.items():
        rng = random.Random(f"{seed} {side} {bucket}")
        rows += make(sources, rng, side, counts.get(bucket, 0))
    return rows


def _refuse(message: str, findings: list[tuple[str, str]]) -> None:
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        raise UserError(message.format(*findings[0]) + more)


def _skills_input(directories: tuple[Path, ...]) -> dict[str, str]:
    for directory in directories:
        if not directory.is_dir():
            raise UserError(f"SKILLS_DIRS: {directory}: no such directory")
    return {"path": " ".join(map(str, directories)), "sha256": artifacts.tree_sha256(*directories)}


def _report(counts: dict[str, Any], path: Path) -> None:
    print(f"{'bucket':<12} {'train':>6} {'held out':>9}")
    for bucket in counts["train"] | counts["eval"]:
        print(f"{bucket:<12} {counts['train'].get(bucket, 0):>6} {counts['eval'].get(bucket, 0):>9}")
    for reason, count in counts["dropped"].items():
        print(f"dropped {count}: {reason}")
    print(f"dataset: {sum(counts['train'].values())} training rows at {path}")


if __name__ == "__main__":
    errors.run(main)
