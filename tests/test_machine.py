"""The environment: the named packages stand in the extras, by machine, in one set of versions."""

import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from core import machine
from tests.conftest import ROOT

NAMED = (
    "unsloth", "unsloth_zoo", "torch", "transformers", "peft", "trl", "xformers", "datasets", "safetensors",
    "llmcompressor", "flash-linear-attention", "mcp",
)  # fmt: skip


def requirements(kind: str) -> dict[str, Requirement]:
    return {r.name: r for r in map(Requirement, machine.requirements(kind))}


def test_a_cuda_machine_takes_all_twelve_named_packages():
    assert set(NAMED) <= set(requirements("cuda"))


def test_no_cuda_only_package_reaches_another_machine():
    for kind in ("cpu", "apple"):
        assert not {"xformers", "flash-linear-attention", "unsloth"} & set(requirements(kind))


def test_xformers_is_taken_only_where_a_wheel_exists():
    marker = requirements("cuda")["xformers"].marker
    assert marker is not None
    assert marker.evaluate({"platform_machine": "x86_64"})
    assert not marker.evaluate({"platform_machine": "aarch64"})


@pytest.mark.parametrize(("kind", "version"), [("cpu", "2.13.0"), ("apple", "2.13.0"), ("cuda", "2.14.0")])
def test_torch_is_pinned_by_machine(kind, version):
    assert str(requirements(kind)["torch"].specifier) == f"=={version}"


def test_pins_of_the_extras_are_those_of_the_constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {
        name.lower().replace("_", "-"): version
        for name, version in re.findall(r"^(\S+)==(\S+)$", "\n".join(lines), re.M)
    }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in ("cuda", "unsloth", "train", "quant", "mlx", "mcp", "dev"):
        for requirement in map(Requirement, extras[extra]):
            name = requirement.name.lower().replace("_", "-")
            if name != "torch":
                assert name in pinned, f"{name} has no constraint"
                assert requirement.specifier.contains(pinned[name]), name


def test_vllm_never_enters_the_common_environment():
    for kind in machine.EXTRAS:
        assert "vllm" not in requirements(kind)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "core.machine", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_cpu_without_an_index_is_warned_before_the_download():
    warned = run("torch", "MACHINE=cpu", "TORCH_INDEX=")
    assert warned.stdout == "torch==2.13.0\n"
    assert ("TORCH_INDEX" in warned.stderr) == (sys.platform == "linux")
    assert "TORCH_INDEX" not in run("torch", "MACHINE=cpu", "TORCH_INDEX=https://wheels.example").stderr


def test_an_unknown_machine_is_refused():
    done = run("torch", "MACHINE=gpu", "TORCH_INDEX=")
    assert done.returncode == 2
    assert done.stderr == "error: MACHINE=gpu: expected one of cpu, cuda, image, apple, or blank to look\n"
