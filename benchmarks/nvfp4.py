"""`python -m benchmarks.nvfp4 [GB=2.0] [RUNS=3] [SCRATCH=<dir>]`: QUANT=delta against merge + oneshot.

A synthetic checkpoint with the real model's tensors stands for the base, llm-compressor's NVFP4 of it for
production. delta writes production with an adapter in it; the other side merges the adapter and calibrates
the result on 16 samples of 128 tokens. Every run is a process of its own, timed from the plan to the renamed
artefact, imports and the merge's parity probe apart. The two checkpoints are compared tensor by tensor. The
quantisers, ours and compressed-tensors', run by turns on one core; the figures are MB of BF16 a CPU second.
Needs GB * 4 of disk.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import synthetic
from benchmarks.merge import cpu_seconds, in_child, merge, peak_mb, prepare
from core import artifacts, config, profile, shards

PROFILE = replace(profile.load("qwen3_6_35b_a3b"), name="none")
SAMPLES, TOKENS = 16, 128
ROWS, COLUMNS = 4096, 2048


def oneshot(source: Path, base: Path, target: Path, samples: int) -> dict[str, float]:
    """Calibrate and quantise `source` by llm-compressor; seconds, CPU seconds, peak MB."""
    import numpy as np
    import torch
    from llmcompressor.entrypoints.oneshot import oneshot as _  # noqa: F401  (part of the start-up)
    from llmcompressor.utils.dev import load_context  # noqa: F401
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForImageTextToText, PreTrainedTokenizerFast  # noqa: F401

    from quant import nvfp4
    from quant.quantising.oneshot import compress

    torch.set_num_threads(os.cpu_count() or 1)
    random = np.random.default_rng(100)
    ids = random.integers(0, synthetic.VOCAB, (samples, TOKENS)).tolist()
    words = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    start, cpu = time.perf_counter(), cpu_seconds()
    with artifacts.create(
        target, kind="checkpoint", profile="none", run="none", settings={}, inputs={}
    ) as draft:
        compress(
            source,
            shards.read_checkpoint(source),
            draft.path,
            ids,
            quant=nvfp4.scheme(PROFILE),
            layers_prefix=PROFILE.layers_prefix,
            tokenizer=PreTrainedTokenizerFast(tokenizer_object=words),
        )
        nvfp4.finish(source, draft.path, base=base, mtp=True)
    return {"seconds": time.perf_counter() - start, "cpu": cpu_seconds() - cpu, "peak_mb": peak_mb()}


def delta(production: Path, base: Path, adapter: Path, target: Path) -> dict[str, float]:
    """The same weights by QUANT=delta."""
    import torch  # noqa: F401  (part of the start-up)

    from quant.delta import Job, quantize

    job = Job(production=production, base=base, adapter=adapter, profile=PROFILE, keep_tuned=False)
    start, cpu = time.perf_counter(), cpu_seconds()
    with artifacts.create(
        target, kind="checkpoint", profile="none", run="none", settings={}, inputs={}, resume=True
    ) as draft:
        quantize(job, draft, force=False)
    return {"seconds": time.perf_counter() - start, "cpu": cpu_seconds() - cpu, "peak_mb": peak_mb()}


def quantisers() -> dict[str, float]:
    """MB of BF16 weights a CPU second on one core: ours and the library's, by turns; medians of five."""
    import torch
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
    from compressed_tensors.quantization import preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    from quant.quantising import pack

    torch.set_num_threads(1)
    scheme = preset_name_to_scheme("NVFP4", ["Linear"])
    assert scheme.weights is not None
    found: dict[str, list[float]] = {"quantise": [], "library": []}
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        weight = (torch.randn(ROWS, COLUMNS, generator=generator) * 0.02).bfloat16()
        start = time.process_time()
        groups = weight.unflatten(-1, (-1, 16))
        low, high = groups.amin(-1), groups.amax(-1)
        divisor = generate_gparam(low.min(), high.max())
        scale, _ = calculate_qparams(low, high, scheme.weights, global_scale=divisor)
        theirs = NVFP4PackedCompressor.compress(
            {"weight": weight, "weight_scale": scale, "weight_global_scale": divisor}, scheme
        )
        middle = time.process_time()
        ours = pack.quantize(weight, pack.global_scale(pack.largest(weight)))
        end = time.process_time()
        found["library"].append(weight.nbytes / 1e6 / (middle - start))
        found["quantise"].append(weight.nbytes / 1e6 / (end - middle))
        assert (theirs["weight_packed"].numpy() == ours[0]).all()
        assert (theirs["weight_scale"].view(torch.uint8).numpy() == ours[1]).all()
    return {f"{name}_mb_per_s": statistics.median(values) for name, values in found.items()}


def differing(ours: Path, theirs: Path) -> tuple[int, int]:
    """Tensors that differ, and tensors; the activations' scales apart, which oneshot measures anew."""
    one, other = shards.read_checkpoint(ours), shards.read_checkpoint(theirs)
    names = [name for name in one.keys() | other.keys() if not name.endswith("input_global_scale")]
    unlike = [n for n in names if n not in one or n not in other or not _alike(one[n], other[n])]
    return len(unlike), len(names)


def _alike(one: shards.TensorInfo, other: shards.TensorInfo) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape) and _same(one, other)


def _same(one: shards.TensorInfo, other: shards.TensorInfo) -> bool:
    return shards.read_bytes(one) == shards.read_bytes(other)


def main(words: list[str]) -> None:
    """Print the figures, then the JSON line."""
    given: dict[str, Any] = {"GB": "2.0", "RUNS": "3", "SCRATCH": ""} | config.split_words(words)
    speed = in_child(quantisers)
    ratio = speed["quantise_mb_per_s"] / speed["library_mb_per_s"]
    print(
        f"one core: ours {speed['quantise_mb_per_s']:.0f} MB/s, compressed-tensors"
        f" {speed['library_mb_per_s']:.1f} MB/s, {ratio:.1f} times, the same bytes",
        flush=True,
    )
    with tempfile.TemporaryDirectory(dir=given["SCRATCH"] or None) as folder:
        scratch = Path(folder)
        base, adapter, production = (scratch / name for name in ("base", "adapter", "production"))
        synthetic.write(base, float(given["GB"]))
        synthetic.write_adapter(adapter, base, experts=False)
        size = sum(file.stat().st_size for file in base.iterdir()) / 1e9
        print(f"{size:.2f} GB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before", flush=True)
        in_child(oneshot, base, base, production, 1)
        runs = []
        for number in range(int(given["RUNS"])):
            shutil.rmtree(scratch / "delta", ignore_errors=True)
            prepare(base, warm=True)
            runs.append(in_child(delta, production, base, adapter, scratch / "delta"))
            print(f"delta {number}: {_line(runs[-1])}", flush=True)
        merged = in_child(merge, base, adapter, scratch / "merged")
        print(f"merge: {_line(merged)}", flush=True)
        theirs = in_child(oneshot, scratch / "merged", base, scratch / "full", SAMPLES)
        print(f"oneshot: {_line(theirs)}", flush=True)
        unlike, total = differing(scratch / "delta", scratch / "full")
        print(f"{unlike} of {total} tensors differ, the activations' scales apart")
    whole = {key: merged[key] + theirs[key] for key in ("seconds", "cpu")}
    result = {
        "delta_speedup": whole["seconds"] / statistics.median(run["seconds"] for run in runs),
        "delta_speedup_cpu": whole["cpu"] / statistics.median(run["cpu"] for run in runs),
        "delta_rss_mb": max(run["peak_mb"] for run in runs),
        **speed,
        "differing": unlike,
    }
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


def _line(found: dict[str, float]) -> str:
    return f"{found['seconds']:.2f} s, CPU {found['cpu']:.2f} s, {found['peak_mb']:.0f} MB"


if __name__ == "__main__":
    main(sys.argv[1:])
