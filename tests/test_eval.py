"""`make eval`: what is measured, of which bytes the verdict is, and what is not done twice."""

import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, chat, verdicts
from eval import evaluations, held_out
from eval.outcomes import counts, outcomes
from tests.model_server import echo, serve
from tests.test_serving import ROOT, STAND_IN
from tests.test_tool_calls_gate import GOLD, row


def test_a_limit_takes_the_same_rows_in_any_order():
    rows = [replace(row([chat.user("x"), GOLD]), id=f"r-{i:03}", bucket=f"b{i % 3}") for i in range(30)]
    kept = held_out.limited(random.Random(100).sample(rows, 30), 4)
    assert [one.id for one in kept] == [f"r-{i:03}" for i in range(12)]
    assert len(held_out.limited(rows, 0)) == 30


LIVE = "two-live-tasks.yaml"
TASKS = """
- id: crear rama
  server: git
  tools: [git_create_branch]
  setup: git init -q -b main web && git -C web -c user.name=x -c user.email=x commit -q --allow-empty -m x
  request: Crea la rama «nueva» en «web» a partir de «main»
  check: git -C web rev-parse -q --verify nueva
- id: preparar
  server: git
  tools: [git_add]
  setup: git init -q -b main api && touch api/a.py
  request: Prepara «a.py» en «api»
  check: git -C api diff --cached --name-only | grep -qx a.py
"""
WORDS = ("PROFILE=mini", "RUN=mini", "MODELS_DIR=models", "MCP_CONFIG=examples/mcp.json", f"LIVE={LIVE}")


def suite(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`python -m eval.suite` in a copy of the project; stderr ends with whether torch was loaded."""
    code = (
        "import sys; from core import errors; from eval import suite\n"
        "try: errors.run(suite.main)\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *WORDS, *words], cwd=where, capture_output=True, text=True, check=False
    )


def manifest(path: Path) -> dict[str, Any]:
    """An artefact's manifest; it must be there."""
    return artifacts.require(path, "all")


@pytest.fixture(scope="module")
def evaluated(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project after `make merge`, evaluated."""
    where = tmp_path_factory.mktemp("evaluated") / "project"
    shutil.copytree(project, where, symlinks=True)
    (where / LIVE).write_text(TASKS, encoding="utf-8")
    done = suite(where)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return where


def test_both_checkpoints_are_measured_on_every_held_out_row(evaluated: Path):
    rows = {one.id: one for one in chat.read_rows(evaluated / "data/mini/dataset/eval.jsonl")}
    asked = sorted(one.id for one in rows.values() if one.bucket != "general")
    for name in ("base", "merged"):
        found = evaluations.samples(evaluated / "out/mini", name)
        by_kind = {kind: [s for s in found if s["kind"] == kind] for kind in {s["kind"] for s in found}}
        assert sorted(s["id"] for s in by_kind.pop("loss")) == sorted(rows)
        again = by_kind.pop("thinking_off")
        assert {rows[s["id"]].bucket for s in again} == {"mcp_calls"}
        assert {s["id"].split()[0] for s in by_kind.pop("live")} == {"crear", "preparar"}
        assert sorted(s["id"] for own in by_kind.values() for s in own) == asked
        assert {rows[s["id"]].bucket for s in by_kind["skills"]} == {"skills"}
        assert {rows[s["id"]].bucket for s in by_kind["near_miss"]} == {"near_miss"}
        whole = counts(outcomes(found, held_out=("informe-historial",)))
        for suffix, kinds in (("", whole.keys() - {"loss"}), ("-loss", {"loss"})):
            counted = manifest(evaluated / f"out/mini/eval/{name}{suffix}")["counts"]
            assert {kind: counted[kind] for kind in kinds} == {kind: whole[kind] for kind in kinds}
        counted = manifest(evaluated / f"out/mini/eval/{name}")["counts"]
        assert counted["judged_by"].startswith("core/toolcalls.py")
        assert list((evaluated / "out/mini/eval/logs" / name).glob("*.eval"))
    assert not (evaluated / "out/mini/eval/.answers").exists()


def test_the_verdict_is_that_of_the_bytes_it_judged(evaluated: Path):
    found = verdicts.read(evaluated / "out/mini", "merged", evaluated / "models/mini/merged")
    done = suite(evaluated)
    assert done.returncode == (0 if found.passes else 1)
    assert f"eval: merged against base: {found}" in done.stdout.splitlines()
    assert (evaluated / done.stdout.splitlines()[-1].removeprefix("report: ")).exists()
    assert set(found.gates) == {"loss", "tool_calls", "skills", "replay", "live", "general"}


def test_what_is_measured_is_not_measured_again(evaluated: Path):
    before = manifest(evaluated / "out/mini/eval/base")
    done = suite(evaluated)
    assert done.stdout.count("eval: up to date") == 4
    assert done.stderr.splitlines()[-1] == "False"
    assert manifest(evaluated / "out/mini/eval/base") == before


def test_force_lets_a_failed_verdict_pass_and_says_so(evaluated: Path):
    done = suite(evaluated, "FORCE=1")
    assert done.returncode == 0
    passes = verdicts.read(evaluated / "out/mini", "merged", evaluated / "models/mini/merged").passes
    assert ("FORCE=1" in done.stdout) != passes


def test_an_unknown_checkpoint_is_a_mistake(evaluated: Path):
    done = suite(evaluated, "CHECKPOINT=adapter")
    assert done.returncode == 2
    assert "CHECKPOINT=adapter: expected base, merged, nvfp4" in done.stderr


def artefact(path: Path, source: Path, inputs: dict[str, Any]) -> None:
    """An artefact with the payload of another."""
    with artifacts.create(
        path, kind="checkpoint", profile="mini", run="mini", settings={}, inputs=inputs
    ) as draft:
        for name, file in artifacts.payload(source).items():
            shutil.copyfile(file, draft.path / name)


def test_nvfp4_is_measured_by_its_own_copy_alone(evaluated: Path):
    models = evaluated / "models/mini"
    artefact(models / "nvfp4", evaluated / "data/mini/schemas", {})
    done = suite(evaluated, "CHECKPOINT=nvfp4")
    assert (done.returncode, "make dequantize" in done.stderr) == (2, True)
    other = artifacts.as_input(models / "merged", manifest(models / "merged"))
    artefact(models / "nvfp4-bf16", models / "merged", {"nvfp4": other})
    done = suite(evaluated, "CHECKPOINT=nvfp4")
    assert (done.returncode, "is of another checkpoint than" in done.stderr) == (2, True)
    assert not (evaluated / "out/mini/eval/nvfp4").exists()

    own = artifacts.as_input(models / "nvfp4", manifest(models / "nvfp4"))
    artefact(models / "nvfp4-bf16", models / "merged", {"nvfp4": own})
    done = suite(evaluated, "CHECKPOINT=nvfp4")
    assert done.returncode in (0, 1), done.stderr
    found = {
        name: outcomes(evaluations.samples(evaluated / "out/mini", name), held_out=())
        for name in ("merged", "nvfp4")
    }
    assert found["nvfp4"] == found["merged"]
    assert verdicts.read(evaluated / "out/mini", "nvfp4", models / "nvfp4").gates
    header = next(line for line in done.stdout.splitlines() if line.startswith("held-out rows"))
    assert header.split()[3:6] == ["base", "merged", "nvfp4"]


def test_a_baseline_can_come_from_the_model_in_production(evaluated: Path, tmp_path: Path):
    where = tmp_path / "project"
    shutil.copytree(evaluated, where, symlinks=True)
    with serve(echo) as server:
        done = suite(where, "CHECKPOINT=base", f"ENDPOINT={server.url}", "EVAL_LIMIT=1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "False", "the base's weights would not fit beside production"
    made = manifest(where / "out/mini/eval/base")
    assert made["backend"] == {"name": "stand-in, served", "parser": "the server's own"}
    assert "tool calls" in done.stdout


def test_serve_cmd_serves_the_base_as_well(evaluated: Path, tmp_path: Path):
    where = tmp_path / "project"
    shutil.copytree(evaluated, where, symlinks=True)
    script = tmp_path / "serve.py"
    script.write_text(STAND_IN.format(root=ROOT), encoding="utf-8")
    command = f"{sys.executable} {script} {{checkpoint}} {{port}}"
    done = suite(where, "CHECKPOINT=base", f"SERVE_CMD={command}", "EVAL_LIMIT=1")
    assert done.returncode == 0, done.stderr
    assert manifest(where / "out/mini/eval/base")["backend"]["name"] == "stand-in, served"
    assert f"serving {(where / 'models/tiny').absolute()}" in (where / "out/mini/eval/serve.log").read_text()


def test_an_agent_needs_a_served_model(evaluated: Path):
    done = suite(evaluated, "AGENT_CMD=my-agent")
    assert done.returncode == 2
    assert "AGENT_CMD needs a served model: set ENDPOINT for the base" in done.stderr
