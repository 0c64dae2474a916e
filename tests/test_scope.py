"""The training in a systemd scope: a stand-in for systemd-run, in every state that the real one can be in."""

import shutil
import subprocess

import pytest

from trainer.running.scope import limited

COMMAND = ["echo", "trained"]


@pytest.fixture
def systemd_run(tmp_path, monkeypatch):
    """Puts a stand-in that notes its words and runs the command after its options, or fails."""

    def put(works: bool) -> None:
        tool = tmp_path / "systemd-run"
        run = 'while [[ $1 == -* ]]; do shift; done; exec "$@"' if works else "exit 1"
        tool.write_text(f'#!/bin/bash\necho "$@" >> {tmp_path}/words\n{run}\n')
        tool.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return put


def test_with_a_limit_the_command_runs_in_a_scope_of_that_size(systemd_run, tmp_path):
    systemd_run(works=True)
    done = subprocess.run(limited(COMMAND, 90), capture_output=True, text=True, check=True)
    assert done.stdout == "trained\n"
    tried, run = (tmp_path / "words").read_text().splitlines()
    assert "--property=MemoryMax=90000000000 --property=MemorySwapMax=0" in run
    assert run.endswith("echo trained")
    assert tried == run.replace("echo trained", "true")


def test_without_a_limit_or_a_user_s_systemd_it_runs_as_it_is(systemd_run, monkeypatch):
    assert limited(COMMAND, 0) == COMMAND
    systemd_run(works=False)
    assert limited(COMMAND, 90) == COMMAND
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert limited(COMMAND, 90) == COMMAND
