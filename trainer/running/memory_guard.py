"""Memory that can still be had, of machine and cgroup, and a guard that ends a run before it is gone.

A machine whose GPU shares the system's memory (GB10) freezes at about 112 of 119 GiB, without an OOM kill:
so a run saves and stops when less than a tenth of the memory can be had, and is killed below 0.07, of the
machine as of a container's limit. `train.memory_reserve` of the profile sets another share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.running.supervise import Advice

KILL_SHARE = 0.7
"""Of the reserve; below it there may be no time left to save."""
CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
NO_LIMIT = 1 << 60
"""cgroup v1 says 2^63 less a page where it means none."""


@dataclass(frozen=True)
class Memory:
    """Bytes."""

    available: int
    total: int


def look() -> Memory:
    """The scarcer one of the machine's memory and of what the cgroup allows."""
    return min((machine(), *cgroups()), key=lambda memory: memory.available)


def machine() -> Memory:
    """MemAvailable and MemTotal, or what the system calls them."""
    import psutil

    found = psutil.virtual_memory()
    return Memory(found.available, found.total)


def cgroups(own: Path = OWN, root: Path = CGROUPS) -> list[Memory]:
    """What each cgroup with a limit that holds this process allows, v1 and v2; none outside Linux.

    Cached files count as available: the kernel drops them before it kills.
    """
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = root / "memory" if controllers else root
        inside = mount / path.strip("/")
        # In a container of its own namespace the path is the host's, and the limit at the mount.
        for directory in [d for d in (inside, *inside.parents) if d == mount or mount in d.parents]:
            memory = _limited(directory, v2=not controllers)
            if memory:
                found.append(memory)
    return found


def _limited(directory: Path, *, v2: bool) -> Memory | None:
    names = ("memory.max", "memory.current") if v2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    cached = ("active_file", "inactive_file") if v2 else ("total_active_file", "total_inactive_file")
    try:
        limit, used = ((directory / name).read_text().strip() for name in names)
        statistics = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    if limit == "max" or int(limit) >= NO_LIMIT:
        return None
    files = sum(int(statistics.get(name, 0)) for name in cached)
    return Memory(max(0, int(limit) - int(used) + files), int(limit))


class Guard:
    """Asked while a run goes on (`supervise.run`): stop below a share of the memory, kill below 0.7 of it."""

    def __init__(self, reserve: float, look: Callable[[], Memory] = look) -> None:
        self.reserve, self.look = reserve, look
        self.lowest: Memory | None = None
        """What was found when the guard first asked to stop, or killed."""
        self.killed = False

    def __call__(self) -> Advice:
        now = self.look()
        if now.available >= self.reserve * now.total:
            return "go on"
        self.lowest = min(self.lowest or now, now, key=lambda memory: memory.available)
        if now.available >= KILL_SHARE * self.reserve * now.total:
            return "stop"
        self.killed = True
        return "kill"
