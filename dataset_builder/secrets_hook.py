"""`make hooks`: a pre-commit hook of git that refuses a commit with a secret in it.

    python -m dataset_builder.secrets_hook install SECRETS_FILE=… SECRETS_ALLOWED=… MCP_CONFIG=…
    python -m dataset_builder.secrets_hook check   (the same words; what the installed hook runs)

It scans what is staged, not what lies in the working tree, with the detectors of the gate.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from core import config, errors
from core.errors import UserError
from dataset_builder import secrets_gate
from dataset_builder.sanitizing.inputs import read_known

MARK = "# Forja: no secrets in commits"
NAMES = ("SECRETS_FILE", "SECRETS_ALLOWED", "MCP_CONFIG")


def main(words: list[str]) -> int:
    """Install the hook or check what is staged; exit code 1 where a secret would be committed."""
    action, given = (words[0], config.split_words(words[1:])) if words else ("", {})
    unknown = given.keys() - set(NAMES)
    if action not in ("install", "check") or unknown:
        raise UserError(
            f"expected install or check and {', '.join(NAMES)}, got {' '.join(words) or 'nothing'}"
        )
    files = {name: Path(given[name]).expanduser() for name in NAMES if given.get(name)}
    if action == "install":
        return _install([f"{name}={path.resolve()}" for name, path in files.items()])
    mcp_config = files.get("MCP_CONFIG")
    known = read_known(files.get("SECRETS_FILE"), mcp_config if mcp_config and mcp_config.is_file() else None)
    allowed = files.get("SECRETS_ALLOWED")
    hits = secrets_gate.scan(_staged(), allowed, known)
    if hits:
        print(secrets_gate.report(hits, allowed), file=sys.stderr)
    return errors.NEGATIVE if hits else errors.DONE


def _install(words: list[str]) -> int:
    path = Path(_git("rev-parse", "--git-path", "hooks").decode().strip(), "pre-commit")
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        raise UserError(f"{path} is there and not ours: add the line `{_line(words)}` to it")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{MARK}\n{_line(words)}\n", encoding="utf-8")
    path.chmod(0o755)
    print(f"hooks: {path} refuses commits with secrets (git commit --no-verify goes around it)")
    return errors.DONE


def _line(words: list[str]) -> str:
    return shlex.join([sys.executable, "-m", "dataset_builder.secrets_hook", "check", *words])


def _staged() -> Iterator[tuple[str, str]]:
    """`(path, text)` of every text file that is staged."""
    names = _git("diff", "--cached", "--name-only", "-z", "--diff-filter=ACMR").split(b"\0")
    for name in filter(None, names):
        data = _git("show", b":" + name)
        if b"\0" not in data:
            yield name.decode("utf-8", "replace"), data.decode("utf-8", "replace")


def _git(*words: str | bytes) -> bytes:
    try:
        return subprocess.run(["git", *words], check=True, capture_output=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        raise UserError("no git repository here: run it at the top of yours") from None


if __name__ == "__main__":
    errors.run(main)
