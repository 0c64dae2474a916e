"""What this machine is, and which of pyproject.toml's extras it takes.

Run by the system's Python before any environment exists: standard library only.
"""

import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from core import config, errors
from core.errors import UserError

EXTRAS = {
    "cpu": ("cpu", "train", "gguf", "quant", "eval", "mcp", "secrets", "lab", "mlx", "dev"),
    "cuda": ("cuda", "unsloth", "train", "gguf", "quant", "eval", "mcp", "secrets", "dev"),
    "image": ("cuda", "unsloth", "train", "gguf", "quant", "eval", "mcp", "secrets", "dev"),
    "apple": ("cpu", "mcp", "secrets", "train", "gguf", "eval", "mlx", "dev"),
}
"""`image` is docker/train.Dockerfile's, which brings its own torch."""
MLX_GLIBC = (2, 35)
"""What mlx's wheels for Linux need; without them its backend and its tests are left out."""


def kind() -> str:
    """`cuda`, `apple` or `cpu`."""
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return "apple"
    return "cuda" if _has_nvidia_gpu() else "cpu"


def _has_nvidia_gpu() -> bool:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return listed.returncode == 0 and "GPU" in listed.stdout


def requirements(machine: str) -> list[str]:
    """The requirement lines of the machine's extras, in order; mlx's only where it has a wheel.

    On an `image` torch is the one that the Python which runs this has.
    """
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    left_out = "" if machine == "apple" or _glibc() >= MLX_GLIBC else "mlx"
    lines = [line for extra in EXTRAS[machine] if extra != left_out for line in extras[extra]]
    if machine != "image":
        return lines
    return [f"torch=={importlib.metadata.version('torch')}" if _is_torch(line) else line for line in lines]


def _is_torch(line: str) -> bool:
    return bool(re.match(r"torch\b", line))


def _glibc() -> tuple[int, ...]:
    name, version = platform.libc_ver()
    return tuple(map(int, version.split("."))) if name == "glibc" else (0,)


def main(words: list[str]) -> int:
    """Print requirement lines: `torch` for torch alone, `others` for the rest.

    `MACHINE=<kind>` takes the place of looking. For torch also says what will be downloaded;
    `TORCH_INDEX=<address>` names a wheel index.
    """
    which, *rest = words
    settings = config.split_words(rest)
    machine = settings["MACHINE"] or kind()
    if machine not in EXTRAS:
        raise UserError(f"MACHINE={machine}: expected one of {', '.join(EXTRAS)}, or blank to look")
    for line in requirements(machine):
        if _is_torch(line) == (which == "torch"):
            print(line)
    if which == "torch":
        print(f"env: this machine is {machine} ({platform.machine()})", file=sys.stderr)
        if machine == "cpu" and sys.platform == "linux" and not settings["TORCH_INDEX"]:
            print(
                "env: no GPU found; pip's usual index may send torch's CUDA build, gigabytes of it. "
                "To avoid that: make env TORCH_INDEX=<address of torch's CPU wheel index>",
                file=sys.stderr,
            )
    return errors.DONE


if __name__ == "__main__":
    errors.run(main)
