"""The real Unsloth, as far as a CPU goes (.venv-unsloth): the plan's modules, the plain backend's keys."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core import offline, shards
from tests.conftest import ROOT
from tests.unsloth_on_cpu import make_job, train
from trainer import backends
from trainer.backends import adapter, plain
from trainer.running import launch

WEIGHTS = "adapter_model.safetensors"
PYTHON = ROOT / ".venv-unsloth/bin/python"
TESTS_ALONE = {"UNSLOTH_ALLOW_CPU": "1", "UNSLOTH_DISABLE_PINNED_MEMORY": "1", "UNSLOTH_COMPILE_DISABLE": "1"}
"""Unsloth's switches for its own tests on a CPU; a training never sets them."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-unsloth: make test-slow makes it"),
]


def environment(out: Path) -> dict[str, str]:
    """What `trainer.running.launch` would set."""
    return os.environ | offline.SWITCHES | launch.ENVIRONMENT | backends.environment("unsloth", out)


def run(base: Path, out: Path, experts: str) -> dict[str, Any]:
    """Load with Unsloth, save the adapter, and tell what was seen."""
    out.mkdir()
    done = subprocess.run(
        [PYTHON, ROOT / "tests/unsloth_on_cpu.py", base, out, experts],
        cwd=out,
        env=environment(out) | TESTS_ALONE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("experts", ["", "1"])
def test_both_backends_agree_on_modules_start_losses_keys_and_layout(base_dir, tmp_path, experts):
    found = run(base_dir, tmp_path / "unsloth", experts)
    job = make_job(base_dir, tmp_path / "plain", experts)
    model, tokenizer = plain.load(job)
    start = {n: float(p.detach().double().sum()) for n, p in model.named_parameters() if p.requires_grad}
    assert found["start"] == dict(sorted(start.items())), "the same names with the same first values"
    # Its kernels round otherwise: 2.4e-4 was seen.
    assert found["losses"] == pytest.approx(train(plain, model, tokenizer, job), rel=1e-3)
    adapter.save(model, job.out / "adapter")
    assert found["asked"] == [], "nothing is downloaded"
    left = {path.name for path in (tmp_path / "unsloth").iterdir()}
    assert left - {"adapter", "rows.jsonl", "metrics.jsonl", "states"} == {"unsloth_compiled_cache"}
    theirs, ours = tmp_path / "unsloth/adapter", job.out / "adapter"
    headers = [
        {name: (info.dtype, info.shape) for name, info in shards.read_header(path / WEIGHTS).items()}
        for path in (theirs, ours)
    ]
    assert headers[0] == headers[1]
    configs = [json.loads((path / "adapter_config.json").read_text()) for path in (theirs, ours)]
    for name in ("r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules", "target_parameters"):
        assert configs[0][name] == configs[1][name]
    assert [c.get("lora_B_layout") for c in configs] == ["rank_major" if experts else None] * 2


def test_its_path_for_cpus_is_never_taken(tmp_path):
    done = subprocess.run(
        [PYTHON, "-c", "import unsloth"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "You need a GPU" in done.stderr
