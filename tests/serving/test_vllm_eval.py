"""make eval with SERVE_CMD: a real vLLM answers the held-out rows and does live tasks, and is gone again."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core import artifacts
from eval import evaluations
from tests.serving import server
from tests.test_eval import LIVE, TASKS, WORDS

pytestmark = [pytest.mark.slow, pytest.mark.serve]


def test_a_served_checkpoint_is_judged_by_its_server_s_own_parser(project: Path, tmp_path: Path) -> None:
    where = tmp_path / "project"
    shutil.copytree(project, where, symlinks=True)
    (where / LIVE).write_text(TASKS, encoding="utf-8")
    profile = where / "core/profiles/mini.py"  # three imports of vLLM on a busy machine
    profile.write_text(
        profile.read_text(encoding="utf-8").replace(
            'name="mini",', 'name="mini", health=replace(tiny.PROFILE.health, minutes=20),'
        )
    )
    variables = [f"{name}={value}" for name, value in server.ENVIRONMENT.items()]
    # Without MTP: on a CPU vLLM 0.32 dies of several drafts at once.
    parsers = [flag for flag in server.LIKE_PRODUCTION if "speculative" not in flag]
    flags = [*parsers, *server.FOR_CPUS, "--host=127.0.0.1"]
    command = shlex.join(["env", *variables, str(server.VLLM), "serve", *flags])
    done = subprocess.run(
        [
            sys.executable, "-m", "eval.suite", *WORDS, "EVAL_LIMIT=4", "FORCE=1",
            f"SERVE_CMD={command} --port={{port}} {{checkpoint}}",
        ],
        cwd=where, capture_output=True, text=True, timeout=2400, check=False,
    )  # fmt: skip
    log = where / "out/mini/eval/serve.log"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text()[-3000:] if log.exists() else "")
    made = artifacts.require(evaluations.answers_dir(where / "out/mini", "merged"), "eval")
    assert made["backend"]["parser"] == "the server's own"
    assert made["backend"]["name"].endswith(", served")
    base, merged = (evaluations.samples(where / "out/mini", name) for name in ("base", "merged"))
    assert sorted((s["kind"], s["id"]) for s in merged) == sorted((s["kind"], s["id"]) for s in base)
    turns = [sample["message"] for sample in merged if sample["kind"] == "tool_calls" and sample["due"]]
    called = [message for message in turns if message.get("tool_calls")]
    assert len(called) > len(turns) / 2, "the server's parser finds the calls"
    assert all(isinstance(call["function"]["arguments"], dict) for m in called for call in m["tool_calls"])
    assert any(s["trace"][1:] for s in merged if s["kind"] == "live"), "a call was really done"
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(where / "models/mini/merged") not in listed, "the server outlived the evaluation"
