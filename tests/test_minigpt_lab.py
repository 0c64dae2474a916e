"""The lab's stages: nothing is done twice or overwritten, and no process outlives its parent."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core import artifacts
from core.errors import UserError
from tests.conftest import ROOT, run_make
from trainer.minigpt import (
    ablation,
    base,
    evaluate,
    figures,
    finetune,
    lab,
    parallel,
    pretrain,
    report,
    train,
)

SCHEMA = ["PROFILE=minigpt", "RUN=r", "MODELS_DIR=models"]
SHORT = [*SCHEMA, "SEEDS=100", "METHODS=no-replay", "EPOCHS=0.03"]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place to work in, where a base is pre-trained for two steps and little is replayed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finetune, "Plan", functools.partial(finetune.Plan, replay_sentences=40))
    plan = pretrain.Plan(steps=2, batch=4, sentences=200)
    monkeypatch.setattr(pretrain, "Plan", lambda: plan)
    return tmp_path


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("PROFILE=tiny", "PROFILE=tiny: only the lab has this stage: add PROFILE=minigpt"),
        ("METHODS=lorra", "METHODS=lorra: no such method (did you mean lora?); have lora, no-replay, qlora"),
        ("SEEDS=0,1", "SEEDS=0,1: expected whole numbers from 0, separated by spaces"),
        ("RANKS=0 1", "RANKS=0 1: expected whole numbers from 1, separated by spaces"),
    ],
)
def test_a_mistake_is_one_line(word: str, message: str) -> None:
    words = parallel.with_values(SCHEMA, dict([word.split("=")]))
    with pytest.raises(UserError) as caught:
        settings = lab.parse(words)
        lab.cells(settings)
        lab.swept_cells(settings)
    assert str(caught.value) == message


def test_cells_are_named_by_method_rank_and_seed_and_never_share_a_directory() -> None:
    settings = lab.parse(SCHEMA)
    every = [*lab.cells(settings), *lab.swept_cells(settings)]
    assert len(lab.swept_cells(settings)) == 6 * 5 * 2
    named = {(cell.method, cell.rank, cell.seed) for cell in every}
    assert len({cell.adapter_dir.parent for cell in every}) == len(named) == 60 + 5


def test_the_stages_make_and_keep_and_refuse(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="make base"):
        train.main(SHORT)
    for stage in (base, train):
        assert stage.main(SHORT) == 0
    files = {path: path.stat().st_mtime_ns for path in desk.rglob("*") if path.is_file()}
    capsys.readouterr()
    for stage in (base, train):
        assert stage.main(SHORT) == 0
    assert capsys.readouterr().out.count("up to date") == 2
    assert {path: path.stat().st_mtime_ns for path in desk.rglob("*") if path.is_file()} == files

    other = parallel.with_values(SHORT, {"LORA_ALPHA": 8})
    with pytest.raises(UserError, match=r"LORA_ALPHA=8 \(was 4\).*RUN=<new name>.*RETRAIN=1"):
        train.main(other)
    assert train.main([*other, "RETRAIN=1"]) == 0
    cell = lab.cells(lab.parse(SHORT))[0]
    manifest = artifacts.require(cell.adapter_dir, "train")
    assert manifest["settings"]["LORA_ALPHA"] == 8
    assert lab.unscored([cell]) == [cell]
    assert evaluate.main(SHORT) == 0
    assert lab.unscored([cell]) == []

    with pytest.raises(UserError, match="no scores of lora"):
        report.main(SHORT)
    lora_too = parallel.with_values(other, {"METHODS": "lora"})
    assert train.main(lora_too) == evaluate.main(lora_too) == 0
    assert ablation.main([*other, "RANKS=1"]) == 0
    assert (desk / "out/r/rank_ablation.png").read_bytes().startswith(b"\x89PNG")
    assert report.main(SHORT) == 0
    found = json.loads((desk / "out/r/report.json").read_text())
    for key in report.KEYS:
        assert len(found[key]) == 1
    assert {bar["figure"] for bar in found["bars"]} >= set(report.KEYS)
    page = (desk / "out/r/report.html").read_text()
    assert "data:image/png" in page
    assert "http" not in page
    assert "NOT reached" in page


def test_bars_are_judged_over_all_seeds() -> None:
    good = {
        "irregular_gain": [30.0, 41.0],
        "control_drift": [1.0, 5.0],
        "control_accuracy_loss": [0.0, 5.0],
        "prefers_right": [8.0, 8.0],
        "adapter_share": [0.009, 0.009],
    }
    assert all(bar["reached"] for bar in figures.held_against_bars({"lora": good}))
    bad = {
        "irregular_gain": 9.9,
        "control_drift": 5.1,
        "control_accuracy_loss": 5.1,
        "prefers_right": 7,
        "adapter_share": 0.01,
    }
    for name, value in bad.items():
        judged = figures.held_against_bars({"lora": good | {name: [value, *good[name][1:]]}})
        assert [bar["figure"] for bar in judged if not bar["reached"]] == [name]


# ---- parallel processes -------------------------------------------------------------------------

STAGE = ["tests.lab_stage"]


@pytest.fixture
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def alive(pid: int) -> bool:
    """Whether a process still runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("at_root")
def test_every_variant_runs_once(tmp_path: Path) -> None:
    variants = {name: {"NAME": name} for name in "abcd"}
    parallel.run(STAGE, [f"DIR={tmp_path}", "WHAT=write", "NAME=x"], variants)
    assert sorted(path.name for path in tmp_path.iterdir()) == list("abcd")


@pytest.mark.usefixtures("at_root")
@pytest.mark.parametrize(
    ("what", "kind", "message"), [("fail", UserError, "^b: mend it$"), ("break", RuntimeError, "a defect")]
)
def test_a_failure_is_told_and_the_others_are_stopped(tmp_path: Path, what, kind, message) -> None:
    variants = {"a": {"NAME": "a", "WHAT": "wait"}, "b": {"NAME": "b", "WHAT": what}}
    start = time.monotonic()
    with pytest.raises(kind, match=message):
        parallel.run(STAGE, [f"DIR={tmp_path}"], variants)
    assert time.monotonic() - start < 40


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    code = (
        "from core import errors; from trainer.minigpt import parallel; "
        f"errors.run(lambda words: parallel.run({STAGE}, words, {{n: {{'NAME': n}} for n in 'ab'}}))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, f"DIR={tmp_path}", "WHAT=wait"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has told their processes to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wanted = min(2, parallel.cores())
    while len(list(tmp_path.iterdir())) < wanted:
        assert parent.poll() is None
        time.sleep(0.05)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    assert len(children) == wanted
    os.kill(parent.pid, how)
    _, said = parent.communicate(timeout=30)
    assert parent.returncode == (-9 if how == signal.SIGKILL else 2)
    assert how == signal.SIGKILL or "run the same command again" in said
    deadline = time.monotonic() + 20
    while any(alive(int(pid)) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- the Makefile -------------------------------------------------------------------------------


def test_the_same_words_run_the_lab() -> None:
    done = run_make(ROOT, "-n", "base", "train", "eval", "ablation", "report", "PROFILE=minigpt")
    modules = [line.split()[2] for line in done.stdout.splitlines()]
    stages = ("base", "train", "evaluate", "ablation", "report")
    assert modules == [f"trainer.minigpt.{stage}" for stage in stages]


@pytest.mark.parametrize("target", ["merge", "verify", "quantize", "deploy"])
def test_a_stage_that_the_lab_lacks_says_so(target: str) -> None:
    done = run_make(ROOT, target, "PROFILE=minigpt")
    assert done.returncode == 2
    assert f"error: PROFILE=minigpt has no '{target}'" in done.stderr
    assert done.stdout == ""
