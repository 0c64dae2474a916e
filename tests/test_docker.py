"""docker/: what a user relies on, read from the files; no engine ran here, so no image was ever built."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from core import machine
from tests.conftest import ROOT, run_make

DOCKERFILE = (ROOT / "docker/train.Dockerfile").read_text(encoding="utf-8")
COMPOSE = ROOT / "docker/compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]


def tool(*command: str) -> subprocess.CompletedProcess[str]:
    """A command of the environment, by the name that pip gave it."""
    program = str(Path(sys.executable).with_name(command[0]))
    return subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_dockerfile_is_clean_by_hadolint() -> None:
    done = tool("hadolint", "docker/train.Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_sees_what_is_unclean(tmp_path: Path) -> None:
    spoilt = tmp_path / "Dockerfile"
    spoilt.write_text(DOCKERFILE.replace("# hadolint ignore=DL3008\n", "").replace(":26.08-py3", ""))
    said = tool("hadolint", str(spoilt)).stdout
    assert "DL3008" in said and "DL3006" in said


def test_the_compose_file_follows_the_compose_specification(tmp_path: Path) -> None:
    spoilt = tmp_path / "compose.yaml"
    spoilt.write_text(COMPOSE.read_text().replace("shm_size", "shm-size"))
    results = [
        tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)).returncode
        for file in (COMPOSE, spoilt)
    ]
    assert results == [0, 1]


def copied() -> list[str]:
    """The files that the build copies into the image."""
    return [
        name for line in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    ]


def in_context() -> list[Path]:
    """The project's files that the engine gets to see."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    everything, *kept = [line for line in lines if line and not line.startswith("#")]
    assert everything == "**"
    return [path.relative_to(ROOT) for rule in kept for path in ROOT.glob(rule.removeprefix("!"))]


def test_no_file_but_those_that_the_build_copies_reaches_the_engine() -> None:
    assert all(any(path.is_relative_to(name) for name in copied()) for path in in_context())
    assert {path.suffix for path in in_context() if path.is_relative_to("core")} == {".py"}
    assert not re.search(r"^(ARG|ENV|COPY|ADD) .*(TOKEN|KEY|SECRET|PASSWORD|\.env\b)", DOCKERFILE, re.M)


def test_those_files_are_enough_to_know_what_to_install(tmp_path: Path) -> None:
    for name in in_context():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    words = ["MACHINE=image", "TORCH_INDEX="]
    for which in ("torch", "others"):
        command = [sys.executable, "-m", "core.machine", which, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()
    make = ["make", "-n", "MACHINE=image", "VENV=/opt/forja/venv", "/opt/forja/venv/.complete"]
    planned = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "-m venv --system-site-packages /opt/forja/venv" in planned
    assert "/opt/forja/venv/bin/python -m pip install" in planned


def test_the_images_torch_is_asked_for_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version as NVIDIA's images have it; PIP_CONSTRAINT holds every later pip to it."""
    version = "2.14.0a0+4fdf77b940.nv26.8"
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"torch": version}[name])
    image = machine.requirements("image")
    assert [line for line in image if re.match(r"torch\b", line)] == [f"torch=={version}"]
    assert [line for line in image if not re.match(r"torch\b", line)] == [
        line for line in machine.requirements("cuda") if not re.match(r"torch\b", line)
    ]
    assert DOCKERFILE.index("ENV PIP_CONSTRAINT=") < DOCKERFILE.index("make MACHINE=image")


def test_nothing_runs_as_root() -> None:
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert users and users[-1] not in ("root", "0", "0:0")
    for service in SERVICES.values():
        assert service["user"] == "${FORJA_USER:-1000:1000}"


def test_training_is_limited_and_takes_little_of_the_unified_memory() -> None:
    train = SERVICES["train"]
    assert train["mem_limit"].endswith("g") and int(train["mem_limit"][:-1]) < 128
    assert train["shm_size"] == "1g"
    for service in SERVICES.values():
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"]


def test_the_sample_serves_as_production_does() -> None:
    """Its name is the one that STOP_CMD and START_CMD have by default."""
    words = " ".join(SERVICES["vllm"]["command"])
    for flag in (
        "--enable-auto-tool-choice",
        "--tool-call-parser=qwen3_coder",
        "--reasoning-parser=qwen3",
        '--speculative-config={"method":"mtp"',
    ):
        assert flag in words
    assert [mount.endswith(":/served:ro") for mount in SERVICES["vllm"]["volumes"]] == [True]


def test_make_docker_train_runs_the_same_target_inside() -> None:
    done = run_make(
        ROOT, "-n", "docker-train", "RUN=night", "MODELS_DIR=/fast/models", f"SKILLS_DIRS={ROOT.parent}"
    )
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.replace("\\\n", " ").split())
    assert "MODELS_DIR='/fast/models'" in said
    assert f"--volume='{ROOT.parent}:{ROOT.parent}:ro' train train " in said
    for name in ("RUN='night'", f"SKILLS_DIRS='{ROOT.parent}'", "MODELS_DIR=models", "STOP_CMD=true"):
        assert name in said
    assert all(f"{name}=" in said for name in ("LORA_RANK", "MAX_LENGTH", "PROFILE"))
