"""`python -m benchmarks.dataset`: `make dataset` of production's profile, five servers and five skills.

Everything that the stage does is timed: rows built, verified, rendered, scanned for secrets, written, shown
as a page. The servers' dumps are tests/data/schemas, with those of the example's two, which the skills call;
the replayed answers come from a stand-in for the served model. The tokenizer is the tiny base's: it makes
three tokens where production's makes one, so the time is no less. The bar: 3,000 examples in 180 s on two
cores, in 2 GB.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from core import artifacts, chat, profile
from dataset_builder import build, raw, replay, rules_stage, schemas
from tests.model_server import echo, serve
from trainer import base

ROOT = Path(__file__).parents[1]
PROFILE = profile.load("qwen3_6_35b_a3b")
WORDS = [
    f"PROFILE={PROFILE.name}", "RUN=benchmark", "MODELS_DIR=models", "MCP_CONFIG=examples/mcp.json",
]  # fmt: skip
MAX_LENGTH = 3 * PROFILE.train.max_length
BAR_EXAMPLES, BAR_SECONDS, BAR_MB = 3000, 180, 2048


def main() -> int:
    """Print a table, then one JSON line; exit code 1 where the bar is not reached."""
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        prepare(Path(place))
        start, cpu = time.monotonic(), time.process_time()
        build.main([*WORDS, f"MAX_LENGTH={MAX_LENGTH}", "DATA_SEED=0", "EVAL_SEED=0"])
        seconds, cpu = time.monotonic() - start, time.process_time() - cpu
        dataset = Path("data", PROFILE.name, "dataset")
        rows = [row for side in ("train", "eval") for row in chat.read_rows(dataset / f"{side}.jsonl")]
    prompts = sum(len(json.dumps(row.tools, ensure_ascii=False)) for row in rows) / len(rows)
    print(f"{'schemas in a prompt':<24} {prompts / 1000:.1f} kB")
    print(f"{'of the processor':<24} {cpu:.1f} s")
    found = {"examples": len(rows), "seconds": round(seconds, 1), "rss_mb": artifacts.peak_mb()}
    print(json.dumps(found))
    reached = len(rows) >= BAR_EXAMPLES and seconds <= BAR_SECONDS and found["rss_mb"] <= BAR_MB
    return 0 if reached else 1


def prepare(place: Path) -> None:
    """What the stages before leave: the base, the servers' dumps, the sources, their rules, the answers."""
    shutil.copytree(ROOT / "examples", place / "examples")
    (place / ".venv-mcp").symlink_to(ROOT / ".venv-mcp")
    base.main(["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models"])
    os.symlink("tiny", place / "models" / PROFILE.base_name)
    dumped = schemas.ask_all(schemas.read_config(Path("examples/mcp.json")))
    facts = {"profile": PROFILE.name, "run": "benchmark", "settings": {}, "inputs": {}}
    with artifacts.create(place / "data" / PROFILE.name / "schemas", kind="schemas", **facts) as draft:
        shutil.copytree(ROOT / "tests/data/schemas", draft.path, dirs_exist_ok=True)
        for name, answer in dumped.items():
            (draft.path / f"{name}.json").write_text(json.dumps(answer), encoding="utf-8")
    raw.main([*WORDS, *(f"{kind}_DIRS=examples/{kind.lower()}" for kind in ("SKILLS", "AGENTS", "PLANS"))])
    rules_stage.main(WORDS[:3])
    with serve(echo) as server:
        replay.main([*WORDS, f"ENDPOINT={server.url}"])


if __name__ == "__main__":
    sys.exit(main())
