"""`make base` of a hub model, from a hub on loopback: resumed, pinned, checked, clear where it cannot."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core import artifacts, shards
from core.errors import UserError
from tests.conftest import ROOT
from tests.hub_server import COMMIT, serving
from trainer import download

PROFILE = """
import sys
from dataclasses import replace
from core import errors, profile
from core.profiles import tiny
hub = replace(
    tiny.PROFILE, name="hub", embedded=False, base="org/model",
    chat_template=sys.argv.pop(1), revision=sys.argv.pop(1),
)
profile.load = lambda name: hub
from trainer import base
errors.run(base.main)
"""
TEMPLATE = "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259"
SECONDS = 120
LARGE = 24 << 20
"""huggingface_hub writes 10 MiB at a time."""
STALL = 11 << 20


@pytest.fixture
def hub(base_dir: Path, tmp_path: Path):
    files = tmp_path / "files"
    shutil.copytree(base_dir, files)
    (files / artifacts.MANIFEST).unlink()
    (files / "pytorch_model.bin").write_bytes(b"not wanted")
    (files / "large.json").write_bytes(b" " * LARGE)
    with serving(files) as running:
        yield running


@pytest.fixture
def make_base(tmp_path: Path):
    """Start `make base` for the hub's model; `environment` comes on top."""

    def start(address: str, template: str = TEMPLATE, revision: str = "main", **environment: str):
        words = ["PROFILE=hub", "RUN=hub", f"MODELS_DIR={tmp_path / 'models'}"]
        ours = {
            "HF_ENDPOINT": address,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        clean = {k: v for k, v in os.environ.items() if not k.lower().endswith(("_proxy", "_offline"))}
        return subprocess.Popen(
            [sys.executable, "-c", PROFILE, template, revision, *words],
            cwd=ROOT, env={**clean, **ours, **environment}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start


def test_an_interrupted_download_goes_on_where_it_was(hub, make_base, tmp_path):
    hub.stall = STALL
    killed = make_base(hub.address)
    base, end = tmp_path / "models/model", time.monotonic() + SECONDS
    part = base / download.PARTS / "large.json"
    while not (part.exists() and part.stat().st_size >= 10 << 20):
        assert time.monotonic() < end, "nothing came"
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    hub.stall, before = 0, len(hub.ranges)
    out, said = make_base(hub.address).communicate(timeout=SECONDS)
    assert f"org/model at {COMMIT[:12]}" in out, said
    assert max(hub.ranges[before:]) >= 10 << 20, "fetched anew"
    for name, file in artifacts.payload(base).items():
        assert file.read_bytes() == (hub.files / name).read_bytes()
    assert not (base / "pytorch_model.bin").exists()
    manifest = artifacts.require(base, "base")
    assert artifacts.complete(base, manifest)
    assert len(shards.read_checkpoint(base)) > 100

    before = len(hub.ranges)
    again, said = make_base("http://127.0.0.1:9", HF_HUB_OFFLINE="1").communicate(timeout=SECONDS)
    assert f"sha256 {artifacts.digest(manifest)[:12]}" in again, said
    assert len(hub.ranges) == before


@pytest.mark.parametrize("fault", ["no network", "offline", "no revision", "template", "damaged"])
def test_what_goes_wrong_is_one_line_with_the_mend(fault, hub, make_base, tmp_path):
    expected = {
        "no network": r"cannot be reached (",
        "offline": "HF_HUB_OFFLINE is set: unset it, or copy org/model there",
        "no revision": "org/model has no revision v9",
        "template": "the chat template is not production's",
        "damaged": "came damaged and was removed: make base fetches it again",
    }
    shard = max((f for f in hub.files.glob("*.safetensors")), key=lambda f: f.stat().st_size).name
    hub.damage = shard if fault == "damaged" else ""
    start = {
        "no network": lambda: make_base("http://127.0.0.1:9"),
        "offline": lambda: make_base(hub.address, HF_HUB_OFFLINE="1"),
        "no revision": lambda: make_base(hub.address, revision="v9"),
        "template": lambda: make_base(hub.address, template="0" * 64),
        "damaged": lambda: make_base(hub.address),
    }[fault]
    failed = start()
    _, said = failed.communicate(timeout=SECONDS)
    assert failed.returncode == 2
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert expected[fault] in line
    assert "Traceback" not in said
    if fault == "damaged":
        assert not (tmp_path / "models/model" / shard).exists()


def test_a_disk_too_small_is_seen_before_anything_comes(hub, tmp_path, monkeypatch):
    from collections import namedtuple
    from dataclasses import replace

    from huggingface_hub import HfApi, constants

    from core.profiles import tiny

    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 1000, 1000))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    told = HfApi(endpoint=hub.address)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: told)
    with pytest.raises(UserError, match=r"1000 bytes free|0\.0 MB free, .* MB to fetch: free some"):
        download.fetch(replace(tiny.PROFILE, base="org/model"), tmp_path / "models/model")
    assert not (tmp_path / "models").exists()
    assert hub.ranges == []
