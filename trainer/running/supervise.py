"""The training process as a child: stopped gently by a signal, killed with its parent, its end explained."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_SECONDS = 0.5
Advice = Literal["go on", "stop", "kill"]


@dataclass(frozen=True)
class Ending:
    code: int
    """Exit code; minus the signal's number where one killed it."""
    interrupted: bool
    """Whether Ctrl-C, SIGTERM or a closed terminal asked for it."""
    out_of_memory: bool
    """Whether the kernel killed a process for want of memory meanwhile, presumably this one."""


def run(command: list[str], look: Callable[[], Advice] = lambda: "go on") -> Ending:
    """Run a command until it ends, in a session of its own.

    The first Ctrl-C, SIGTERM or SIGHUP that this process receives becomes a SIGTERM there, which asks the
    training to save and stop; the second kills it. `look` is asked every half second: `stop` sends the
    SIGTERM, `kill` kills. Its standard input is a pipe that closes with this process (`die_with_parent`).
    """
    sys.stdout.flush()  # what was said before comes before what the child says
    parent = os.getpid()
    child = subprocess.Popen(
        command,
        cwd=Path.cwd(),
        stdin=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=(lambda: _set_death_signal(parent)) if sys.platform == "linux" else None,
    )
    requests, kills_before = 0, _oom_kills()

    def ask(number: int, *_: object) -> None:
        nonlocal requests
        requests += 1
        leave_terminal(number)
        if requests == 1:
            print("train: saving and stopping; once more stops at once", file=sys.stderr, flush=True)
            child.terminate()
        else:
            _kill(child)

    asked_by_look = False
    try:
        with handled(dict.fromkeys(STOP_SIGNALS, ask)):
            while child.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(LOOK_SECONDS)
                    break
                advice = look()
                if advice == "kill":
                    _kill(child)
                elif advice == "stop" and not (requests or asked_by_look):
                    asked_by_look = True
                    child.terminate()
    finally:
        if child.poll() is None:
            _kill(child)
        child.wait()
        if child.stdin:
            child.stdin.close()
    killed = child.returncode == -signal.SIGKILL and _oom_kills() > kills_before
    return Ending(child.returncode, interrupted=requests > 0, out_of_memory=killed)


@contextlib.contextmanager
def handled(handlers: dict[int, Callable[..., object]]) -> Iterator[None]:
    """Signal handlers in place for a while, but for signals that are ignored, as nohup has it.

    None outside the main thread, where Python allows none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in handlers}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_terminal(number: int) -> None:
    """After SIGHUP, write nowhere: a terminal that is gone refuses what is written to it."""
    if number == signal.SIGHUP:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            if os.isatty(stream):
                os.dup2(nowhere, stream)


def die_with_parent() -> None:
    """Let this process be killed when the one that started it dies, however it dies.

    On Linux by the kernel; elsewhere by a thread that waits for the end of standard input, the parent's pipe.
    """
    if sys.platform == "linux":
        _set_death_signal(os.getppid())
    else:
        threading.Thread(target=_die_at_end_of_input, daemon=True).start()


def _oom_kills() -> int:
    """How often the kernel has killed for want of memory, in a cgroup or at large; 0 outside Linux."""
    try:
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    except OSError:
        return 0
    return int(counters.get("oom_kill", 0))


def _set_death_signal(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def _die_at_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def _kill(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
