"""A server that we start for one evaluation: SERVE_CMD on a checkpoint, on loopback, stopped afterwards."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from core import endpoint
from core.endpoint import Endpoint
from core.errors import UserError

CHECKPOINT, PORT = "{checkpoint}", "{port}"
LOOK_SECONDS = 1.0
STOP_SECONDS, KILL_SECONDS = 60.0, 10.0
STOP_LOOK_SECONDS = 0.05


@contextlib.contextmanager
def started(command: str, checkpoint: Path, log: Path, minutes: float) -> Iterator[Endpoint]:
    """The server of `command`, in which `{checkpoint}` and `{port}` stand for what they say.

    What it prints goes to `log`. It runs in a process group of its own, which is ended with the block. Raises
    UserError where the command names no checkpoint or port, ends by itself, or does not answer in time.
    """
    for needed in (CHECKPOINT, PORT):
        if needed not in command:
            example = f"vllm serve {CHECKPOINT} --port {PORT}"
            raise UserError(f"SERVE_CMD={command}: {needed} is missing; write it as in '{example}'")
    port = _free_port()
    shell = command.replace(CHECKPOINT, str(checkpoint.absolute())).replace(PORT, str(port))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        process = subprocess.Popen(
            shell, shell=True, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield _wait(process, f"http://127.0.0.1:{port}/v1", log, minutes)
    finally:
        _stop(process)


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path, minutes: float) -> Endpoint:
    print(f"eval: starting SERVE_CMD, its words are in {log}", flush=True)
    last = time.monotonic() + 60 * minutes
    while True:
        with contextlib.suppress(UserError):
            return endpoint.connect(url, "SERVE_CMD")
        if process.poll() is not None:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no word"]
            raise UserError(f"SERVE_CMD ended with code {process.returncode} ({said[-1][:200]}); see {log}")
        if time.monotonic() > last:
            raise UserError(f"SERVE_CMD does not answer after {minutes:g} minutes; see {log}")
        time.sleep(LOOK_SECONDS)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the whole group: a shell dies at once, the server behind it takes its time."""
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        last = time.monotonic() + seconds
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            while time.monotonic() < last:
                process.poll()  # else the shell stays in the group as a zombie
                os.killpg(process.pid, 0)
                time.sleep(STOP_LOOK_SECONDS)
    process.wait()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
