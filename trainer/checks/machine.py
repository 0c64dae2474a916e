"""The machine: what is looked at once, and a check of each fact."""

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from core import machine
from core.profile import Profile
from trainer.checks.check import Check, size

KNOWN = ("Linux x86_64", "Linux aarch64", "Darwin arm64")
GB10, BLACKWELL = (12, 1), (10, 0)
UNSLOTH = ("unsloth", "unsloth_zoo")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    name: str
    capability: tuple[int, int]
    free: int
    """Bytes, as all sizes here."""
    total: int
    unified: bool
    """Whether it shares the system's memory."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    python: str
    system: str
    kind: str
    """`cuda`, `apple` or `cpu` (core/machine.py)."""
    cores: int
    memory: int
    available: int
    gpu: Gpu | None
    cuda: str | None
    """CUDA version that torch was built for; None for a CPU build."""
    versions: Mapping[str, str]
    """Of the installed packages, by normalised name."""
    unsloth: bool
    """Whether it is installed; nothing here imports it."""

    @property
    def available_name(self) -> str:
        """What the system calls the memory that can be had without swapping."""
        return "MemAvailable" if self.system.startswith("Linux") else "available"


def look() -> Machine:
    """This machine. Imports torch where it is installed."""
    import psutil

    gpu, cuda = _torch_facts() if find_spec("torch") else (None, None)
    memory = psutil.virtual_memory()
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        kind=machine.kind(),
        cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        memory=memory.total,
        available=memory.available,
        gpu=gpu,
        cuda=cuda,
        versions={normalised(d.name): d.version for d in importlib.metadata.distributions()},
        unsloth=all(find_spec(name) for name in UNSLOTH),
    )


def normalised(package: str) -> str:
    """A package's name as the indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", package).lower()


def free_space(directory: Path) -> int:
    """Bytes free on the disk where `directory` is or will be."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def check_python(here: Machine, required: str) -> Check:
    """`required` is pyproject.toml's `requires-python`."""
    from packaging.specifiers import SpecifierSet

    if SpecifierSet(required).contains(here.python, prereleases=True):
        return Check("Python", "ok", here.python)
    return Check("Python", "fail", here.python, f"{required} is needed: make env PYTHON=python3.12")


def check_system(here: Machine) -> Check:
    """Operating system and architecture."""
    if here.system in KNOWN:
        return Check("system", "ok", here.system)
    return Check("system", "warn", here.system, f"its packages were never resolved; have {', '.join(KNOWN)}")


def check_memory(here: Machine, needed: int) -> Check:
    """`needed` is the least that training holds, in bytes; 0 where it is not known."""
    free, total, what = here.available, here.memory, here.available_name
    if here.gpu and not here.gpu.unified:
        free, total, what = here.gpu.free, here.gpu.total, "GPU free"
    shared = ", unified with the GPU's" if here.gpu and here.gpu.unified else ""
    found = f"{what} {size(free)} of {size(total)}{shared}"
    if not needed:
        return Check("memory", "ok", found, "what training needs is known after make base")
    need = f"base, adapter and optimizer take {size(needed)}, activations come on top"
    if needed > total:
        return Check("memory", "fail", found, f"{need}: a larger machine is needed, or a smaller PROFILE")
    if needed > free:
        return Check("memory", "warn", found, f"{need}: stop the model server before make train")
    return Check("memory", "ok", found, need)


def check_disk(models_dir: Path, free: int, needed: int, merged: Path) -> Check:
    """`free` and `needed` in bytes; the merged copy at `merged` is as large as the base."""
    found = f"{size(free)} free under {models_dir}"
    need = f"the merged copy takes {size(needed)}"
    if free >= needed:
        return Check("disk", "ok", found, need if needed else "")
    if merged.exists():
        return Check("disk", "warn", found, f"{need}: {merged} is there, but cannot be made anew")
    return Check("disk", "fail", found, f"{need}: free some, or point MODELS_DIR elsewhere")


def check_cores(here: Machine) -> Check:
    """CPU cores that this process may use."""
    return Check("CPU cores", "ok", str(here.cores))


def check_cuda(here: Machine, profile: Profile) -> Check:
    """The GPU and its compute capability."""
    if here.gpu:
        major, minor = here.gpu.capability
        alias = " = GB10" if here.gpu.capability == GB10 else ""
        return Check("CUDA", "ok", f"{here.gpu.name}, sm_{major}{minor}{alias}")
    if here.kind == "cuda":
        advice = "nvidia-smi sees it: mend the torch row, or else the driver"
        return Check("CUDA", "warn", "a GPU that torch cannot use", advice)
    if "unsloth" in profile.backends:
        return Check("CUDA", "warn", "none", f"PROFILE={profile.name} is meant for a GPU")
    return Check("CUDA", "ok", "none", "not needed: the CPU trains")


def check_torch(here: Machine, requirements: list[str]) -> Check:
    """torch's build and version; `requirements` are pyproject.toml's lines for this kind of machine."""
    found = here.versions.get("torch")
    if found is None:
        return Check("torch", "fail", "not installed", "make env")
    build = f"{found}, {f'CUDA {here.cuda}' if here.cuda else 'CPU'} build"
    if here.kind == "cuda" and here.cuda is None:
        return Check("torch", "warn", build, "cannot use the GPU that is here: make env")
    pinned = next(line.removeprefix("torch==") for line in requirements if line.startswith("torch=="))
    if found.split("+")[0] != pinned:
        return Check("torch", "warn", build, f"{pinned} is the tested one here: make env")
    return Check("torch", "ok", build)


def check_triton(here: Machine) -> Check:
    """Triton's version, which matters on Blackwell (triton-lang/triton#10590)."""
    from packaging.version import Version

    found = here.versions.get("triton")
    if here.gpu is None:
        return Check("Triton", "ok", found or "none", "not needed: no GPU")
    if here.gpu.capability >= BLACKWELL and (found is None or Version(found) < Version("3.8")):
        return Check("Triton", "fail", found or "none", "3.8 is needed, earlier race on Blackwell: make env")
    return Check("Triton", "ok", found or "none")


def check_attention(here: Machine) -> Check:
    """The attention implementation, which is torch's own everywhere."""
    gb10 = here.gpu is not None and here.gpu.capability == GB10
    return Check("attention kernel", "ok", "sdpa", "flash-attention has no sm_121 build" if gb10 else "")


def check_fla(here: Machine) -> Check:
    """flash-linear-attention, the GPU kernels of Gated DeltaNet."""
    found = here.versions.get("flash-linear-attention")
    if here.gpu is None:
        return Check("fla", "ok", found or "none", "not needed: plain torch rule")
    if found is None:
        return Check("fla", "warn", "none", "plain torch rule instead, much slower: make env")
    gb10 = here.gpu.capability == GB10
    return Check("fla", "ok", found, "its backward is tried before training" if gb10 else "")


def check_unsloth(here: Machine, profile: Profile) -> Check:
    """Whether Unsloth can be used, where the profile lists it."""
    found = here.versions.get("unsloth", "no version") if here.unsloth else "none"
    if "unsloth" not in profile.backends:
        return Check("Unsloth", "ok", found, f"not used: no backend of PROFILE={profile.name}")
    if not here.unsloth:
        advice = "make env" if here.kind == "cuda" else "make env installs it beside a GPU"
        return Check("Unsloth", "warn", found, f"not used: not installed: {advice}")
    if here.gpu is None:
        return Check("Unsloth", "warn", found, "not used: no CUDA device")
    return Check("Unsloth", "ok", found)


def _torch_facts() -> tuple[Gpu | None, str | None]:
    import torch

    if not torch.cuda.is_available():
        return None, torch.version.cuda
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info(0)
    gpu = Gpu(
        name=properties.name,
        capability=(properties.major, properties.minor),
        free=free,
        total=total,
        unified=bool(properties.is_integrated),
    )
    return gpu, torch.version.cuda
