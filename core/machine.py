"""What this machine is, and which of pyproject.toml's extras it takes.

Run by the system's Python before any environment exists: standard library only.
"""

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
    "cpu": ("cpu", "train", "quant", "mcp", "secrets", "lab", "dev"),
    "cuda": ("cuda", "unsloth", "train", "quant", "mcp", "secrets", "dev"),
    "apple": ("cpu", "mcp", "secrets", "train", "dev"),
}


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
    """The requirement lines of the machine's extras, in order."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [line for extra in EXTRAS[machine] for line in extras[extra]]


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
        if bool(re.match(r"torch\b", line)) == (which == "torch"):
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
