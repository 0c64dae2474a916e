"""llama.cpp's own converter, out of llama-cpp-python's source archive: nothing is built to run it."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from core import packages
from core.errors import UserError
from core.packages import LLAMA_CPP

PARTS = ("convert_hf_to_gguf.py", "conversion/", "gguf-py/gguf/", "LICENSE")
TYPES = ("f16", "bf16", "q8_0")
"""What it writes; others are made of an f16 file."""
UNKNOWN_TOKENIZER = "BPE pre-tokenizer was not recognized"


def directory() -> Path:
    """Where the converter lies, unpacked at its first use; UserError where it cannot be fetched."""
    target = packages.CACHE / f"llama.cpp-{LLAMA_CPP.version}"
    if target.exists():
        return target
    archive = packages.fetch(LLAMA_CPP)
    root = f"{archive.name.removesuffix('.tar.gz')}/vendor/llama.cpp/"
    with tempfile.TemporaryDirectory(dir=packages.CACHE) as scratch:
        with tarfile.open(archive) as tar:
            parts = tuple(root + part for part in PARTS)
            tar.extractall(scratch, members=[member for member in tar if member.name.startswith(parts)])
        shutil.move(Path(scratch) / root, target)
    return target


def convert(checkpoint: Path, target: Path, kind: str, *, has_mtp: bool | None) -> None:
    """Write a checkpoint as a GGUF file of one of TYPES.

    `has_mtp` is None for a model whose kind has no MTP head. UserError with the converter's last words.
    """
    here = directory()
    command = [sys.executable, str(here / "convert_hf_to_gguf.py"), str(checkpoint)]
    command += ["--outfile", str(target), "--outtype", kind]
    if has_mtp is False:  # without the flag it asserts that there is one
        command.append("--no-mtp")
    environment = os.environ | {"PYTHONPATH": str(here / "gguf-py"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        if UNKNOWN_TOKENIZER in done.stderr:
            raise UserError(
                f"{checkpoint}: its tokenizer splits text by a rule that llama.cpp does not know, so that no "
                f"GGUF file of it can be made (PROFILE=tiny has a tokenizer of its own)"
            )
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise UserError(f"{checkpoint}: llama.cpp's converter fails: {lines[-1]}")


def has_mtp(checkpoint: Path) -> bool:
    """Whether a checkpoint's config promises layers of an MTP head."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    return bool(config.get("text_config", config).get("mtp_num_hidden_layers"))
