"""What the disk and the user do to a stage: one line each, exit code 2, nothing lost or half-written."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_make

PLACES = ("data", "out", "models")


def words(project: Path, target: str, *settings: str) -> list[str]:
    """Module and words of a target's own command."""
    printed = run_make(project, "-n", target, "PROFILE=mini", *settings).stdout.splitlines()[-1]
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {printed}"], capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[2:-1]


def tree(project: Path) -> dict[str, int]:
    """Every file that stages made, with the time of its last change."""
    found = (path for place in PLACES for path in (project / place).rglob("*") if path.is_file())
    return {str(path.relative_to(project)): path.stat().st_mtime_ns for path in found}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ENOSPC", r"no space left on the disk of .*: free some"),
        ("EACCES", r"Permission denied; check its owner"),
    ],
)
@pytest.mark.parametrize(
    ("target", "settings"),
    [
        ("schemas", ("MCP_CONFIG=examples/only-time.json",)),
        ("dataset", ("DATA_SEED=9",)),
        ("train", ("RUN=full",)),
        ("merge", ("RUN=full-merge",)),
    ],
)
def test_a_disk_that_refuses_is_one_line_and_leaves_what_was_there(project, target, settings, code, message):
    config = project / "examples/only-time.json"
    config.write_text('{"mcpServers": {"time": {"command": ".venv-mcp/time/bin/mcp-server-time"}}}')
    if target == "merge" and not (project / "out/full-merge").exists():
        subprocess.run(["cp", "-r", "out/mini", "out/full-merge"], cwd=project, check=True)
    before = tree(project)
    script = str(ROOT / "tests/failing_disk.py")
    done = subprocess.run(
        [sys.executable, script, code, *words(project, target, *settings)],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error")]) == 1
    after = {name: at for name, at in tree(project).items() if "/states/" not in name}
    assert after == before


def test_ctrl_c_is_one_line_and_leaves_nothing_half_written(project):
    before = tree(project)
    child = subprocess.Popen(
        [sys.executable, "-m", *words(project, "train", "RUN=stopped", "EPOCHS=50")],
        cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        # As in a terminal: what a shell starts in the background ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert child.stdout is not None
    assert any("(steps)" in line for line in child.stdout), "it ended before it could be interrupted"
    child.send_signal(signal.SIGINT)
    rest, _ = child.communicate(timeout=60)
    assert child.returncode == 2
    assert "interrupted: nothing was half-written; run the same command again" in rest
    assert "Traceback" not in rest
    told = ("out/stopped/states/", "out/stopped/metrics.jsonl", "out/stopped/labels.jsonl")
    assert {name: at for name, at in tree(project).items() if not name.startswith(told)} == before


def test_a_broken_line_of_the_dataset_is_named_by_file_and_line(project):
    rows = project / "data/mini/dataset/train.jsonl"
    whole = rows.read_bytes()
    lines = whole.splitlines(keepends=True)
    rows.write_bytes(b"".join([*lines[:2], lines[2][:40] + b"\n", *lines[3:]]))
    try:
        done = subprocess.run(
            [sys.executable, "-m", *words(project, "train", "RUN=broken")],
            cwd=project, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        rows.write_bytes(whole)
    assert done.returncode == 2
    assert re.search(r"error: data/mini/dataset/train\.jsonl:3: broken JSON", done.stderr)
    assert not (project / "out/broken/adapter").exists()
