"""`make control`: a zero adapter gives the base's bytes, and whatever is not the base's is named."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, verdicts
from core.errors import DONE, Refused
from eval import control, evaluations

WORDS = ["PROFILE=mini", "RUN=mini", "MODELS_DIR=models"]


def stage(where: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words], cwd=where, capture_output=True, text=True, check=False
    )


def test_a_zero_adapter_merges_to_the_base_and_counts_as_trained(project: Path, tmp_path: Path) -> None:
    where = tmp_path / "project"
    shutil.copytree(project, where, symlinks=True)
    done = stage(where, "trainer.zero_adapter", *WORDS)
    assert done.returncode == 0, done.stderr
    assert "tensors lora_B set to 0" in done.stdout
    assert "up to date" in stage(where, "trainer.zero_adapter", *WORDS).stdout
    real, zero = (
        artifacts.require(where / f"out/{run}/adapter", "train") for run in ("mini", "mini-control")
    )
    assert artifacts.differences(zero, real["settings"], real["inputs"]) == []
    blank = ("BASE=", "ADAPTER=", "MERGED=", "CHECK_BASE=")
    done = stage(where, "quant.merge", "PROFILE=mini", "RUN=mini-control", "MODELS_DIR=models", *blank)
    assert done.returncode == 0, done.stderr
    base, merged = (
        artifacts.require(where / place, "x") for place in ("models/tiny", "models/mini-control/merged")
    )
    assert artifacts.digest(merged) == artifacts.digest(base)
    assert artifacts.digest(artifacts.require(where / "models/mini/merged", "x")) != artifacts.digest(base)


# ---- the judgement -----------------------------------------------------------------------------

SAMPLES = [
    {"kind": "tool_calls", "id": str(i), "bucket": "mcp_calls", "skill": None, "message": {"content": "x"}}
    for i in range(4)
]


def artefact(path: Path, files: dict[str, str]) -> None:
    facts: dict[str, Any] = {"kind": "x", "profile": "tiny", "run": "r", "settings": {}, "inputs": {}}
    with artifacts.create(path, **facts) as draft:
        for name, text in files.items():
            (draft.path / name).write_text(text, encoding="utf-8")


@pytest.fixture
def controlled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run `r` of a control that came out as it should."""
    monkeypatch.chdir(tmp_path)
    for place in ("models/tiny", "models/r/merged"):
        artefact(Path(place), {"weights": "w"})
    for name in ("base", "merged"):
        lines = "".join(json.dumps(sample) + "\n" for sample in SAMPLES)
        artefact(evaluations.answers_dir(Path("out/r"), name), {evaluations.SAMPLES: lines})
    for name in ("merged", "nvfp4"):
        judge(name, "no_change")
    return tmp_path


def judge(name: str, verdict: str, gain: float = 0.0) -> None:
    gates = {
        gate: {"verdict": word, "decides": "row", "delta": 0.02, "compared": {"row": {"gain": change}}}
        for gate, word, change in (("tool_calls", verdict, gain), ("loss", "no_change", 0.0))
    }
    artefact(verdicts.directory(Path("out/r"), name), {verdicts.FILE: json.dumps({"gates": gates})})


def run() -> int:
    return control.main(["PROFILE=tiny", "RUN=r", "MODELS_DIR=models"])


def test_a_control_that_is_the_base_passes(controlled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == DONE
    assert "4 samples equal" in capsys.readouterr().out
    judge("nvfp4", "improves", 0.01)
    assert run() == DONE, "rounding, which a paired test sees"


def test_other_weights_another_answer_and_a_gate_that_moves_are_each_named(controlled: Path) -> None:
    artefact(Path("models/r/merged"), {"weights": "v"})
    changed = [*SAMPLES[:3], SAMPLES[3] | {"message": {"content": "y"}}]
    lines = "".join(json.dumps(sample) + "\n" for sample in changed)
    artefact(evaluations.answers_dir(Path("out/r"), "merged"), {evaluations.SAMPLES: lines})
    judge("nvfp4", "worse", -0.03)
    with pytest.raises(Refused) as caught:
        run()
    assert str(caught.value).splitlines() == [
        "control: merged: its files are not the base's",
        "control: merged: 1 of 4 samples are not the base's, tool_calls 3 first",
        "control: nvfp4: tool_calls worse",
    ]
