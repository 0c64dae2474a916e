"""Packages fetched for what is inside them and never installed, kept in CACHE; pip knows where to ask."""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from core import artifacts, errors
from core.errors import UserError

CACHE = Path(".cache/packages")


@dataclass(frozen=True, kw_only=True)
class Package:
    name: str
    version: str
    sha256: str
    file: str
    """Name of the wheel or the source archive."""

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return CACHE / self.file


LLAMA_CPP = Package(
    name="llama-cpp-python",
    version="0.3.36",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    file="llama_cpp_python-0.3.36.tar.gz",
)
"""The source of llama.cpp, whose own converter writes GGUF files; 77 MB."""


def fetch(package: Package) -> Path:
    """The package's file, fetched where it is not in CACHE yet.

    UserError where pip cannot get it, and where what it got is not what was tested.
    """
    if package.path.exists() and artifacts.file_sha256(package.path) == package.sha256:
        return package.path
    print(f"{package.name} {package.version}: fetching it, once", flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as here:
        wanted = Path(here) / "wanted.txt"
        wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
        kind = "--only-binary" if package.file.endswith(".whl") else "--no-binary"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        words = ["--require-hashes", kind, package.name, "-r", str(wanted), "-d", here]
        done = subprocess.run([*pip, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            reasons = [line for line in done.stderr.splitlines() if "ERROR" in line]
            raise UserError(
                f"{package.name}=={package.version} cannot be fetched; with the network, once: make env "
                f"PROFILE=<this one>. pip says: {(reasons or [done.stderr.strip()])[-1]}"
            )
        (Path(here) / package.file).replace(package.path)
    return package.path


def main(words: list[str]) -> int:
    """Fetch what `PROFILE=<name>` needs beyond the installed packages; exit code 0."""
    # A profile names its package, so that this module cannot import the profiles at its head.
    from core import config, profile

    chosen = profile.load(config.split_words(words)["PROFILE"])
    for package in (chosen.package, LLAMA_CPP if isinstance(chosen.data, profile.Conversations) else None):
        if package:
            fetch(package)
    return errors.DONE


if __name__ == "__main__":
    errors.run(main)
