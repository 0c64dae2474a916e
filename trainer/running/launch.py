"""The command that trains: one process here, or several of them here and on other machines, by torchrun.

Everything a library reads from the environment when it is first imported is set here, since the training is
a process of its own.
"""

import contextlib
import os
import socket
import sys

from core.errors import UserError
from core.settings import TrainSettings
from trainer import backends
from trainer.job import Task

PORT = 29400
"""Where the machines meet on MASTER, if that names no port; torchrun's own default."""
LOOPBACK = "127.0.0.1"
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0",
}
"""The base lies on the disk. Rows of many lengths would leave holes in the memory: in a GPU's, and in a
CPU's, where oneDNN keeps what it compiled for every length amid what each step frees (docs/training.md)."""


def command(settings: TrainSettings, task: Task) -> list[str]:
    """The command line that lets `trainer.worker` do a task, its environment in front (`env NAME=value`).

    UserError where the settings of several machines do not fit together.
    """
    variables = ENVIRONMENT | backends.environment(task.backend, settings.out_dir)
    worker = ["trainer.worker", str(task.write())]
    if settings.nodes * settings.nproc == 1:
        return ["env", *_pairs(variables), sys.executable, "-m", *worker]
    if settings.nodes == 1:
        host, port = LOOPBACK, _free_port()
        # Without it gloo and NCCL look for the address of the machine's name.
        variables |= {"GLOO_SOCKET_IFNAME": _loopback(), "NCCL_SOCKET_IFNAME": _loopback()}
    else:
        host, port = _meeting_place(settings)
    if "OMP_NUM_THREADS" not in os.environ:  # torchrun would say that it sets it to 1
        variables["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 2) // 2 // settings.nproc))
    torchrun = {
        "nnodes": settings.nodes,
        "nproc-per-node": settings.nproc,
        "node-rank": settings.node_rank,
        "master-addr": host,
        "master-port": port,
    }
    options = [f"--{name}={value}" for name, value in torchrun.items()]
    return [
        "env",
        *_pairs(variables),
        sys.executable,
        "-m",
        "trainer.running.launch",
        *options,
        "-m",
        *worker,
    ]


def main(words: list[str]) -> int:
    """torchrun with these words, without its report of a failed process: that one has said why itself."""
    import logging

    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        run.main(words)
    except ChildFailedError as failed:
        return failed.get_first_failure()[1].exitcode
    except SignalException:
        return 1
    return 0


def _meeting_place(settings: TrainSettings) -> tuple[str, int]:
    host, _, port = settings.master.partition(":")
    if not host:
        raise UserError(f"NODES={settings.nodes}: MASTER is blank, expected the first machine's address")
    if settings.node_rank >= settings.nodes:
        raise UserError(f"NODE_RANK={settings.node_rank}: expected 0 to {settings.nodes - 1} (NODES - 1)")
    with contextlib.suppress(ValueError):
        return host, int(port or PORT)
    raise UserError(f"MASTER={settings.master}: expected host or host:port")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        return free.getsockname()[1]


def _loopback() -> str:
    return "lo0" if sys.platform == "darwin" else "lo"


def _pairs(variables: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in variables.items()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
