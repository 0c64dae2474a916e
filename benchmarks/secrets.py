"""`python -m benchmarks.secrets`: scrubber and single scanners on a labelled corpus (a minute of CPU time).

What counts as a secret: `secrets_corpus/__init__.py`; the measures: `secrets_scores.py`. The corpus was
written from the vendors' descriptions before the first rule, and a third of its types is held out from
whoever writes rules. `--misses` lists what goes wrong by type, held-out types excepted; `--ours` leaves the
scanners out. The last line is JSON; figures of the scrubber are null there while it cannot be run.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import secrets_scanners as scanners
from benchmarks.secrets_corpus import HOSTS, Case, corpus
from benchmarks.secrets_corpus.makers import MAKERS
from benchmarks.secrets_corpus.templates import fill
from benchmarks.secrets_scores import Scores, merged, misses, score
from core.errors import UserError, run
from core.progress import Progress

ROOT = Path(__file__).parent.parent
SOURCES = ("core", "dataset_builder", "trainer", "quant", "eval")
KEY = bytes(32)
KNOWN_VALUES = 20
SPEED_CHARACTERS, SPEED_SECRET_EVERY = 6_000_000, 20_000
OURS = ("recall", "precision", "heldout_recall", "heldout_precision")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.secrets")
    parser.add_argument("--seed", type=int, default=0, help="another corpus of the same kinds")
    parser.add_argument("--misses", action="store_true", help="wrong cases by seen type")
    parser.add_argument("--ours", action="store_true", help="the scrubber alone, without the single scanners")
    options = parser.parse_args(argv)
    cases = corpus(options.seed)
    _describe(cases)
    result: dict[str, Any] = dict.fromkeys([*OURS, "overmask", "schemas_changed", "mb_per_s", "mb_per_s_all"])
    result |= {"seed": options.seed, "tools": {}}
    print(
        f"{'':<22}{'recall':>8}{'found':>8}{'precis.':>8}{'  held-out recall':>18}{'precis.':>9}{'MB/s':>9}"
    )
    try:
        result |= _scrubber(cases, show_misses=options.misses)
    except Exception as error:  # the corpus measures scanners while the scrubber is being written
        print(f"the scrubber cannot be run ({type(error).__name__}: {error}): the scanners alone")
    if not options.ours:
        result["tools"] = _scanners(cases)
    print(json.dumps(result))
    return 0


def _describe(cases: Sequence[Case]) -> None:
    positives = [case for case in cases if case.spans]
    types = {case.type for case in positives}
    heldout = {case.type for case in positives if case.heldout}
    print(
        f"{len(positives)} positives of {len(types)} types ({len(heldout)} held out), "
        f"{len(cases) - len(positives)} look-alikes of {len({c.type for c in cases}) - len(types)} kinds, "
        f"{_megabytes(case.text for case in cases):.1f} MB"
    )


def _row(name: str, scores: Scores, speed: float) -> None:
    shares = (scores.recall, scores.found, scores.precision)
    print(
        f"{name:<22}" + "".join(f"{share:>8.3f}" for share in shares) + f"{scores.heldout_recall:>18.3f}"
        f"{scores.heldout_precision:>9.3f}{speed:>9.2f}",
        flush=True,
    )


def _scrubber(cases: Sequence[Case], *, show_misses: bool) -> dict[str, Any]:
    """Figures of the scrubber with all that it combines, and the speed of its own part alone."""
    from dataset_builder.sanitize import Sanitizer

    whole = Sanitizer(KEY, hosts=HOSTS)
    progress, start = Progress("scrubber", len(cases)), time.process_time()
    findings = []
    for case in cases:
        findings.append([(found.start, found.end) for found in whole.find(case.text)])
        progress.step()
    seconds = time.process_time() - start
    progress.close()
    scores = score(cases, findings)
    speed = _megabytes(case.text for case in cases) / seconds
    _row("the scrubber", scores, speed)
    if show_misses:
        for name, count in misses(cases, findings).most_common():
            print(f"  {count:>4} wrong in {name}")
    clean = clean_texts()
    masked = {name: merged((f.start, f.end) for f in whole.find(text)) for name, text in clean.items()}
    share = sum(end - start for spans in masked.values() for start, end in spans) / sum(
        map(len, clean.values())
    )
    schemas = [name for name in clean if name.endswith(".json")]
    changed = [name for name in schemas if whole.scrub(clean[name]) != clean[name]]
    print(
        f"clean text: {share:.4%} masked in {len(clean)} files, {len(changed)} of {len(schemas)} schemas too"
    )
    for name, spans in masked.items():
        if spans and show_misses:
            print(f"  {len(spans):>4} masked in {name}: characters {spans[0][0]}-{spans[0][1]}, ...")
    own = Sanitizer(KEY, hosts=HOSTS, known=known_values(), libraries=False)
    own_speed = scrub_speed(own, speed_text(cases))
    print(f"known values and own rules alone: {own_speed:.1f} MB/s on one core")
    figures = {name: value for name, value in scores.rounded().items() if name in OURS}
    return figures | {
        "overmask": round(share, 6),
        "schemas_changed": len(changed),
        "mb_per_s": round(own_speed, 2),
        "mb_per_s_all": round(speed, 3),
    }


def _scanners(cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    """Figures of every scanner that is installed, and of their union."""
    figures: dict[str, dict[str, float]] = {}
    found: list[scanners.Found] = []
    size, seconds = _megabytes(case.text for case in cases), 0.0

    def add(name: str, findings: scanners.Found, taken: float) -> None:
        scores = score(cases, findings)
        _row(f"{name} {scanners.version(name) or ''}", scores, size / taken)
        figures[name] = scores.rounded() | {"mb_per_s": round(size / taken, 3)}

    for name in scanners.SCANNERS:
        if scanners.version(name) is None:
            print(f"{name}: not installed")
            continue
        try:
            scanned = scanners.scan(name, cases)
        except UserError as error:
            print(f"{name}: {error}")
            continue
        add(name, scanned.findings, scanned.seconds)
        found.append(scanned.findings)
        seconds += scanned.seconds
    if len(found) > 1:
        add("union", scanners.union(found), seconds)
    return figures


def _megabytes(texts: Iterable[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def clean_texts() -> dict[str, str]:
    """By path: the example skills, the tests' tool schemas and Forja's own source; no secret is in them."""
    paths = [path for path in (ROOT / "examples" / "skills").rglob("*") if path.is_file()]
    paths += (ROOT / "tests" / "data" / "schemas").glob("*.json")
    for folder in SOURCES:
        paths += (ROOT / folder).rglob("*.py")
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(paths)}


def known_values() -> dict[str, str]:
    """Values of the user's own, as SECRETS_FILE would name them."""
    rng = Random(0)
    return {f"TOKEN_{number}": fill("{an:24-48}", rng, MAKERS) for number in range(KNOWN_VALUES)}


def speed_text(cases: Sequence[Case]) -> list[str]:
    """About 6 MB of the clean texts, a secret every 20 kB: what a scrubber meets in real sources."""
    positives = [case.text for case in cases if case.spans]
    texts, length, secrets, clean = [], 0, 0, list(clean_texts().values())
    while length < SPEED_CHARACTERS:
        for text in clean:
            length += len(text)
            due = length // SPEED_SECRET_EVERY - secrets
            texts.append(
                "\n".join([text, *(positives[(secrets + n) * 7 % len(positives)] for n in range(due))])
            )
            secrets += due
    return texts


def scrub_speed(sanitizer: Any, texts: Sequence[str]) -> float:
    """MB of UTF-8 that `sanitizer.scrub` handles in a second of CPU time; the better of two runs."""
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        for text in texts:
            sanitizer.scrub(text)
        best = min(best, time.process_time() - start)
    return _megabytes(texts) / best


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    run(main)
