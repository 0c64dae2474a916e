"""`make gpu-check` runs through without a GPU: the same script on a much smaller model."""

import json

import pytest

from core import errors
from trainer import gpu_check


@pytest.mark.slow  # two trainings and a merge, each in processes of its own
def test_without_a_gpu_the_parts_that_need_one_say_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert gpu_check.main(["PROFILE=tiny", "RUN=one", "MODELS_DIR=models"]) == errors.DONE
    parts = json.loads((tmp_path / "out/one/gpu-check.json").read_text())["parts"]
    assert parts["gated delta rule"]["skipped"].startswith("no CUDA device")
    assert parts["unsloth"]["skipped"]
    for name in ("plain", "plain, packed"):
        assert len(parts[name]["losses"]) == gpu_check.STEPS
        assert parts[name]["tokens_per_second"] > 0
    assert parts["plain against plain, packed"]["largest_relative_difference"] < 0.02
    assert "tensors merged" in parts["plain, merged"]["merge"]
    printed = capsys.readouterr().out
    assert all(name in printed for name in parts)
    assert [path.name for path in (tmp_path / "out/one").iterdir()] == ["gpu-check.json"], (
        "no scratch is left"
    )


def test_losses_that_differ_are_a_failure():
    """The planted fault: an optimiser step whose micro-batches are summed instead of averaged."""
    one, other = {"losses": [8.0, 4.0]}, {"losses": [16.0, 8.0]}
    assert gpu_check.compare(one, one) == {"largest_relative_difference": 0.0}
    assert gpu_check.compare(one, other)["failed"] == "losses differ by 100.0%"
    assert gpu_check.compare(one, {"skipped": "no CUDA device"}) == {"skipped": "one of them did not train"}


def test_the_table_says_why_a_part_is_missing():
    parts = {"unsloth": {"skipped": "no CUDA device"}, "plain": {"failed": "error: no room"}}
    lines = gpu_check.table(parts).splitlines()
    assert lines[0].endswith("skipped: no CUDA device")
    assert lines[1].endswith("failed: error: no room")
