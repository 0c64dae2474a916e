"""Hundreds of random faults across deploy and rollback, with a real server process and a real file system.

Whatever happens, at every instant a whole checkpoint is served, the old or the new one; the next command
repairs all; no checkpoint is lost.
"""

import contextlib
import errno
import os
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx  # noqa: F401  (imported once: the forked processes inherit it)
import jsonschema  # noqa: F401
import pytest
from deploying import (
    NVFP4,
    SERVED,
    TENSORS,
    Command,
    StandIn,
    Tree,
    payload,
    quantize,
    run_deploy,
    run_deployments,
    run_rollback,
    without_exchange,
)
from planted import TAKES_SPACE, planted

from core import artifacts
from core.errors import UserError
from quant.deploying import swap
from quant.deploying.journal import Journal

COMMANDS: dict[str, Callable[..., int]] = {
    "deploy": run_deploy,
    "rollback": run_rollback,
    "deployments": run_deployments,
}
MOODS = {
    "never healthy": ("dead", "silent", "crash"),
    "gibberish": ("empty", "bangs", "broken"),
    "wrong parser": ("unparsed", "no parser", "half arguments"),
    "MTP missing": ("no drafts",),
}
FAULTS = (
    "killed at a step", "killed at a time", "disk full", "permission denied", "one failure", *MOODS,
    "no MTP tensors", "backup in the way", "two at once", "STOP_CMD fails", "START_CMD fails",
)  # fmt: skip
MOST_STEPS, MOST_SECONDS = 75, 0.8
"""A deploy of these checkpoints changes the disk so often, and takes so long."""
ALLOWED = (errno.ENOSPC, errno.EACCES)


@dataclass
class Fault:
    """What goes wrong in one round, drawn from its generator."""

    kind: str
    rng: random.Random

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Within the process of the command."""
        step = self.rng.randrange(MOST_STEPS)
        if self.kind == "killed at a step":
            with planted(lambda n, _: n == step, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                yield
        elif self.kind == "disk full":
            with planted(lambda n, name: n >= step and name in TAKES_SPACE, lambda: refuse(errno.ENOSPC)):
                yield
        elif self.kind == "permission denied":
            with planted(lambda n, _: n >= step, lambda: refuse(errno.EACCES)):
                yield
        elif self.kind == "one failure":
            with planted(lambda n, _: n == step, lambda: refuse(errno.EACCES)):
                yield
        else:
            yield

    def settings(self, server: StandIn) -> list[str]:
        """The words that name the server."""
        address, stop, start = server.words
        if self.kind == "STOP_CMD fails":
            stop = "STOP_CMD=exit 3"
        if self.kind == "START_CMD fails":  # once
            start = f"START_CMD=[ -e started ] || {{ touch started; exit 4; }}; {server.start}"
        return [address, stop, start]


def refuse(code: int) -> None:
    raise OSError(code, os.strerror(code))


def child(command: Command, fault: Fault) -> int:
    """A process in which the command meets its fault: it exits as a stage does, or with 99 on a defect."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        with open("log", "a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        with fault.inside():
            code = command()
    except UserError:
        code = 2
    except OSError as error:
        code = 2 if error.errno in ALLOWED else 99
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def look(whole: list[Tree], kernel: str, server: StandIn) -> None:
    """What is served at this instant is one of these, to the last byte; or it is being renamed, without a
    server, where the kernel cannot exchange."""
    try:
        folder = os.open(SERVED, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        assert kernel == "renames"
        assert not server.alive or SERVED.exists()
        return
    try:
        found = {}
        for name in os.listdir(folder):
            with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
                found[name] = file.read()
        same = os.fstat(folder).st_ino == SERVED.stat().st_ino
    except FileNotFoundError:  # taken out, and a copy that is undone is removed
        return
    finally:
        os.close(folder)
    found.pop(artifacts.MANIFEST, None)
    assert not same or found in whole


def watch(pids: list[int], whole: list[Tree], kernel: str, server: StandIn, kill_after: float) -> list[int]:
    """Look on until the processes have ended, or kill them; their exit codes."""
    start, codes, looks = time.monotonic(), [], 0
    while pids:
        look(whole, kernel, server)
        looks += 1
        if time.monotonic() - start > kill_after:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        for pid in list(pids):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                pids.remove(pid)
                codes.append(os.waitstatus_to_exitcode(status))
        time.sleep(0.002)
    assert looks
    return codes


def in_the_way() -> list[Path]:
    """Someone's directories at the names that the next backups would take."""
    now = time.time()
    stamps = [time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now + after)) for after in range(3)]
    paths = [SERVED.with_name(f"{SERVED.name}{swap.BACKUP}{stamp}") for stamp in stamps]
    paths = [path for path in paths if not path.exists()]
    for path in paths:
        path.mkdir()
        (path / "mine").write_text("theirs")
    return paths


def repaired(server: StandIn, rng: random.Random) -> None:
    """The next command, whichever it is, brings all to an end; it may itself be killed once."""
    if rng.random() < 0.3:
        pid = child(lambda: run_deployments(*server.words), Fault("killed at a step", rng))
        os.waitpid(pid, 0)
    command = COMMANDS[rng.choice(sorted(COMMANDS))]
    pid = child(lambda: command(*server.words), Fault("none", rng))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 1, 2), Path("log").read_text()
    if code == 2:  # a refusal, as of what lacks MTP tensors; it came after the repair
        assert not Journal(SERVED).open, Path("log").read_text()


def one_round(number: int, rng: random.Random, server: StandIn) -> str:
    """One command with one fault, and the next; the fault's name."""
    fault = Fault(FAULTS[number % len(FAULTS)], rng)
    kernel = rng.choice(["renameat2", "renames"])
    mood = rng.choice(MOODS.get(fault.kind, ("",)))
    quantize(2 + number % 250, TENSORS[:1] if fault.kind == "no MTP tensors" else TENSORS, mood)
    name = "rollback" if Journal(SERVED).last and rng.random() < 0.4 else "deploy"
    whole = [tree for tree in map(payload, (SERVED, NVFP4, *swap.backups(SERVED))) if tree]
    kept = whole[2:] + whole[:1]
    theirs = in_the_way() if fault.kind == "backup in the way" else []
    words = fault.settings(server)
    with pytest.MonkeyPatch.context() as patched:
        if kernel == "renames":
            without_exchange(patched)
        count = 2 if fault.kind == "two at once" else 1
        pids = [child(lambda: COMMANDS[name](*words), fault) for _ in range(count)]
        killed = rng.uniform(0, MOST_SECONDS) if fault.kind == "killed at a time" else float("inf")
        codes = watch(pids, whole, kernel, server, killed)
        assert set(codes) <= {0, 1, 2, -signal.SIGKILL}, Path("log").read_text()
        repaired(server, rng)
    there = [payload(SERVED), *map(payload, swap.backups(SERVED))]
    assert all(tree in there for tree in kept)
    assert there[0] in whole
    assert not Journal(SERVED).open
    assert {path.name for path in SERVED.parent.iterdir() if ".bak-" not in path.name} <= {
        "model",
        "model.deployments.json",
    }
    server.up()
    assert server.model == f"checkpoint {(SERVED / 'model.safetensors').read_bytes()[-1]}"
    for path in theirs:
        assert (path / "mine").read_text() == "theirs"
        shutil.rmtree(path)
    Path("started").unlink(missing_ok=True)
    Path("log").unlink()
    return fault.kind


def prune() -> None:
    """Remove backups as a user may: those that rollback does not need."""
    last = Journal(SERVED).last
    for path in swap.backups(SERVED):
        if last is None or path.name != last.outgoing.name:
            shutil.rmtree(path)


@pytest.mark.parametrize("rounds", [len(FAULTS) + 5, pytest.param(300, marks=pytest.mark.slow)])
def test_at_every_instant_a_whole_checkpoint_is_served_and_the_next_command_repairs(
    stand_in: StandIn, rounds: int
) -> None:
    rng = random.Random(20261201 + rounds)
    seen: Counter[str] = Counter()
    for number in range(rounds):
        seen[one_round(number, rng, stand_in)] += 1
        prune()
    assert set(seen) == set(FAULTS)
