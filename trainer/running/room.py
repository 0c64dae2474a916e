"""Room for training: production stops before, and starts again however the training ends."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from core import hooks
from core.errors import UserError
from core.settings import TrainSettings
from trainer.checks.check import size
from trainer.planning.memory import Place
from trainer.running import memory_guard
from trainer.running.supervise import STOP_SIGNALS, handled, leave_terminal

WAIT_SECONDS = 180.0
"""A server of 100 GB takes a while to die, and its memory longer to be free on a GB10."""
LOOK_SECONDS = 1.0


@contextlib.contextmanager
def made(settings: TrainSettings, needed: int) -> Iterator[None]:
    """Run STOP_CMD and wait until `needed` bytes are free; START_CMD after the block, whatever ends it.

    SIGTERM and a closed terminal end the block as Ctrl-C does; during START_CMD all three are held back.
    UserError where a command fails or the memory stays taken.
    """
    with handled(dict.fromkeys((signal.SIGTERM, signal.SIGHUP), _interrupt)):
        try:
            hooks.run("STOP_CMD", settings.stop_cmd)
            if settings.stop_cmd:
                wait_until_free(needed)
            yield
        finally:
            with handled(dict.fromkeys(STOP_SIGNALS, _hold_back)):
                _start(settings.start_cmd)


def wait_until_free(
    needed: int, free: Callable[[], int] = lambda: free_memory(), seconds: float = WAIT_SECONDS
) -> None:
    """Wait until `needed` bytes are free, saying so; UserError where they are not within `seconds`."""
    start, said = time.monotonic(), False
    while (now := free()) < needed:
        if time.monotonic() - start > seconds:
            raise UserError(
                f"{size(now)} of memory are free {seconds:.0f} s after STOP_CMD, training takes "
                f"{size(needed)}: stop what else holds it (nvidia-smi, top), or lower BATCH_SIZE"
            )
        if not said:
            print(f"train: waiting for {size(needed)} of memory, {size(now)} are free", flush=True)
            said = True
        time.sleep(LOOK_SECONDS)


def free_memory() -> int:
    """Bytes that a training can have: a GPU's own memory where there is one, else the system's."""
    own = _gpu_memory()
    return own if own else memory_guard.look().available


def place() -> Place:
    """Where tensors will live; torch is not asked, for it would take memory itself."""
    own = _gpu_memory()
    return "cpu" if own is None else "gpu" if own else "unified"


def _gpu_memory() -> int | None:
    """Free bytes of the fullest GPU; 0 where it shares the system's memory, None without a GPU."""
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    free = [line.strip() for line in shown.splitlines() if line.strip()]
    if not free:
        return None
    # A GPU without memory of its own says [N/A].
    return min(int(line) << 20 if line.isdigit() else 0 for line in free)


def _start(command: str) -> None:
    """START_CMD; where it fails while another error is on its way, that one goes on and this one is said."""
    another = sys.exc_info()[1]
    try:
        hooks.run("START_CMD", command)
    except UserError as error:
        if another is None:
            raise
        print(f"error: {error}", file=sys.stderr, flush=True)


def _interrupt(number: int, *_: object) -> None:
    leave_terminal(number)
    raise KeyboardInterrupt


def _hold_back(number: int, *_: object) -> None:
    leave_terminal(number)
    print("train: starting production again first", file=sys.stderr, flush=True)
