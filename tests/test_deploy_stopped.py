"""Deploy and rollback stopped: whatever instant it is, one whole checkpoint is served.

All that changes the disk goes through `os` or `swap.rename_exchange`, so faults are planted there.
"""

import contextlib
import errno
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deploying import (
    PRODUCTION,
    SERVED,
    Command,
    Tree,
    artifact,
    checkpoint,
    on_disk,
    payload,
    payloads,
    quantize,
    refusal,
    run_deploy,
    run_rollback,
)

from core.errors import UserError
from quant import swap

STEPS = ("mkdir", "rename", "replace", "unlink", "rmdir", "chmod", "fsync", "sendfile", "copy_file_range")
TAKES_SPACE = ("mkdir", "fsync", "sendfile", "copy_file_range")


pytestmark = pytest.mark.usefixtures("desk")


def second_deploy() -> Command:
    run_deploy()
    quantize(3)
    return run_deploy


def first_of_all() -> Command:
    shutil.rmtree(SERVED.parent)
    SERVED.parent.mkdir()
    with artifact(PRODUCTION) as draft:
        checkpoint(draft.path, 1)
    return run_deploy


def back() -> Command:
    run_deploy()
    return run_rollback


SCENARIOS = {"first": lambda: run_deploy, "second": second_deploy, "start": first_of_all, "back": back}


@contextlib.contextmanager
def planted(when: Callable[[int, str], bool], fault: Callable[[], None]) -> Iterator[None]:
    """Let `fault()` happen instead of those changes of the disk whose number and name `when` picks."""
    numbers = itertools.count()

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if when(next(numbers), name):
                fault()
            return real(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in STEPS:
            if hasattr(os, name):
                patched.setattr(os, name, watched(name, getattr(os, name)))
        patched.setattr(swap, "rename_exchange", watched("exchange", swap.rename_exchange))
        yield


def killed_at(step: int, command: Command) -> bool:
    """Run a command in a process that is killed before its n-th change of the disk, if it has so many."""
    child = os.fork()
    if not child:
        try:
            with planted(lambda n, _: n == step, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                command()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def stopped_at(step: int, command: Command, how: str) -> bool:
    """Run a command during which the disk gets full for good, one change fails, or Ctrl-C is pressed.

    Whether it came so far; what it is stopped at may not matter to it.
    """
    reached = []

    def fail() -> None:
        reached.append(True)
        raise KeyboardInterrupt if how == "Ctrl-C" else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def when(number: int, name: str) -> bool:
        return number >= step and name in TAKES_SPACE if how == "full disk" else number == step

    with planted(when, fail), contextlib.suppress(OSError, UserError, KeyboardInterrupt):
        command()
    return bool(reached)


def instants(command: Command, stop: Callable[[int], bool]) -> Iterator[tuple[Tree, Any]]:
    """Stop a command at one change of the disk after the other, from the same state each time.

    Yields that state and what a run that nobody stops comes to; the disk is as the stop left it.
    """
    saved = Path("saved")
    shutil.copytree(SERVED.parent, saved)
    before = on_disk(saved)

    def reset() -> None:
        shutil.rmtree(SERVED.parent)
        shutil.copytree(saved, SERVED.parent)

    command()
    wanted = payloads()
    reset()
    for step in itertools.count():
        if not stop(step):
            assert step > 5 and payloads() == wanted
            return
        yield before, wanted
        reset()


@pytest.mark.parametrize(
    ("scenario", "kernel"),
    [
        ("first", "renameat2"),
        ("second", "renameat2"),
        ("second", "renames"),
        ("start", "renameat2"),
        ("back", "renameat2"),
        ("back", "renames"),
    ],
    indirect=["kernel"],
)
def test_killed_at_any_step_and_run_again_it_ends_the_same(scenario: str, kernel: str) -> None:
    command = SCENARIOS[scenario]()
    old = payload(SERVED)
    for _, wanted in instants(command, lambda step: killed_at(step, command)):
        served = payload(SERVED)
        if kernel == "renames" and served is None:  # between two renames
            served = payload(SERVED.with_name("model.aside"))
        assert served in (old, wanted["model"], payload(PRODUCTION))
        command()
        assert payloads() == wanted


@pytest.mark.parametrize("how", ["full disk", "one failure", "Ctrl-C"])
@pytest.mark.parametrize("scenario", ["first", "second", "back"])
def test_stopped_at_any_step_it_leaves_all_as_it_was_or_the_new_one_served(
    scenario: str, how: str, kernel: str
) -> None:
    command = SCENARIOS[scenario]()
    for before, wanted in instants(command, lambda step: stopped_at(step, command, how)):
        if payload(SERVED) != wanted["model"]:
            assert on_disk(SERVED.parent) == before
        command()
        assert payloads() == wanted


@pytest.mark.parametrize("kernel", ["renames"], indirect=True)
def test_after_a_killed_first_deploy_rollback_leaves_production_served(kernel: str) -> None:
    old = payload(SERVED)
    for _ in instants(run_deploy, lambda step: killed_at(step, run_deploy)):
        with contextlib.suppress(UserError):  # no backup yet
            run_rollback()
        assert payload(SERVED) == old
        assert payloads().keys() <= {"model", "model.bak"}


def test_all_is_on_the_disk_itself_before_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    exchange = swap.rename_exchange
    found = []

    def watched(one: Path, other: Path) -> None:
        new = (other, *other.rglob("*"), swap.beside(one, swap.JOURNAL), one.parent)
        found.append([path for path in new if path.stat().st_ino not in synced])
        exchange(one, other)

    monkeypatch.setattr(os, "fsync", lambda handle: synced.add(os.fstat(handle).st_ino))
    monkeypatch.setattr(swap, "rename_exchange", watched)
    run_deploy()
    assert found == [[]]


def test_a_directory_put_in_place_by_hand_after_a_crash_is_not_exchanged_blindly() -> None:
    steps = itertools.count()
    while not SERVED.with_name("model.swap").exists():
        assert killed_at(next(steps), run_deploy)
    shutil.copytree(SERVED.with_name("model.partial"), "copy")
    shutil.rmtree(SERVED.with_name("model.partial"))
    Path("copy").rename(SERVED.with_name("model.partial"))
    assert "were replaced since" in refusal(run_deploy)
