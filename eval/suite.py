"""`make eval`: the base and the merged checkpoint answer the same held-out prompts; the gain is printed.

Exit code 1 where the merged checkpoint's tool calls are not better than the base's.
"""

import json
from dataclasses import asdict
from pathlib import Path

from core import artifacts, chat, config, errors, generate
from core.chat import Row
from core.render import prompt_text
from core.settings import EvalSettings
from eval import stats
from eval.gates import tool_calls
from eval.stats import Rate

HEADLINE = "mcp_calls"
ANSWER_TOKENS = 160
TITLES = {
    "mcp_calls": "tool calls",
    "synonyms": "tool calls, unseen synonyms",
    "skills": "skills, first step",
    "no_tool": "no call when none is due",
    "recovery": "after a tool's error",
    "replay": "what the base knew",
}


def main(words: list[str]) -> int:
    """Measure and compare; exit code 0 when the tool calls improve, else 1."""
    settings = config.parse(EvalSettings, words)
    base = measure("base", settings.base_dir, "base", settings)
    merged = measure("merged", settings.merged_dir, "merge", settings)
    print(f"\n{'held-out rows':<28} {'n':>4}  {'base':<24} {'merged':<24}")
    for bucket, after in merged.items():
        print(
            f"{TITLES[bucket]:<28} {after.n:>4}  {base[bucket]!s:<24} {after!s:<24} "
            f"{stats.compare(base[bucket], after)}"
        )
    verdict = stats.compare(base[HEADLINE], merged[HEADLINE])
    print(
        f"\neval: tool-call validity {base[HEADLINE].rate:.1%} -> {merged[HEADLINE].rate:.1%}: {verdict} "
        f"(95 % Wilson intervals; judged by core/toolcalls.py)"
    )
    return errors.DONE if verdict == "improves" else errors.NEGATIVE


def measure(name: str, checkpoint: Path, target: str, settings: EvalSettings) -> dict[str, Rate]:
    """The rates of one checkpoint by bucket; answered anew only where an input changed."""
    path, dataset_dir = settings.out_dir / "eval" / name, settings.data_dir / "dataset"
    inputs = {
        "checkpoint": artifacts.as_input(checkpoint, artifacts.require(checkpoint, target)),
        "dataset": artifacts.as_input(dataset_dir, artifacts.require(dataset_dir, "dataset")),
    }
    recorded = config.recorded(settings)
    manifest = artifacts.read_manifest(path)
    if manifest is None or artifacts.differences(manifest, recorded, inputs):
        rows = _limited(chat.read_rows(dataset_dir / "eval.jsonl"), settings.eval_limit)
        with artifacts.create(
            path,
            kind="evaluation",
            profile=settings.profile.name,
            run=settings.run,
            settings=recorded,
            inputs=inputs,
        ) as draft:
            draft.counts = _answer(rows, checkpoint, draft.path, name, settings)
        manifest = artifacts.require(path, "eval")
    else:
        print(f"eval: up to date ({path})")
    return {bucket: Rate(**rate) for bucket, rate in manifest["counts"].items()}


def _answer(
    rows: list[Row], checkpoint: Path, out: Path, name: str, settings: EvalSettings
) -> dict[str, dict[str, float]]:
    tokenizer = generate.load_tokenizer(checkpoint)
    model = generate.load_model(checkpoint, settings.profile.train.dtype)
    prompts = [prompt_text(tool_calls.history(row), row.tools, tokenizer) for row in rows]
    answers = generate.generate(
        model, tokenizer, prompts, max_new_tokens=ANSWER_TOKENS, what=f"eval: {name} answers"
    )
    scores = [tool_calls.score(row, answer) for row, answer in zip(rows, answers, strict=True)]
    with (out / "samples.jsonl").open("w", encoding="utf-8") as file:
        for row, answer, score in zip(rows, answers, scores, strict=True):
            file.write(
                json.dumps({"id": row.id, "answer": answer, **asdict(score)}, ensure_ascii=False) + "\n"
            )
    rates = {}
    for bucket in TITLES:
        own = [score.right for row, score in zip(rows, scores, strict=True) if row.bucket == bucket]
        if own:
            rates[bucket] = asdict(stats.rate(sum(own), len(own)))
    return rates


def _limited(rows: list[Row], limit: int) -> list[Row]:
    if not limit:
        return rows
    seen: dict[str, int] = {}
    kept = []
    for row in rows:
        seen[row.bucket] = seen.get(row.bucket, 0) + 1
        if seen[row.bucket] <= limit:
            kept.append(row)
    return kept


if __name__ == "__main__":
    errors.run(main)
