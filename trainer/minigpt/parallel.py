"""Cells in parallel processes, as many as there are cores, one thread each.

A process runs the stage's own module on one cell. What it finished stands on disk when another dies, so the
same command again does only the rest.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from core.errors import MISTAKE, UserError
from core.progress import Progress

POLL_SECONDS = 0.05
Running = list[tuple[str, subprocess.Popen[bytes], IO[bytes]]]


def run(stages: Sequence[str], words: Sequence[str], variants: Mapping[str, Mapping[str, Any]]) -> None:
    """Run these stages one after the other for each variant, `words` with the variant's in their place.

    `variants` maps a label to NAME: value. UserError with the message of the first that fails for a reason of
    the user's; RuntimeError with its output otherwise. Whatever ends it, no process is left.
    """
    waiting, running = list(variants.items()), Running()
    progress = Progress(stages[0].rsplit(".", 1)[-1], len(waiting))
    try:
        while waiting or running:
            while waiting and len(running) < cores():
                label, values = waiting.pop(0)
                running.append((label, *_start(stages, words, values)))
            time.sleep(POLL_SECONDS)
            for one in [r for r in running if r[1].poll() is not None]:
                running.remove(one)
                _check(*one)
                progress.step(note=one[0])
    finally:
        for _, process, _ in running:
            process.terminate()
        for _, process, _ in running:
            process.wait()
    progress.close()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def with_values(words: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """NAME=value words with some values replaced."""
    kept = [word for word in words if word.partition("=")[0] not in values]
    return kept + [f"{name}={value}" for name, value in values.items()]


def _start(
    stages: Sequence[str], words: Sequence[str], values: Mapping[str, Any]
) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    # Closed by _check, when the process has ended.
    output = tempfile.TemporaryFile()  # noqa: SIM115
    command = [sys.executable, "-m", "trainer.minigpt.cell", *stages, *with_values(words, values)]
    # The pipe carries nothing: it closes when this process dies, however that is, and then the cell ends.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
    return process, output


def _check(label: str, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    output.seek(0)
    text = output.read().decode(errors="replace").strip()
    output.close()
    if process.returncode == MISTAKE:
        raise UserError(text.rsplit("error: ", 1)[-1])
    if process.returncode:
        raise RuntimeError(f"{label} ended with {process.returncode}:\n{text}")
