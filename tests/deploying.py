"""A place to deploy to: stand-ins for checkpoints (real config and header, few bytes) and for the server."""

import contextlib
import errno
import json
import os
import re
import shlex
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, shards, verdicts
from core.errors import UserError
from core.profiles import tiny
from quant import deploy, deployments, rollback
from quant.deploying import swap
from quant.deploying.journal import Journal

SERVED = Path("srv/model")
NVFP4, PRODUCTION = Path("models/one/nvfp4"), Path("models/tiny-production")
PLACE = ["PROFILE=tiny", "RUN=one", "MODELS_DIR=models"]
WORDS = [*PLACE, f"DEPLOY_DIR={SERVED}"]
TENSORS = ("lm_head.weight", "mtp.layers.0.mlp.gate.weight")
CONFIG: dict[str, Any] = {
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
    impatient = replace(tiny.PROFILE.health, minutes=0.05)
    monkeypatch.setattr(tiny, "PROFILE", replace(tiny.PROFILE, health=impatient))
    checkpoint(SERVED, 1)
    quantize(2)


def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if kernel or file system could not exchange two names."""

    def unsupported(one: Path, _: Path) -> None:
        raise OSError(errno.EINVAL, "no exchange here", str(one))

    monkeypatch.setattr(swap, "rename_exchange", unsupported)


def checkpoint(path: Path, fill: int, tensors: tuple[str, ...] = TENSORS, mood: str = "") -> None:
    """Write a stand-in for a checkpoint; every tensor is eight bytes of `fill`, its server has that mood."""
    path.mkdir(parents=True, exist_ok=True)
    entry = {"dtype": "U8", "shape": [8]}
    header = {name: entry | {"data_offsets": [8 * i, 8 * i + 8]} for i, name in enumerate(tensors)}
    text = json.dumps(header).encode()
    data = bytes([fill]) * 8 * len(tensors)
    (path / shards.SINGLE).write_bytes(struct.pack("<Q", len(text)) + text + data)
    (path / "config.json").write_text(json.dumps(CONFIG | {"stand_in": mood}))
    (path / "chat_template.jinja").write_text("{{ messages }}")
    (path / "tokenizer.json").write_text("{}")


def artifact(path: Path, **inputs: dict[str, str]) -> Any:
    """An artefact under construction."""
    return artifacts.create(path, kind="checkpoint", profile="tiny", run="one", settings={}, inputs=inputs)


def quantize(fill: int, tensors: tuple[str, ...] = TENSORS, mood: str = "") -> None:
    """Make the run's NVFP4 artefact anew, with a verdict that passes."""
    with artifact(NVFP4) as draft:
        checkpoint(draft.path, fill, tensors, mood)
    judge(verdicts.IMPROVES)


def judge(verdict: str) -> None:
    """Write the verdict on what the run's NVFP4 artefact is now."""
    judged = artifacts.as_input(NVFP4, artifacts.require(NVFP4, "quantize"))
    with artifact(verdicts.directory(Path("out/one"), "nvfp4"), checkpoint=judged) as draft:
        (draft.path / verdicts.FILE).write_text(json.dumps({"gates": {"skills": {"verdict": verdict}}}))


def run_deploy(*words: str) -> int:
    return deploy.main([*WORDS, *words])


def run_rollback(*words: str) -> int:
    return rollback.main([*WORDS, *words])


def run_deployments(*words: str) -> int:
    return deployments.main([*WORDS, *words])


class StandIn:
    """The stand-in server, started and stopped by real shell commands, on a port of its own."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        script = Path(__file__).with_name("served_stand_in.py")
        self.pid = Path("server.pid").resolve()
        pid = shlex.quote(str(self.pid))
        run = [sys.executable, "-I", "-S", str(script), str(SERVED.resolve()), str(self.port), str(self.pid)]
        alive = f"[ -f {pid} ] && kill -0 $(cat {pid}) 2>/dev/null"
        start = f"{alive} || {{ {shlex.join(run)} </dev/null >/dev/null 2>&1 & echo $! > {pid}; }}"
        stop = f"{alive} && kill $(cat {pid}); while {alive}; do sleep 0.005; done; rm -f {pid}"
        self.start, self.stop = self._script("start.sh", start), self._script("stop.sh", stop)
        self.url = f"http://127.0.0.1:{self.port}/v1"

    @staticmethod
    def _script(name: str, text: str) -> str:
        Path(name).write_text(text + "\n")
        return shlex.join(["sh", str(Path(name).resolve())])

    def up(self) -> None:
        """Start it and wait until it answers."""
        subprocess.run(self.start, shell=True, check=True)
        for _ in range(1000):
            with contextlib.suppress(OSError):
                assert self.model
                return
            time.sleep(0.01)
        raise TimeoutError(self.url)

    def down(self) -> None:
        """Stop it."""
        subprocess.run(self.stop, shell=True, check=True)

    @property
    def words(self) -> list[str]:
        """The settings that name it."""
        return [f"SERVER={self.url}", f"STOP_CMD={self.stop}", f"START_CMD={self.start}"]

    @property
    def model(self) -> str:
        """What it serves from its memory."""
        with urllib.request.urlopen(f"{self.url}/models", timeout=5) as response:
            return json.load(response)["data"][0]["id"]

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.pid.exists()


def on_disk(folder: Path) -> Tree:
    """Every file below a folder with its bytes."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def payload(path: Path) -> Tree | None:
    """A checkpoint's files without its manifest, which tells the time; None where there is none."""
    return {n: f.read_bytes() for n, f in artifacts.payload(path).items()} if path.exists() else None


def backups() -> list[Tree | None]:
    """The payloads of all backups, oldest first."""
    return [payload(path) for path in swap.backups(SERVED)]


def payloads() -> dict[str, Any]:
    """All that stands beside DEPLOY_DIR, itself included; backups without the time in their names, and the
    commands of the journal with what came of them."""
    names = [p for p in SERVED.parent.iterdir() if not re.search(r"\.bak-|\.deployments\.json$", p.name)]
    history = [(entry.command, entry.state) for entry in Journal(SERVED).entries]
    return {path.name: payload(path) for path in names} | {"backups": backups(), "history": history}


def refusal(command: Command) -> str:
    """The one line with which a command refuses, having changed nothing."""
    before = on_disk(Path())
    with pytest.raises(UserError) as caught:
        command()
    assert on_disk(Path()) == before
    message = str(caught.value)
    assert "\n" not in message
    return message
