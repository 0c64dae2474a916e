"""vLLM on the CPU, started and stopped as a production service is: the START_CMD and STOP_CMD of the tests.

    python -m tests.serving.server start <checkpoint> <port> <folder>
    python -m tests.serving.server stop <folder>

`start` comes back at once, as `docker compose start` does; `<folder>` holds the server's process id and log.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VLLM = ROOT / ".venv-serve/bin/vllm"
PID, LOG = "vllm.pid", "vllm.log"
CONTEXT = 2048
"""Tokens of prompt and answer, for the tiny model."""
LIKE_PRODUCTION = (
    "--enable-auto-tool-choice",
    "--tool-call-parser=qwen3_coder",
    "--reasoning-parser=qwen3",
    '--speculative-config={"method":"mtp","num_speculative_tokens":1}',
)
FOR_CPUS = (
    "--enforce-eager",
    "--no-enable-prefix-caching",  # with MTP on a CPU the first request would need a Triton kernel
    f"--max-model-len={CONTEXT}",
    "--max-num-seqs=4",
)
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(Path(__file__).resolve().parent),  # the plugin stand_ins
}


def start(checkpoint: Path, port: int, folder: Path) -> None:
    """Start a server of `checkpoint` on loopback; it answers /health once the weights are loaded."""
    command = [
        VLLM,
        "serve",
        checkpoint,
        "--host=127.0.0.1",
        f"--port={port}",
        *LIKE_PRODUCTION,
        *FOR_CPUS,
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("ab") as log:
        child = subprocess.Popen(
            command, env=os.environ | ENVIRONMENT, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    (folder / PID).write_text(str(child.pid))


def stop(folder: Path, seconds: float = 30) -> None:
    """Stop the server and every process that it started; nothing to do where none runs."""
    file = folder / PID
    if not file.exists():
        return
    group = int(file.read_text())
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal_number)
        until = time.monotonic() + seconds
        while _runs(group) and time.monotonic() < until:
            time.sleep(0.1)
    file.unlink()


def _runs(group: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(group, os.WNOHANG)
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["start", checkpoint, port, folder]:
            start(Path(checkpoint), int(port), Path(folder))
        case ["stop", folder]:
            stop(Path(folder))
        case _:
            sys.exit(__doc__)
