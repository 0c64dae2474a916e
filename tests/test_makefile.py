"""The Makefile: its settings are the stages', misspelt ones are named, nothing is silently done again."""

import re
import subprocess

import pytest

from core.settings import STAGES, given_names
from tests.conftest import ROOT, run_make


def make_list(name: str) -> list[str]:
    """The words of a make variable, expanded."""
    shown = subprocess.run(
        ["make", "-f", "-", "show"], cwd=ROOT, capture_output=True, text=True, check=True,
        input=f"include Makefile\nshow:\n\t@echo $({name})\n",
    )  # fmt: skip
    return shown.stdout.split()


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_gets_exactly_the_settings_that_it_reads(stage):
    assert make_list(f"{stage.upper()}_SETTINGS") == given_names(stage)


def test_every_setting_is_documented_by_a_comment_above_it():
    block = (ROOT / "Makefile").read_text().split("# ---- Machinery")[0]
    documented = set(re.findall(r"^# .+\n([A-Z_]+) :=", block, re.M))
    assert documented == set(make_list("SETTINGS"))


def test_help_names_every_target_and_setting():
    shown = run_make(ROOT, "help").stdout
    for word in [
        *STAGES,
        "all",
        "env",
        "eval-nvfp4",
        "test",
        "test-slow",
        "check",
        "settings",
        *make_list("SETTINGS"),
    ]:
        assert re.search(rf"^  {word} ", shown, re.M), word


def test_a_misspelt_setting_stops_make_and_names_the_right_one():
    done = run_make(ROOT, "train", "LORA_RNAK=8")
    assert done.returncode == 2
    assert "LORA_RNAK: no such setting (did you mean LORA_RANK?)" in done.stderr
    assert done.stdout == ""


def test_a_bad_value_is_one_line_without_a_traceback(project):
    done = run_make(project, "base", "PROFILE=tinny")
    assert done.returncode == 2
    assert "PROFILE=tinny: no such profile (did you mean tiny?)" in done.stderr
    assert "Traceback" not in done.stderr


def test_printed_commands_can_be_pasted(project):
    lines = run_make(project, "-n", "merge", "PROFILE=mini").stdout.splitlines()
    commands = [line for line in lines if line.startswith(".venv/bin/python -m ")]
    assert [re.findall(r"-m (\S+)", line)[0] for line in commands] == [
        "trainer.base", "quant.production", "trainer.verify", "dataset_builder.schemas",
        "dataset_builder.raw", "dataset_builder.rules_stage", "dataset_builder.replay",
        "dataset_builder.build", "trainer.train", "quant.merge",
    ]  # fmt: skip
    done = subprocess.run(commands[-1], shell=True, cwd=project, capture_output=True, text=True, check=True)
    assert "merge: up to date" in done.stdout


def test_a_second_make_does_nothing_and_says_so(project):
    before = {path: path.stat().st_mtime_ns for path in project.glob("*/mini/**/*") if path.is_file()}
    done = run_make(project, "merge", "PROFILE=mini")
    assert done.returncode == 0
    for stage in ("base", "production", "schemas", "sources", "replay", "dataset", "train", "merge"):
        assert f"{stage}: up to date" in done.stdout
    after = {path: path.stat().st_mtime_ns for path in project.glob("*/mini/**/*") if path.is_file()}
    assert after == before


def test_other_settings_never_retrain_silently(project):
    adapter = project / "out/mini/adapter/adapter_model.safetensors"
    before = adapter.read_bytes()
    done = run_make(project, "merge", "PROFILE=mini", "LORA_RANK=8")
    assert done.returncode == 2
    assert "LORA_RANK=8 (was 16)" in done.stderr
    assert "RUN=<new name>" in done.stderr
    assert "RETRAIN=1" in done.stderr
    assert adapter.read_bytes() == before


def test_settings_are_shown_with_their_origin(project):
    shown = run_make(project, "settings", "PROFILE=mini", "LORA_RANK=8").stdout
    assert re.search(r"^PROFILE +mini +command line$", shown, re.M)
    assert re.search(r"^LORA_RANK +8 +command line$", shown, re.M)
    assert re.search(r"^LORA_ALPHA +32 +profile$", shown, re.M)
    assert re.search(r"^TRAIN_SEED +0 +Makefile$", shown, re.M)
    assert re.search(r"^BACKEND +default$", shown, re.M)


def test_make_without_gnu_make_4_is_refused():
    done = subprocess.run(
        ["make", ".FEATURES=", "help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "GNU Make 4 is needed" in done.stderr
