"""The merge under kill -9, Ctrl-C and errors: the next run goes on where it was, to the same bytes."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, shards
from core.errors import UserError
from quant import merge
from quant.merging import stream
from tests import tiny_model
from tests.merging import BASE, MERGED, ROOT, WORDS, artifact, files, hand_made

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
PARTIAL = MERGED.with_name("merged.partial")


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a base in about ten shards and an adapter on one of them."""
    from safetensors.torch import load_file

    monkeypatch.chdir(tmp_path)
    tiny_model.make(Path("whole"))
    tensors = {name: t for f in shards.shard_files(Path("whole")) for name, t in load_file(f).items()}
    with artifact(BASE, "checkpoint") as draft:
        shards.write_checkpoint(draft.path, tensors, max_shard_bytes=100_000)
        for name in ("config.json", "chat_template.jinja"):
            shutil.copyfile(Path("whole") / name, draft.path / name)
    assert len(shards.shard_files(BASE)) >= 8
    hand_made()


def expected() -> dict[str, bytes]:
    """The merge's files when nothing happens."""
    merge.main(WORDS)
    found = files(MERGED, "")
    found.pop(artifacts.MANIFEST)
    shutil.rmtree(MERGED)
    return found


def stop_after(count: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the merge end by `error` when it wants to record one shard more than `count`."""
    real = artifacts.Draft.finish

    def finish(draft: artifacts.Draft, *args: Any, **notes: Any) -> None:
        if len(draft.finished) == count:
            raise error
        real(draft, *args, **notes)

    monkeypatch.setattr(artifacts.Draft, "finish", finish)


def whole() -> dict[str, bytes]:
    found = files(MERGED, "")
    found.pop(artifacts.MANIFEST)
    return found


def test_after_ctrl_c_finished_shards_are_not_written_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = expected()
    with monkeypatch.context() as patched:
        stop_after(5, KeyboardInterrupt(), patched)
        with pytest.raises(KeyboardInterrupt):
            merge.main(WORDS)
    finished = json.loads((PARTIAL / artifacts.JOURNAL).read_text())["finished"]
    assert len(finished) == 5
    before = {name: (PARTIAL / name).stat().st_mtime_ns for name in finished}
    written = []
    real = stream.write_shard
    monkeypatch.setattr(merge, "write_shard", lambda f, *rest: written.append(f.name) or real(f, *rest))
    merge.main(WORDS)
    assert "going on, 5 shards are finished" in capsys.readouterr().out
    assert sorted([*written, *finished]) == sorted(f.name for f in shards.shard_files(BASE))
    assert {name: (MERGED / name).stat().st_mtime_ns for name in finished} == before
    assert whole() == wanted
    assert not PARTIAL.exists()
    manifest = artifacts.require(MERGED, "merge")
    assert all(e["sha256"] == artifacts.file_sha256(MERGED / n) for n, e in manifest["files"].items())


def test_another_adapter_starts_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        stop_after(5, KeyboardInterrupt(), patched)
        with pytest.raises(KeyboardInterrupt):
            merge.main(WORDS)
    hand_made(lambda _, config: config.update(lora_alpha=12))
    merge.main(WORDS)
    assert "going on" not in capsys.readouterr().out


def test_an_error_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(5, UserError("stands for a full disk"), monkeypatch)
    with pytest.raises(UserError):
        merge.main(WORDS)
    assert sorted(p.name for p in MERGED.parent.iterdir()) == []


def test_shards_do_not_depend_on_the_order_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = expected()
    monkeypatch.setattr(merge, "WORKERS", 1)
    merge.main(WORDS)
    assert whole() == wanted


SLOWED = """
import sys, time
import torch
from quant import merge
from quant.merging import stream
real = stream.write_shard
def slowed(*args):
    time.sleep(0.1)
    return real(*args)
merge.write_shard = slowed
print("ready", flush=True)
merge.main(sys.argv[1:])
"""
"""The merge, its shards spread over some time so that a kill hits between and within them."""


def killed(rng: random.Random) -> bool:
    """Start the merge in a process and kill it at a random instant, mostly while it writes shards.

    Returns whether it was still at work.
    """
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", SLOWED, *WORDS], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout and child.stdout.readline() == b"ready\n"
        if rng.random() < 0.8:
            while not PARTIAL.exists() and child.poll() is None:
                time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.5))
        alive = child.poll() is None
        child.send_signal(signal.SIGKILL)
    return alive


def processes_here() -> list[int]:
    """Other processes that run in the test's directory; none where there is no /proc."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if place.resolve() == Path.cwd() and int(place.parent.name) != os.getpid():
                found.append(int(place.parent.name))
    return found


def kill_often(times: int) -> None:
    wanted, rng = expected(), random.Random(times)
    alive = resumed = 0
    for number in range(times):
        alive += killed(rng)
        assert not MERGED.exists() or artifacts.complete(MERGED, artifacts.require(MERGED, "merge"))
        resumed += (PARTIAL / artifacts.JOURNAL).exists()
        if number % 3 == 2:  # otherwise killed again and again before it is let end
            merge.main(WORDS)
            assert whole() == wanted
            assert sorted(p.name for p in MERGED.parent.iterdir()) == ["merged"]
            shutil.rmtree(MERGED)
    assert alive >= times * 0.8
    assert resumed >= times * 0.3
    deadline = time.monotonic() + 20
    while processes_here():
        assert time.monotonic() < deadline, "a killed merge has left a process behind"
        time.sleep(0.1)


def test_killed_at_random_instants_the_next_run_ends_the_same() -> None:
    kill_often(3)


@pytest.mark.slow
def test_killed_fifty_times_the_next_run_ends_the_same() -> None:
    kill_often(50)
