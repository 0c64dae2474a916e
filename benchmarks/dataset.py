"""`python -m benchmarks.dataset`: 3,000 examples of five servers and five skills, built, verified, rendered.

The servers are tests/data/schemas, the skills those of examples/. The tokenizer is the tiny base's: it cuts a
text into more tokens than production's, so the time is no less. The bar: 180 s on two cores, 2 GB.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from core import artifacts, chat
from core.chat import Row
from dataset_builder import sources as src
from dataset_builder.buckets import errors, mcp, negatives, penpot
from dataset_builder.rules_stage import load_rules
from dataset_builder.schemas import load_servers, load_tools
from dataset_builder.verifying import gate, page, split
from dataset_builder.verifying.figures import figures
from dataset_builder.verifying.rulebook import Rulebook
from dataset_builder.verifying.verification import Verified, verify
from tests import demonstrations

ROOT = Path(__file__).parents[1]
BUCKETS = {"penpot": penpot.rows, "mcp": mcp.rows, "negatives": negatives.rows, "errors": errors.rows}
EXAMPLES = {"penpot": 300, "mcp": 1900, "negatives": 200, "errors": 150, "skills": 450}
"""Of them one in `HELD_OUT` is held out. Calls stand for delegation and replay, which take a model."""
HELD_OUT = 10
TOOLS_SHOWN, MAX_LENGTH = 12, 16384
BAR_SECONDS, BAR_MB = 180, 2048


def main() -> int:
    """Print a table, then one JSON line; exit code 1 where the bar is not reached."""
    with tempfile.TemporaryDirectory() as place:
        tokenizer = tiny_tokenizer(Path(place))
        schemas = mission_schemas(Path(place))
        demonstrations.rows("train", 1)  # asks the skills' servers for their tools: no part of the build
        start = time.monotonic()
        seconds: dict[str, float] = {}
        sources = src.Sources(
            tools=load_tools(schemas),
            servers=load_servers(schemas),
            requests=[],
            scenarios=[],
            tools_shown=TOOLS_SHOWN,
            skill_prompt="body",
            held_out_skills=(),
        )
        train, held_out = rows(sources, "train"), rows(sources, "eval")
        seconds["built"] = time.monotonic() - start
        book = load_rules(demonstrations.SKILLS, Path(place))
        made = verify(
            train,
            held_out,
            tokenizer=tokenizer,
            max_length=MAX_LENGTH,
            sha256={tool.shown_name: tool.sha256 for tool in sources.tools.values()},
            rules_of=book,
            skills=demonstrations.SKILLS,
        )
        gate.refuse_secrets({"train": made.train, "eval": made.held_out}, tokenizer, None, {})
        seconds["verified and rendered"] = time.monotonic() - start - sum(seconds.values())
        write(Path(place), made, book)
        seconds["written, with the page"] = time.monotonic() - start - sum(seconds.values())
    return report(made, len(sources.tools), seconds)


def tiny_tokenizer(place: Path) -> object:
    """The tokenizer of the tiny base, which is made for it."""
    from core.generate import load_tokenizer
    from trainer import base

    base.main(["PROFILE=tiny", "RUN=tiny", f"MODELS_DIR={place}"])
    return load_tokenizer(place / "tiny")


def mission_schemas(place: Path) -> Path:
    """The five servers' schemas, as `make schemas` leaves them."""
    path = place / "schemas"
    with artifacts.create(path, kind="schemas", profile="tiny", run="tiny", settings={}, inputs={}) as draft:
        shutil.copytree(ROOT / "tests/data/schemas", draft.path, dirs_exist_ok=True)
    return path


def rows(sources: src.Sources, side: str) -> list[Row]:
    """The side's rows: of the buckets, and demonstrations of the skills beside tools of the servers."""
    rng = random.Random(f"benchmark {side}")
    counts = {
        name: count // HELD_OUT if side == "eval" else count - count // HELD_OUT
        for name, count in EXAMPLES.items()
    }
    others = [tool.shown for tool in sources.tools.values()]
    skills = [
        replace(row, tools=[*row.tools, *rng.sample(others, sources.tools_shown - len(row.tools))])
        for row in demonstrations.rows(side, counts["skills"])
    ]
    calls = [row for name, make in BUCKETS.items() for row in make(sources, rng, side, counts[name])]
    return calls + skills


def write(place: Path, made: Verified, book: Rulebook) -> None:
    """The files of the stage."""
    counts = figures(made.train, made.held_out, made.dropped, book)
    chat.write_rows(place / "train.jsonl", split.shuffled(made.train, 0))
    chat.write_rows(place / "eval.jsonl", made.held_out)
    page_text = page.render("benchmark", counts, made.train, made.held_out, made.dropped)
    (place / "dataset.html").write_text(page_text, encoding="utf-8")


def report(made: Verified, tools: int, seconds: dict[str, float]) -> int:
    """The table and the line."""
    kept = [*made.train, *made.held_out]
    tokens = sorted(count for row in kept for count, _ in row.meta["tokens"])
    schemas = sum(len(json.dumps(row.tools)) for row in kept) / len(kept)
    for name, figure in {
        "tools": f"{tools}",
        "kept": f"{len(kept)} of {sum(EXAMPLES.values())}",
        "schemas in a prompt": f"{schemas / 1000:.1f} kB",
        "tokens of a sample": f"{tokens[len(tokens) // 2]:,} in the middle, at most {tokens[-1]:,}",
        **{name: f"{spent:.1f} s" for name, spent in seconds.items()},
        "of the processor": f"{time.process_time():.1f} s, with what came before",
    }.items():
        print(f"{name:<24} {figure}")
    for (step, reason), count in Counter((drop.step, drop.reason) for drop in made.dropped).most_common(10):
        print(f"{'dropped':<24} {count}: {step}: {reason}")
    found = {
        "examples": len(kept),
        "seconds": round(sum(seconds.values()), 1),
        "rss_mb": artifacts.peak_mb(),
    }
    print(json.dumps(found))
    return int(found["seconds"] > BAR_SECONDS or found["rss_mb"] > BAR_MB)


if __name__ == "__main__":
    sys.exit(main())
