"""Artefacts: all or nothing on disk, and known by their bytes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core import artifacts
from core.errors import UserError

ROOT = Path(__file__).parents[1]
OLD = {"a.txt": b"old", "deep/b.bin": bytes(range(256))}
NEW = {"a.txt": b"new"}


class Crash(BaseException):
    """Stands for the end of the process."""


def build(path: Path, files: dict[str, bytes], *, crash: bool = False, **changed: Any) -> dict[str, Any]:
    """Build an artefact of these files; return its manifest."""
    facts: dict[str, Any] = {"kind": "dataset", "profile": "tiny", "run": "r"}
    facts |= {"settings": {"SEED": 1}, "inputs": {}} | changed
    with artifacts.create(path, **facts) as draft:
        for name, data in files.items():
            file = draft.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        if crash:
            raise Crash
    return artifacts.require(path, "dataset")


def on_disk(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    files = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def contents(path: Path) -> dict[str, bytes]:
    """The payload of an artefact."""
    return {name: file.read_bytes() for name, file in artifacts.payload(path).items()}


# ---- all or nothing ----------------------------------------------------------------------------


def test_an_artefact_holds_its_files_and_a_manifest_of_them(tmp_path: Path) -> None:
    inputs = {"base": {"path": "models/tiny", "sha256": "0" * 64}}
    manifest = build(tmp_path / "out" / "x", OLD, inputs=inputs)
    assert contents(tmp_path / "out" / "x") == OLD
    assert set(manifest) == {
        *("kind", "profile", "run", "settings", "inputs", "files"),
        *("versions", "backend", "counts", "seconds", "peak_mb"),
    }
    assert manifest["files"]["a.txt"] == {
        "bytes": 3,
        "sha256": "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4",
    }
    assert manifest["inputs"] == inputs
    assert on_disk(tmp_path).keys() == {"out/x/manifest.json", *(f"out/x/{n}" for n in OLD)}


def test_the_manifest_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = artifacts.write_atomically

    def watch(path: Path, text: str) -> None:
        seen.append((path.name, contents(path.parent), (tmp_path / "x").exists()))
        real(path, text)

    monkeypatch.setattr(artifacts, "write_atomically", watch)
    build(tmp_path / "x", OLD)
    assert seen == [("manifest.json", OLD, False)]


def test_the_facts_that_a_stage_leaves_stand_in_the_manifest(tmp_path: Path) -> None:
    with artifacts.create(
        tmp_path / "x", kind="adapter", profile="tiny", run="r", settings={}, inputs={}
    ) as draft:
        (draft.path / "a").write_bytes(b"a")
        draft.backend = {"name": "plain", "reasons": {"unsloth": "no GPU"}}
        draft.counts["modules"] = 310
    manifest = artifacts.require(tmp_path / "x", "train")
    assert manifest["backend"] == {"name": "plain", "reasons": {"unsloth": "no GPU"}}
    assert manifest["counts"] == {"modules": 310}


def test_a_failed_build_leaves_the_old_artefact_and_no_strays(tmp_path: Path) -> None:
    build(tmp_path / "x", OLD)
    before = on_disk(tmp_path)
    with pytest.raises(Crash):
        build(tmp_path / "x", NEW, crash=True)
    assert on_disk(tmp_path) == before


def test_a_failed_first_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        build(tmp_path / "x", NEW, crash=True)
    assert list(tmp_path.iterdir()) == []
    assert artifacts.read_manifest(tmp_path / "x") is None


def test_a_rebuild_leaves_no_file_of_the_old_one(tmp_path: Path) -> None:
    build(tmp_path / "x", OLD)
    build(tmp_path / "x", NEW)
    assert contents(tmp_path / "x") == NEW
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_killed_build_leaves_the_old_artefact_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    before = build(tmp_path / "x", OLD)
    command = [sys.executable, "-m", "tests.crash_writer", str(tmp_path / "x")]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout and child.stdout.readline() == "half-way\n"
        child.kill()
    assert child.returncode == -9
    assert (tmp_path / "x.partial" / "half.bin").exists()
    assert artifacts.require(tmp_path / "x", "dataset") == before
    assert contents(tmp_path / "x") == OLD
    build(tmp_path / "x", NEW)
    assert contents(tmp_path / "x") == NEW
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("step", range(3))
def test_a_crash_at_any_step_of_the_swap_costs_no_artefact(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "x", OLD)
    steps = iter(range(3))

    def crashing(real: Any) -> Any:
        def act(*args: Any) -> Any:
            if next(steps) == step:
                raise Crash
            return real(*args)

        return act

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", crashing(Path.rename))
        patched.setattr(shutil, "rmtree", crashing(shutil.rmtree))
        with pytest.raises(Crash):
            build(tmp_path / "x", NEW)
    with pytest.raises(Crash):
        build(tmp_path / "x", {}, crash=True)
    assert artifacts.read_manifest(tmp_path / "x") is not None
    assert contents(tmp_path / "x") == (NEW if step == 2 else OLD)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_text_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.json"
    artifacts.write_atomically(file, "old")

    def full_disk(_: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError):
            artifacts.write_atomically(file, "new")
    assert file.read_text() == "old"
    artifacts.write_atomically(file, "new, ñ")
    assert file.read_text(encoding="utf-8") == "new, ñ"


# ---- known by their bytes ----------------------------------------------------------------------


def test_the_same_bytes_built_again_have_the_same_digest(tmp_path: Path) -> None:
    one = build(tmp_path / "x", OLD)
    other = build(tmp_path / "y", OLD, run="other", settings={"SEED": 2})
    assert artifacts.digest(one) == artifacts.digest(other)
    backwards = one | {"files": dict(reversed(one["files"].items()))}
    assert artifacts.digest(one) == artifacts.digest(backwards)


@pytest.mark.parametrize(
    "files",
    [
        OLD | {"a.txt": b"olD"},
        OLD | {"a.txt": b"old\n"},
        OLD | {"c": b""},
        {"a.txt": OLD["a.txt"]},
        {"A.txt": OLD["a.txt"], "deep/b.bin": OLD["deep/b.bin"]},
        {"a.txt": OLD["deep/b.bin"], "deep/b.bin": OLD["a.txt"]},
    ],
    ids=["a byte", "a byte more", "a file more", "a file less", "a name", "swapped"],
)
def test_any_change_of_the_payload_is_another_digest(files: dict[str, bytes], tmp_path: Path) -> None:
    one, other = build(tmp_path / "x", OLD), build(tmp_path / "y", files)
    assert artifacts.digest(one) != artifacts.digest(other)


def test_as_an_input_an_artefact_is_its_place_and_digest(tmp_path: Path) -> None:
    manifest = build(tmp_path / "x", OLD)
    assert artifacts.as_input(tmp_path / "x", manifest) == {
        "path": str(tmp_path / "x"),
        "sha256": artifacts.digest(manifest),
    }


def test_two_processes_never_build_side_by_side(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"kind": "adapter", "profile": "tiny", "run": "r", "settings": {}, "inputs": {}}
    with artifacts.create(tmp_path / "x", **facts) as draft:
        (draft.path / "a").write_bytes(b"mine")
        with (
            pytest.raises(UserError, match="another process is building"),
            artifacts.create(tmp_path / "x", **facts),
        ):
            pass
        assert (draft.path / "a").read_bytes() == b"mine"
    assert contents(tmp_path / "x") == {"a": b"mine"}


def test_a_tree_is_known_by_names_and_bytes_wherever_it_lies(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "a").write_bytes(b"1")
    (tree / "sub/b").write_bytes(b"2")
    before = artifacts.tree_sha256(tree)
    moved = tree.rename(tmp_path / "moved")
    assert artifacts.tree_sha256(moved) == before
    (moved / "a").rename(moved / "c")
    assert artifacts.tree_sha256(moved) != before
    (moved / "c").rename(moved / "a")
    (moved / "sub/b").write_bytes(b"3")
    assert artifacts.tree_sha256(moved) != before


def test_a_missing_file_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gone: no such file"):
        artifacts.file_sha256(tmp_path / "gone")


# ---- finding and comparing ---------------------------------------------------------------------


def test_what_is_not_there_is_asked_for_by_its_target(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x is not there yet: make dataset$"):
        artifacts.require(tmp_path / "x", "dataset")


@pytest.mark.parametrize("data", [b"", b'{"kind": ', b"\xff\xfe"])
def test_a_broken_manifest_is_no_artefact(data: bytes, tmp_path: Path) -> None:
    build(tmp_path / "x", OLD)
    (tmp_path / "x" / "manifest.json").write_bytes(data)
    assert artifacts.read_manifest(tmp_path / "x") is None


def test_a_file_is_no_artefact(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    assert artifacts.read_manifest(tmp_path / "x") is None


INPUT = {"schemas": {"path": "data/schemas", "sha256": "1" * 64}}
SETTINGS = {"LORA_RANK": 16, "EPOCHS": 3.0, "TARGETS": ["a", "b"]}


@pytest.mark.parametrize(
    ("settings", "inputs", "lines"),
    [
        (SETTINGS, INPUT, []),
        (SETTINGS, {"schemas": {"path": "moved", "sha256": "1" * 64}}, []),
        (SETTINGS | {"EPOCHS": 3}, INPUT, []),
        (SETTINGS | {"LORA_RANK": 32}, INPUT, ["LORA_RANK=32 (was 16)"]),
        (SETTINGS | {"NEW": 1}, INPUT, ["NEW=1 (was None)"]),
        ({"EPOCHS": 3.0, "TARGETS": ["a", "b"]}, INPUT, ["LORA_RANK=None (was 16)"]),
        (SETTINGS, {"schemas": {"path": "", "sha256": "2" * 64}}, ["the schemas changed"]),
        (SETTINGS, {}, ["the schemas changed"]),
        (SETTINGS, INPUT | {"base": {"path": "", "sha256": "3" * 64}}, ["the base changed"]),
        (
            SETTINGS | {"LORA_RANK": 8, "EPOCHS": 1.0},
            {},
            ["EPOCHS=1.0 (was 3.0)", "LORA_RANK=8 (was 16)", "the schemas changed"],
        ),
    ],
)
def test_every_difference_is_named(
    settings: dict[str, Any], inputs: dict[str, Any], lines: list[str], tmp_path: Path
) -> None:
    manifest = build(tmp_path / "x", OLD, settings=SETTINGS, inputs=INPUT)
    assert artifacts.differences(manifest, settings, inputs) == lines


def test_what_is_not_built_differs() -> None:
    assert artifacts.differences(None, SETTINGS, INPUT) == ["not built yet"]


# ---- a checkpoint that we did not make ---------------------------------------------------------


def download(path: Path) -> Path:
    path.mkdir()
    (path / "config.json").write_bytes(b"{}")
    (path / "model.safetensors").write_bytes(b"weights")
    return path


def test_a_downloaded_checkpoint_gets_a_manifest_beside_it(tmp_path: Path) -> None:
    base = download(tmp_path / "base")
    manifest = artifacts.record(base, kind="checkpoint", profile="tiny")
    assert artifacts.read_manifest(base) == manifest
    assert set(on_disk(base)) == {"config.json", "model.safetensors"}
    assert artifacts.digest(manifest) == artifacts.digest(
        build(tmp_path / "same", {"config.json": b"{}", "model.safetensors": b"weights"})
    )


def test_only_changed_files_of_a_download_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = download(tmp_path / "base")
    before = artifacts.record(base, kind="checkpoint", profile="tiny")
    (base / "config.json").write_bytes(b"{ }")
    read = []
    real = artifacts.file_sha256

    def watch(path: Path) -> str:
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(artifacts, "file_sha256", watch)
    after = artifacts.record(base, kind="checkpoint", profile="tiny")
    assert read == ["config.json"]
    assert artifacts.digest(after) != artifacts.digest(before)


def test_the_notes_of_the_download_tool_are_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    base = download(tmp_path / "base")
    before = artifacts.record(base, kind="checkpoint", profile="tiny")
    notes = base / ".cache/huggingface/download"
    notes.mkdir(parents=True)
    (notes / "config.json.metadata").write_text("a time")
    after = artifacts.record(base, kind="checkpoint", profile="tiny")
    assert artifacts.digest(after) == artifacts.digest(before)


def test_what_is_kept_or_built_inside_an_artefact_is_none_of_it(tmp_path: Path) -> None:
    path = tmp_path / "tiny"
    made = build(path, OLD)
    build(path / "merged", NEW)
    (path / "nvfp4.partial").mkdir()
    (path / "nvfp4.partial" / "shard").write_bytes(b"half")
    assert artifacts.payload(path).keys() == OLD.keys()
    assert artifacts.complete(path, made)
    assert artifacts.payload(path / "merged").keys() == NEW.keys()


def test_a_manifest_names_the_versions_that_made_it(tmp_path: Path) -> None:
    made = build(tmp_path / "x", OLD)["versions"]
    assert made["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "safetensors" in made
