"""Deploy with a server: stopped and started by shell commands, asked over HTTP, back at once when it is ill.

The server is `tests/served_stand_in.py`, which loads what lies in the directory when it starts.
"""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from deploying import (
    NVFP4,
    SERVED,
    TENSORS,
    WORDS,
    StandIn,
    artifact,
    backups,
    checkpoint,
    judge,
    payload,
    payloads,
    quantize,
    refusal,
    run_deploy,
    run_deployments,
    run_rollback,
)

from core import shards, verdicts
from core.errors import UserError
from quant.deploying import health
from quant.deploying.journal import Journal

ROOT = Path(__file__).parents[1]


def run_code(*lines: str) -> "subprocess.Popen[str]":
    """A process of its own that runs these lines, `core.errors` at hand; Ctrl-C reaches it."""
    code = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from core import errors"
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join([code, *lines])],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def test_there_and_back_the_server_holds_what_lies_in_the_directory(
    stand_in: StandIn, kernel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = payload(SERVED), payload(NVFP4)
    assert run_deploy(*stand_in.words) == 0
    said = capsys.readouterr().out
    assert re.search(
        r"deploy: healthy: ready after \d+ s, chat and tool call right, .* tokens/s, 30 drafts, 100%", said
    )
    assert (stand_in.model, payload(SERVED), backups()) == ("checkpoint 2", new, [old])
    assert run_rollback(*stand_in.words) == 0
    assert (stand_in.model, payload(SERVED), backups()) == ("checkpoint 1", old, [new])
    assert f"make rollback PROFILE=tiny DEPLOY_DIR={SERVED} SERVER={stand_in.url}" in said


@pytest.mark.parametrize(
    ("mood", "message"),
    [
        ("dead", r"did not come up within 3 s \(.*refused"),
        ("silent", r"did not come up within 3 s"),
        ("crash", r"asked 'Adiós' the server breaks off"),
        ("empty", r"answers '': it is empty"),
        ("bangs", r"it repeats '!' without end"),
        ("broken", r"40 of its 40 characters are unreadable"),
        ("unparsed", r"leaves the tool call in the text, unparsed; is it started with --enable-auto-tool"),
        ("no parser", r"HTTP 400, .*; is it started with --enable-auto-tool-choice --tool-call-parser"),
        ("other tool", r"calls 'mcp__other__tool', expected 'mcp__clock__set_alarm'"),
        ("no arguments", r"a call that is none \('time' is a required property\)"),
        ("half arguments", r"a call that is none \(Expecting value"),
        ("no call", r"calls no tool but says '¡Adiós!'"),
        ("no drafts", r"drafts no tokens; is it started with --speculative-config"),
    ],
)
def test_an_ill_server_gets_the_old_checkpoint_back_at_once(
    stand_in: StandIn, mood: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    quantize(2, mood=mood)
    old = payloads()
    assert run_deploy(*stand_in.words) == 1
    assert payloads() == old | {"history": [("deploy", "undone")]}
    assert stand_in.model == "checkpoint 1"
    *_, last = capsys.readouterr().out.splitlines()
    assert "deploy: undone, " in last and re.search(message, last)
    assert run_deployments(*stand_in.words) == 0
    assert re.search(rf"deploy    run one, .*; undone: .*{message}", capsys.readouterr().out)


def test_a_backup_that_is_ill_is_not_kept_in_service(stand_in: StandIn) -> None:
    quantize(2, mood="bangs")
    assert run_deploy() == 0  # nobody asks
    quantize(3)
    assert run_deploy(*stand_in.words) == 0
    before = payloads()
    assert run_rollback(*stand_in.words) == 1
    assert payloads() == before | {"history": [*before["history"], ("rollback", "undone")]}
    assert stand_in.model == "checkpoint 3"


def test_less_speed_is_told_and_recorded_but_no_fault(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_deploy(*stand_in.words) == 0
    quantize(3, mood="slow")
    assert run_deploy(*stand_in.words) == 0
    assert re.search(r"SLOWER than the last one, [\d.]+ tokens/s: make rollback", capsys.readouterr().out)
    first, second = (entry.health or {} for entry in Journal(SERVED).entries)
    assert second["tokens_per_second"] < 0.8 * first["tokens_per_second"]


def test_a_stop_that_fails_changes_nothing_and_leaves_the_server_running(stand_in: StandIn) -> None:
    before = payloads()
    with pytest.raises(UserError, match="STOP_CMD failed with exit code 3"):
        run_deploy(*stand_in.words[:1], "STOP_CMD=exit 3", *stand_in.words[2:])
    assert payloads() == before | {"history": [("deploy", "undone")]}
    assert stand_in.model == "checkpoint 1"


def test_a_server_that_goes_on_after_its_stop_does_not_pass_for_the_new_one(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MOST_SECONDS_TO_STOP", 0.1)
    before = payloads()
    with pytest.raises(UserError, match="still answers after STOP_CMD: is it the server that this stops"):
        run_deploy(*stand_in.words[:1], "STOP_CMD=true", *stand_in.words[2:])
    assert payloads() == before | {"history": [("deploy", "undone")]}
    assert stand_in.model == "checkpoint 1"


def test_a_start_that_fails_for_the_new_one_is_undone(stand_in: StandIn) -> None:
    before = payloads()
    start = f"START_CMD=grep -q 'deploy' no-such-file || [ -e srv/model.partial ] || exit 4; {stand_in.start}"
    assert run_deploy(*stand_in.words[:2], start) == 1
    assert payloads() == before | {"history": [("deploy", "undone")]}


def test_without_an_address_it_says_that_nothing_was_checked(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_deploy(*stand_in.words[1:]) == 0
    assert "SERVER is blank: the server's health was not checked" in capsys.readouterr().out
    assert Journal(SERVED).entries[0].health is None


@pytest.mark.parametrize(
    ("url", "message"),
    [("localhost:8000", "no address"), ("http://127.0.0.1:{port}", "should end in /v1")],
)
def test_an_address_that_cannot_be_right_is_refused_before_anything(
    stand_in: StandIn, url: str, message: str
) -> None:
    assert message in refusal(lambda: run_deploy(f"SERVER={url.format(port=stand_in.port)}"))


def test_ctrl_c_while_the_server_starts_is_gone_on_with_by_the_next_command(stand_in: StandIn) -> None:
    words = [*WORDS, *stand_in.words[:2], f"START_CMD=sleep 0.3; {stand_in.start}"]
    child = run_code("from quant import deploy", f"errors.run(lambda _: deploy.main({words!r}))")
    assert child.stdout
    assert any("swapped in" in line for line in child.stdout)
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    rest, _ = child.communicate(timeout=20)
    assert child.returncode == 2 and "interrupted" in rest
    assert run_deployments(*stand_in.words) == 0
    assert payloads().keys() == {"model", "backups", "history"}
    assert stand_in.model == f"checkpoint {(SERVED / 'model.safetensors').read_bytes()[-1]}"


def test_rollback_undoes_a_deploy_that_was_killed_while_the_server_was_asked(stand_in: StandIn) -> None:
    old = payload(SERVED)
    quantize(2, mood="silent")
    child = os.fork()
    if not child:
        run_deploy(*stand_in.words)
        os._exit(0)
    while not (Journal(SERVED).open and Journal(SERVED).entries[-1].started):
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert payload(SERVED) == payload(NVFP4)
    assert run_rollback(*stand_in.words) == 0
    assert payloads() == {"model": old, "backups": [], "history": [("deploy", "undone")]}
    assert stand_in.model == "checkpoint 1"


def test_two_deploys_at_once_are_one(stand_in: StandIn) -> None:
    old, codes = payload(SERVED), list[int | None]()
    children = [
        run_code(
            "from quant import deploy", f"errors.run(lambda _: deploy.main({[*WORDS, *stand_in.words]!r}))"
        )
        for _ in range(2)
    ]
    waiting = [threading.Thread(target=child.communicate) for child in children]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    codes = sorted(child.returncode for child in children)
    assert codes in ([0, 0], [0, 2])  # the later one was up to date, or refused
    assert payloads()["history"] == [("deploy", "done")]
    assert (payload(SERVED), backups()) == (payload(NVFP4), [old])
    assert stand_in.model == "checkpoint 2"


@pytest.mark.slow
def test_three_gigabytes_are_swapped_within_a_second(stand_in: StandIn) -> None:
    """All that takes long, copy and digests, comes before the server is stopped; the syncs are real."""
    size = 3_000_000_000
    for path in (SERVED, Path("new")):
        checkpoint(path, 1, (*TENSORS, "large.weight"))
        entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
        header = {"large.weight": entry}
        for number, name in enumerate(TENSORS):
            offsets = [size + 8 * number, size + 8 * number + 8]
            header[name] = {"dtype": "U8", "shape": [8], "data_offsets": offsets}
        text = json.dumps(header).encode()
        with (path / shards.SINGLE).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + size + 8 * len(TENSORS))
    with artifact(NVFP4) as draft:
        draft.path.rmdir()
        Path("new").rename(draft.path)
        (draft.path / "tokenizer.json").write_text('{"version": "1.0"}')
    judge(verdicts.IMPROVES)
    words = [*WORDS, *stand_in.words]
    child = run_code("from quant import deploy", f"errors.run(lambda _: deploy.main({words!r}))")
    said, _ = child.communicate()
    assert child.returncode == 0, said
    (entry,) = Journal(SERVED).entries
    print(
        f"swapped in {entry.swap_seconds} s; down {entry.down_seconds} s with the stand-in's start and health"
    )
    assert entry.swap_seconds is not None and entry.swap_seconds < 1
    assert (SERVED / shards.SINGLE).stat().st_size > size
