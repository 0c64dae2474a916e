"""The MTP head given back: byte for byte, once, and through a crash at any step."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, shards
from core.errors import UserError
from quant import mtp
from tests import tiny_model
from tests.merging import artifact, raw

pytest.importorskip("torch")
WORDS = ["PROFILE=tiny", "RUN=one", "MODELS_DIR=models", "BASE=base", "MERGED=lost"]
LOST = Path("lost")


class Crash(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module", params=["sharded", "single file", "experts one by one"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a base, and an artefact of the same tensors without MTP."""
    from safetensors.torch import load_file

    place = tmp_path_factory.mktemp("mtp")
    tiny_model.make(place / "base", single_experts=request.param == "experts one by one")
    tensors = {n: t for f in shards.shard_files(place / "base") for n, t in load_file(f).items()}
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("mtp.")}
    with artifact(place / LOST, "checkpoint") as draft:
        shards.write_checkpoint(draft.path, kept, max_shard_bytes=200_000)
        if request.param == "single file":
            from safetensors.torch import save_file

            for file in draft.path.iterdir():
                file.unlink()
            save_file(kept, draft.path / shards.SINGLE, metadata={"format": "pt"})
    return place


@pytest.fixture(autouse=True)
def checkpoints(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with copies of both."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def test_every_tensor_of_the_base_is_back() -> None:
    mtp.main(WORDS)
    assert raw(LOST) == raw(Path("base"))
    index = json.loads((LOST / shards.INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(map(len, raw(LOST).values()))
    assert {file.name for file in LOST.glob("*.safetensors")} == set(index["weight_map"].values())


def test_the_hubs_reader_agrees() -> None:
    from safetensors.torch import load_file

    mtp.main(WORDS)
    added = load_file(LOST / mtp.SHARD)
    assert added.keys() == {name for name in raw(Path("base")) if name.startswith("mtp.")}
    assert all(tensor.isfinite().all() for tensor in added.values())


def test_the_manifest_names_the_new_files() -> None:
    mtp.main(WORDS)
    manifest = artifacts.require(LOST, "merge")
    files = {name: artifacts.file_sha256(file) for name, file in artifacts.payload(LOST).items()}
    assert {name: entry["sha256"] for name, entry in manifest["files"].items()} == files


def test_a_second_time_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    mtp.main(WORDS)
    before = {path: path.stat().st_mtime_ns for path in LOST.iterdir()}
    assert mtp.main(WORDS) == 0
    assert "nothing missing" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in LOST.iterdir()} == before


@pytest.mark.parametrize("step", range(5))
def test_a_crash_at_any_step_is_mended_by_the_next_run(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = raw(LOST)
    steps = iter(range(100))

    def crashing(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **more: Any) -> Any:
            if next(steps) == step:
                raise Crash
            return real(*args, **more)

        return act

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crashing(Path.replace))
        patched.setattr(Path, "unlink", crashing(Path.unlink))
        patched.setattr(os, "link", crashing(os.link))
        try:
            mtp.main(WORDS)
        except Crash:
            assert kept.items() <= raw(LOST).items()
    mtp.main(WORDS)
    assert raw(LOST) == raw(Path("base"))
    listed = set(json.loads((LOST / shards.INDEX).read_text())["weight_map"].values())
    assert {file.name for file in LOST.glob("*.safetensors")} == listed


def test_a_base_without_mtp_is_refused() -> None:
    shutil.rmtree("base")
    shutil.copytree(LOST, "base")
    with pytest.raises(UserError, match=r"no tensor under mtp\."):
        mtp.main(WORDS)


def test_another_layout_of_the_head_is_refused() -> None:
    mtp.main(WORDS)
    shutil.rmtree("base")
    tiny_model.make(Path("base"), intermediate=24)
    with pytest.raises(UserError, match="is it another base"):
        mtp.main(WORDS)
