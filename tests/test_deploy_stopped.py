"""Deploy and rollback stopped: whatever instant it is, one whole checkpoint is served.

The faults are those of `tests/planted.py`.
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
    backups,
    checkpoint,
    on_disk,
    payload,
    payloads,
    quantize,
    refusal,
    run_deploy,
    run_deployments,
    run_rollback,
)
from planted import TAKES_SPACE, planted

from core.errors import UserError
from quant.deploying import swap
from quant.deploying.journal import DONE, Journal

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


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.slow)])
def every(request: pytest.FixtureRequest) -> int:
    """Which changes of the disk a deploy is stopped at: all of them in the long run."""
    return request.param


SCENARIOS = {"first": lambda: run_deploy, "second": second_deploy, "start": first_of_all, "back": back}


def beside_the_journal() -> Tree:
    """Every file of the served directory and beside it but the journal, which tells what was undone."""
    found = on_disk(SERVED.parent)
    return {name: data for name, data in found.items() if not name.startswith("model.deployments.json")}


def without_undone(found: dict[str, Any]) -> dict[str, Any]:
    """What `payloads` found, but for the attempts that were undone."""
    return found | {"history": [one for one in found["history"] if one[1] == DONE]}


def killed_at(step: int | str, command: Command) -> bool:
    """Run a command in a process that is killed before its n-th change of the disk, if it has so many, or
    before the first of a name."""
    child = os.fork()
    if not child:
        try:
            with planted(lambda n, name: step in (n, name), lambda: os.kill(os.getpid(), signal.SIGKILL)):
                command()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def at_its_end(command: Command) -> bool:
    """Whether a command that was stopped had already come to its end; a rollback more would go forward."""
    last = Journal(SERVED).last
    return command is run_rollback and last is not None and last.command == "rollback"


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


def instants(command: Command, every: int, stop: Callable[[int], bool]) -> Iterator[tuple[Tree, Any]]:
    """Stop a deploy at every n-th change of the disk, a rollback at each, from the same state each time.

    Yields that state and what a run that nobody stops comes to; the disk is as the stop left it.
    """
    saved = Path("saved")
    shutil.copytree(SERVED.parent, saved)
    before = beside_the_journal()

    def reset() -> None:
        shutil.rmtree(SERVED.parent)
        shutil.copytree(saved, SERVED.parent)

    command()
    wanted = payloads()
    reset()
    every = 1 if command is run_rollback else every
    for step in itertools.count(every // 2, every):
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
def test_killed_at_any_step_and_run_again_it_ends_the_same(scenario: str, kernel: str, every: int) -> None:
    command = SCENARIOS[scenario]()
    old = payload(SERVED)
    for _, wanted in instants(command, every, lambda step: killed_at(step, command)):
        served, journal = payload(SERVED), Journal(SERVED)
        if kernel == "renames" and served is None:  # between two renames, under the journal
            assert journal.open and old in backups()
            served = old
        assert served in (old, wanted["model"], payload(PRODUCTION))
        if not at_its_end(command):
            command()
        assert payloads() == wanted


@pytest.mark.parametrize("how", ["full disk", "one failure", "Ctrl-C"])
@pytest.mark.parametrize("scenario", ["first", "second", "back"])
def test_stopped_at_any_step_it_leaves_all_as_it_was_or_the_new_one_served(
    scenario: str, how: str, kernel: str, every: int
) -> None:
    command = SCENARIOS[scenario]()
    for before, wanted in instants(command, every, lambda step: stopped_at(step, command, how)):
        if payload(SERVED) != wanted["model"]:
            assert beside_the_journal() == before
        if not at_its_end(command):
            command()
        assert without_undone(payloads()) == wanted


@pytest.mark.parametrize("kernel", ["renames"], indirect=True)
def test_after_a_killed_first_deploy_rollback_leaves_production_served(kernel: str, every: int) -> None:
    old = payload(SERVED)
    for _ in instants(run_deploy, every, lambda step: killed_at(step, run_deploy)):
        with contextlib.suppress(UserError):  # no backup yet
            run_rollback()
        assert payload(SERVED) == old
        assert payloads().keys() == {"model", "backups", "history"}


@pytest.mark.parametrize("kernel", ["renameat2", "renames"], indirect=True)
def test_looking_at_the_deployments_finishes_what_was_killed(kernel: str, every: int) -> None:
    old = payload(SERVED)
    for _, wanted in instants(run_deploy, every, lambda step: killed_at(step, run_deploy)):
        committed = Journal(SERVED).entries
        run_deployments()
        if committed:
            assert payloads() == wanted
        else:
            assert payloads() == {"model": old, "backups": [], "history": []}


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


def test_a_journal_that_cannot_be_written_is_as_if_nothing_had_been() -> None:
    before, replaced = payloads(), itertools.count()

    def fail() -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    # The first file that is replaced is the copy's manifest.
    with planted(lambda _, name: name == "replace" and next(replaced) == 1, fail), pytest.raises(OSError):
        run_deploy()
    assert payloads() == before
    assert run_deploy() == 0


@pytest.mark.parametrize("name", ["model", "model.partial"])
def test_a_directory_put_in_place_by_hand_after_a_crash_is_not_exchanged_blindly(name: str) -> None:
    assert killed_at("exchange", run_deploy)
    replaced = SERVED.with_name(name)
    shutil.copytree(replaced, "copy")
    shutil.rmtree(replaced)
    Path("copy").rename(replaced)
    for command in (run_deploy, run_deployments):
        assert "were replaced since" in refusal(command)
    if name == "model":
        assert "were replaced since" in refusal(run_rollback)
    else:  # what comes back is in its place
        assert run_rollback() == 0
        assert payloads()["history"] == [("deploy", "undone")]
