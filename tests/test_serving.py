"""SERVE_CMD: a server that the evaluation starts answers, and is gone afterwards; one that fails says why."""

import socket
import sys
import time
from pathlib import Path

import pytest

from core.errors import UserError
from eval.models import serving

STAND_IN = """
import sys, time
sys.path.insert(0, {root!r})
from http.server import ThreadingHTTPServer
from tests import model_server
checkpoint, port = sys.argv[1], int(sys.argv[2])
print("serving", checkpoint, flush=True)
real = ThreadingHTTPServer
model_server.ThreadingHTTPServer = lambda address, handler: real(("127.0.0.1", port), handler)
with model_server.serve(model_server.echo):
    time.sleep(600)
"""
ROOT = str(Path(__file__).parents[1])


@pytest.fixture
def command(tmp_path: Path) -> str:
    """A stand-in for `vllm serve`, which serves in a child of its shell."""
    script = tmp_path / "serve.py"
    script.write_text(STAND_IN.format(root=ROOT), encoding="utf-8")
    return f"{sys.executable} {script} {{checkpoint}} {{port}} && true"


def is_open(url: str) -> bool:
    port = int(url.rsplit(":", 1)[1].partition("/")[0])
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_the_checkpoint_is_served_during_the_block_and_no_longer(tmp_path: Path, command: str) -> None:
    log = tmp_path / "serve.log"
    with serving.started(command, tmp_path, log, minutes=1) as server:
        assert is_open(server.url)
        assert server.model == "stand-in"
        assert f"serving {tmp_path}" in log.read_text()
    assert not is_open(server.url)


def test_an_error_and_ctrl_c_end_the_server_too(tmp_path: Path, command: str) -> None:
    for error in (UserError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)), serving.started(command, tmp_path, tmp_path / "log", 1) as server:
            raise error
        assert not is_open(server.url)


def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "STOP_SECONDS", 0.3)
    stubborn = (
        f"trap '' TERM; {sys.executable} -c 'import time; time.sleep(600)' {{checkpoint}} {{port}}; sleep 600"
    )
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.05)
    started = time.monotonic()
    with (
        pytest.raises(UserError, match=r"does not answer after 0\.005 minutes"),
        serving.started(stubborn, tmp_path, tmp_path / "log", minutes=0.005),
    ):
        raise AssertionError("never")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "vllm serve {checkpoint}",
            r"SERVE_CMD=vllm serve .*: {port} is missing; write it as in 'vllm serve",
        ),
        ("vllm serve --port {port}", "{checkpoint} is missing"),
        (
            "echo no GPU found >&2; false {checkpoint} {port}",
            r"ended with code 1 \(no GPU found\); see .*log",
        ),
    ],
)
def test_a_command_that_cannot_serve_is_one_line(tmp_path: Path, command: str, message: str) -> None:
    with (
        pytest.raises(UserError, match=message) as caught,
        serving.started(command, tmp_path, tmp_path / "log", 1),
    ):
        pass
    assert "\n" not in str(caught.value)
