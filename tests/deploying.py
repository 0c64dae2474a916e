"""A place to deploy to: stand-ins for checkpoints, a real config and header over a few bytes each."""

import errno
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, shards, verdicts
from core.errors import UserError
from quant import deploy, rollback, swap

SERVED, BACKUP = Path("srv/model"), Path("srv/model.bak")
NVFP4, PRODUCTION = Path("models/one/nvfp4"), Path("models/tiny-production")
PLACE = ["PROFILE=tiny", "RUN=one", "MODELS_DIR=models"]
WORDS = [*PLACE, f"DEPLOY_DIR={SERVED}"]
TENSORS = ("lm_head.weight", "mtp.layers.0.mlp.gate.weight")
CONFIG = {
    "model_type": "qwen3_5_moe",
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "text_config": {"mtp_num_hidden_layers": 1},
}

Tree = dict[str, bytes]
Command = Callable[[], int]


def set_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in `folder`, where checkpoint 1 is served and the run's NVFP4 is checkpoint 2."""
    monkeypatch.chdir(folder)
    # What a killed process wrote is not lost: waiting for the disk a thousand times proves nothing here.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    checkpoint(SERVED, 1)
    quantize(2)


def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if kernel or file system could not exchange two names."""

    def unsupported(one: Path, _: Path) -> None:
        raise OSError(errno.EINVAL, "no exchange here", str(one))

    monkeypatch.setattr(swap, "rename_exchange", unsupported)


def checkpoint(path: Path, fill: int, tensors: tuple[str, ...] = TENSORS) -> None:
    """Write a stand-in for a checkpoint; every tensor is eight bytes of `fill`."""
    path.mkdir(parents=True, exist_ok=True)
    entry = {"dtype": "U8", "shape": [8]}
    header = {name: entry | {"data_offsets": [8 * i, 8 * i + 8]} for i, name in enumerate(tensors)}
    text = json.dumps(header).encode()
    data = bytes([fill]) * 8 * len(tensors)
    (path / shards.SINGLE).write_bytes(struct.pack("<Q", len(text)) + text + data)
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "chat_template.jinja").write_text("{{ messages }}")


def artifact(path: Path, **inputs: dict[str, str]) -> Any:
    """An artefact under construction."""
    return artifacts.create(path, kind="checkpoint", profile="tiny", run="one", settings={}, inputs=inputs)


def quantize(fill: int, tensors: tuple[str, ...] = TENSORS) -> None:
    """Make the run's NVFP4 artefact anew, with a verdict that passes."""
    with artifact(NVFP4) as draft:
        checkpoint(draft.path, fill, tensors)
    judge(verdicts.IMPROVES)


def judge(verdict: str) -> None:
    """Write the verdict on what the run's NVFP4 artefact is now."""
    judged = artifacts.as_input(NVFP4, artifacts.require(NVFP4, "quantize"))
    with artifact(verdicts.directory(Path("out/one"), "nvfp4"), checkpoint=judged) as draft:
        (draft.path / verdicts.FILE).write_text(json.dumps({"gates": {"skills": {"verdict": verdict}}}))


def run_deploy(*words: str) -> int:
    return deploy.main([*WORDS, *words])


def run_rollback() -> int:
    return rollback.main(WORDS)


def on_disk(folder: Path) -> Tree:
    """Every file below a folder with its bytes."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def payload(path: Path) -> Tree | None:
    """A checkpoint's files without its manifest, which tells the time; None where there is none."""
    return {n: f.read_bytes() for n, f in artifacts.payload(path).items()} if path.exists() else None


def payloads() -> dict[str, Tree | None]:
    """All that stands beside DEPLOY_DIR, itself included."""
    return {path.name: payload(path) for path in SERVED.parent.iterdir()}


def refusal(command: Command) -> str:
    """The one line with which a command refuses, having changed nothing."""
    before = on_disk(Path())
    with pytest.raises(UserError) as caught:
        command()
    assert on_disk(Path()) == before
    message = str(caught.value)
    assert "\n" not in message
    return message
