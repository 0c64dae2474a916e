"""The training process and production around it: real processes, real signals, real shell commands."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import UserError
from tests.conftest import ROOT
from trainer.job import Task
from trainer.running import room, supervise
from trainer.running.attempts import halved
from trainer.running.memory_guard import KILL_SHARE, Guard, Memory, cgroups, machine

SECONDS = 60


def start(how: str, place: Path, *more: str) -> "subprocess.Popen[str]":
    """The parent with its child running."""
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.parent_of_child", how, str(place), *more],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    if how != "error":
        wait_for(lambda: (place / "pid").exists() and (place / "pid").read_text())
    return parent


def wait_for(found) -> None:
    """Until `found()` is true."""
    end = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.02)


def child(place: Path) -> int:
    return int((place / "pid").read_text())


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        state = Path(f"/proc/{pid}/stat")
        return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return not alive(pid)


def hooks(place: Path) -> list[str]:
    return (place / "hooks").read_text().split()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop_the_child_saves_and_production_starts_again(tmp_path, number):
    parent = start("polite", tmp_path)
    parent.send_signal(number)
    out, _ = parent.communicate(timeout=SECONDS)
    assert "Ending(code=3, interrupted=True" in out
    assert (tmp_path / "saved").exists()
    assert hooks(tmp_path) == ["stop", "start"]


def test_asked_twice_the_child_is_killed_and_production_starts_again(tmp_path):
    parent = start("deaf", tmp_path)
    parent.send_signal(signal.SIGINT)
    time.sleep(0.2)
    parent.send_signal(signal.SIGINT)
    out, _ = parent.communicate(timeout=SECONDS)
    assert "Ending(code=-9, interrupted=True" in out
    assert gone(child(tmp_path))
    assert hooks(tmp_path) == ["stop", "start"]


def test_a_killed_child_lets_production_start_again(tmp_path):
    parent = start("deaf", tmp_path)
    os.kill(child(tmp_path), signal.SIGKILL)
    out, _ = parent.communicate(timeout=SECONDS)
    assert "Ending(code=-9, interrupted=False, out_of_memory=False)" in out
    assert hooks(tmp_path) == ["stop", "start"]


def test_a_fault_of_the_parent_lets_production_start_again(tmp_path):
    parent = start("error", tmp_path)
    _, said = parent.communicate(timeout=SECONDS)
    assert "a fault of ours" in said
    assert hooks(tmp_path) == ["stop", "start"]


def test_a_killed_parent_takes_its_child_along(tmp_path):
    parent = start("deaf", tmp_path)
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate(timeout=SECONDS)
    wait_for(lambda: gone(child(tmp_path)))


def test_ctrl_c_while_production_starts_does_not_cut_that_short(tmp_path):
    parent = start("polite", tmp_path, "1")
    parent.send_signal(signal.SIGINT)
    wait_for(lambda: (tmp_path / "saved").exists())
    time.sleep(0.4)
    parent.send_signal(signal.SIGINT)
    _, said = parent.communicate(timeout=SECONDS)
    assert "starting production again first" in said
    assert hooks(tmp_path) == ["stop", "start"]


def test_a_hook_that_fails_is_one_line_with_the_mend_and_training_does_not_begin(tmp_path, capfd):
    settings: Any = SimpleNamespace(stop_cmd="exit 7", start_cmd=f"touch {tmp_path}/started")
    mend = r"STOP_CMD failed with exit code 7: exit 7\..* STOP_CMD=true"
    with pytest.raises(UserError, match=mend), room.made(settings, needed=0):
        pytest.fail("trained all the same")
    assert (tmp_path / "started").exists()
    settings = SimpleNamespace(stop_cmd="", start_cmd="exit 8")
    with pytest.raises(ValueError, match="the first one"), room.made(settings, needed=0):
        raise ValueError("the first one")
    assert "START_CMD failed with exit code 8" in capfd.readouterr().err


def test_training_waits_until_the_memory_is_really_free(monkeypatch, capsys):
    monkeypatch.setattr(room, "LOOK_SECONDS", 0.01)
    free = iter([2 * 10**9, 3 * 10**9, 9 * 10**9])
    room.wait_until_free(8 * 10**9, free=lambda: next(free))
    assert capsys.readouterr().out == "train: waiting for 8.0 GB of memory, 2.0 GB are free\n"
    with pytest.raises(UserError, match=r"2\.0 GB of memory are free .*training takes 8\.0 GB"):
        room.wait_until_free(8 * 10**9, free=lambda: 2 * 10**9, seconds=0.05)


def eaten(how: str, tmp_path: Path, reserve: float) -> tuple[supervise.Ending, Guard]:
    """How a process that eats memory ends under a guard; it could take 1.5 GB, for the machine's sake."""
    guard = Guard(reserve, machine)
    command = [sys.executable, "-m", "tests.long_child", how, str(tmp_path)]
    limited = ["bash", "-c", 'ulimit -v 1500000; exec "$@"', "bash", *command]
    return supervise.run(limited, guard), guard


def test_a_process_that_eats_memory_saves_and_stops_before_it_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    before = machine()
    reserve = (before.available - 300_000_000) / before.total
    ending, guard = eaten("eater", tmp_path, reserve)
    assert ending.code == 3
    assert (tmp_path / "saved").exists()
    assert guard.lowest
    assert not guard.killed


def test_a_process_that_goes_on_eating_is_killed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    before = machine()
    # What is there now lies between the reserve and the floor; eating on leads below the floor.
    floor = (before.available - 200_000_000) / before.total
    ending, guard = eaten("glutton", tmp_path, floor / KILL_SHARE)
    assert ending.code == -signal.SIGKILL
    assert guard.killed
    assert gone(child(tmp_path))


def test_the_limit_of_a_container_counts(tmp_path):
    own, root = tmp_path / "own", tmp_path / "cgroup"
    (root / "pod/box").mkdir(parents=True)
    (root / "memory").mkdir()
    own.write_text("5:cpu,cpuacct:/x\n0::/pod/box\n")
    (root / "pod/memory.max").write_text("8000\n")
    (root / "pod/memory.current").write_text("5000\n")
    (root / "pod/memory.stat").write_text("anon 1\nactive_file 100\ninactive_file 400\n")
    (root / "pod/box/memory.max").write_text("max\n")
    (root / "pod/box/memory.current").write_text("5000\n")
    (root / "pod/box/memory.stat").write_text("anon 1\n")
    assert cgroups(own, root) == [Memory(3500, 8000)]
    own.write_text("4:memory:/not/in/this/namespace\n")
    (root / "memory/memory.limit_in_bytes").write_text("9000\n")
    (root / "memory/memory.usage_in_bytes").write_text("9500\n")
    (root / "memory/memory.stat").write_text("total_active_file 0\ntotal_inactive_file 0\n")
    assert cgroups(own, root) == [Memory(0, 9000)]
    (root / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert cgroups(own, root) == []


def test_half_the_rows_a_device_step_are_the_same_optimiser_step():
    task = Task(words=[], backend="plain", out="", states="", adapter="", batch=12, accumulate=1)
    sizes = []
    while task:
        sizes.append((task.batch, task.accumulate))
        task = halved(task)
    assert sizes == [(12, 1), (6, 2), (3, 4), (1, 12)]
