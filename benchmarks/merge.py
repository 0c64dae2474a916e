"""`python -m benchmarks.merge [GB=5.8] [PAIRS=9] [SCRATCH=<dir>]`: the merge's speed and memory against `cp`.

A synthetic checkpoint with the real model's tensors is merged and copied (`cp -r`, then fsync of every
file) by turns, so that a busy machine slows both alike; the medians are of the ratios of neighbours. Cold:
the source is not in the page cache; warm: all of it is. A merge is a process of its own, measured from the
plan to the renamed artefact, digests included; the start of Python and torch stands apart, so does the parity
probe. PEFT's `merge_and_unload` and `save_pretrained` is timed once, likewise without its imports. Needs
GB * 3.5 of disk.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import synthetic
from core import artifacts, config, shards


def in_child(work: Callable[..., Any], *args: Any) -> Any:
    """Run `work` in a process of its own, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def merge(base: Path, adapter: Path, target: Path) -> dict[str, float]:
    """Merge as `make merge` does, the parity probe apart; seconds, seconds of start-up, peak MB."""
    before = time.perf_counter()
    import torch  # noqa: F401  (part of the start-up)

    from quant import lora
    from quant.merge import write
    from quant.merging import plan

    start, cpu = time.perf_counter(), cpu_seconds()
    tensors, read = shards.read_checkpoint(base), lora.read(adapter)
    ops = plan.make(read, tensors)
    lora.check_finite(read)
    with artifacts.create(
        target, kind="checkpoint", profile="none", run="none", settings={}, inputs={}, resume=True
    ) as draft:
        write(base, tensors, ops, draft)
    seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
    return {"seconds": seconds, "cpu": cpu, "startup": start - before, "peak_mb": peak_mb()}


def peft(base: Path, adapter: Path, target: Path) -> dict[str, float]:
    """The same by PEFT; what it writes lacks the MTP tensors."""
    import torch  # noqa: F401
    from peft import PeftModel
    from transformers import Qwen3_5MoeForConditionalGeneration

    start = time.perf_counter()
    model: Any = Qwen3_5MoeForConditionalGeneration.from_pretrained(str(base), dtype="auto")
    PeftModel.from_pretrained(model, str(adapter)).merge_and_unload().save_pretrained(str(target))
    sync(target)
    return {"seconds": time.perf_counter() - start, "peak_mb": peak_mb()}


def copy(base: Path, target: Path) -> float:
    """Seconds of `cp -r` and fsync."""
    start = time.perf_counter()
    subprocess.run(["cp", "-r", str(base), str(target)], check=True)
    sync(target)
    return time.perf_counter() - start


def sync(directory: Path) -> None:
    """fsync every file of a directory, and the directory."""
    for path in [*directory.iterdir(), directory]:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def prepare(base: Path, *, warm: bool) -> None:
    """Bring the base into the page cache, or out of it, with nothing left to write."""
    os.sync()
    for file in base.iterdir():
        with file.open("rb") as handle:
            if warm:
                while handle.read(1 << 24):
                    pass
            else:
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_gb() -> float:
    """The page cache, in GB."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["Cached"].split()[0]) * 1024 / 1e9


def cpu_seconds() -> float:
    """User and system time of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


def peak_mb() -> float:
    """Peak resident memory of this process, in MB; ru_maxrss would count its parent's as well."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024 / 1e6


def paired(base: Path, adapter: Path, scratch: Path, pairs: int, *, warm: bool) -> dict[str, list[float]]:
    """Seconds of both, ratios and page cache growth of `pairs` neighbouring runs, in alternating order."""
    found: dict[str, list[float]] = {
        "cp": [],
        "merge": [],
        "ratio": [],
        "cp cpu": [],
        "cpu": [],
        "startup": [],
        "peak_mb": [],
        "cache": [],
    }
    for number in range(pairs):
        once = {}
        for what in ("cp", "merge") if number % 2 else ("merge", "cp"):
            target = scratch / what
            prepare(base, warm=warm)
            cached = cached_gb()
            if what == "cp":
                cpu = cpu_seconds()
                once["cp"] = copy(base, target)
                found["cp cpu"].append(cpu_seconds() - cpu)
            else:
                once |= in_child(merge, base, adapter, target)
                found["cache"].append(cached_gb() - cached)
            shutil.rmtree(target)
        found["cp"].append(once["cp"])
        found["merge"].append(once["seconds"])
        found["ratio"].append(once["seconds"] / once["cp"])
        for name in ("cpu", "startup", "peak_mb"):
            found[name].append(once[name])
    return found


def line(what: str, values: list[float], unit: str = "") -> str:
    """Median and range."""
    return f"{what} {statistics.median(values):.2f}{unit} ({min(values):.2f}-{max(values):.2f})"


def main(words: list[str]) -> None:
    """Print the tables, then the JSON line."""
    given = {"GB": "5.8", "PAIRS": "9", "SCRATCH": ""} | config.split_words(words)
    pairs = int(given["PAIRS"])
    with tempfile.TemporaryDirectory(dir=given["SCRATCH"] or None) as folder:
        scratch = Path(folder)
        base, dense, experts = (scratch / name for name in ("base", "dense", "experts"))
        synthetic.write(base, float(given["GB"]))
        synthetic.write_adapter(dense, base, experts=False)
        synthetic.write_adapter(experts, base, experts=True)
        size = sum(file.stat().st_size for file in base.iterdir()) / 1e9
        load = os.getloadavg()[0]
        print(
            f"{size:.2f} GB, {os.cpu_count()} cores, load {load:.1f} before; {pairs} pairs: medians, ranges"
        )
        result: dict[str, float] = {}
        for mode in ("cold", "warm"):
            found = paired(base, dense, scratch, pairs, warm=mode == "warm")
            print(f"{mode}: {line('cp + fsync', found['cp'], ' s')}, {line('merge', found['merge'], ' s')},"
                  f" {line('ratio', found['ratio'])}; {line('start of torch', found['startup'], ' s')},"
                  f" load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
            print(
                f"      CPU: {line('cp', found['cp cpu'], ' s')}, {line('merge', found['cpu'], ' s')}",
                flush=True,
            )
            result[f"ratio_{mode}"] = statistics.median(found["ratio"])
            if mode == "cold":
                result["rss_dense_mb"] = max(found["peak_mb"])
                result["cache_growth_gb"] = statistics.median(found["cache"])
        stacked = in_child(merge, base, experts, scratch / "stacked")
        result["rss_experts_mb"] = stacked["peak_mb"]
        print(f"adapter on the experts: merge {stacked['seconds']:.1f} s, {stacked['peak_mb']:.0f} MB")
        shutil.rmtree(scratch / "stacked")
        prepare(base, warm=True)
        theirs = in_child(peft, base, dense, scratch / "peft")
        result |= {"peft_seconds": theirs["seconds"], "peft_mb": theirs["peak_mb"]}
        print(f"PEFT, warm: {theirs['seconds']:.1f} s, {theirs['peak_mb']:.0f} MB, MTP tensors lost")
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
