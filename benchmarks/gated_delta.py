"""`python -m benchmarks.gated_delta`: our gated delta rule against transformers', and fla's where it works.

Time, memory and error of the rule alone in the 35B model's shape (32 heads of 128, one row, float32), on one
thread or the accelerator. The rules take turns in one process, so that a busy machine slows them alike; on
the CPU the clock is the process's own. The floor is the time of the rule's matrix products at the rate of one
large product measured in the same run.
"""

import inspect
import json
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from core.gated_delta import chunk_gated_delta_rule

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, DIM, CHUNK = 32, 128, 64
LENGTHS = (1024, 2048, 4096, 8192, 16384)
REFERENCE_UP_TO = 8192
"""Its backward pass is quadratic: a minute at 8192, four at 16384."""

Rule = Callable[..., tuple[Tensor, Any]]


def reference() -> Rule:
    """The pinned transformers' rule, from the dense model's module: the same text, never replaced by ours."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    return inspect.unwrap(modeling_qwen3_5.torch_chunk_gated_delta_rule)


def fla() -> Rule | None:
    """flash-linear-attention's kernel, or None where it cannot be imported."""
    try:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule as kernel  # type: ignore[import-not-found]
    except Exception:
        return None
    return kernel


def inputs(
    rows: int, tokens: int, heads: int, dim: int, *, seed: int = 0, alike: bool = False, device: str = DEVICE
) -> list[Tensor]:
    """query, key, value, g, beta as the model makes them; `alike`: keys nearly one, beta 1 and no decay."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    query, key, value = (normal(rows, tokens, heads, dim) for _ in range(3))
    rate = torch.empty(heads).uniform_(0.01, 16, generator=random)
    g = -rate * F.softplus(normal(rows, tokens, heads) - 3)
    beta = torch.sigmoid(normal(rows, tokens, heads))
    if alike:
        key, g, beta = key[:, :1] + 1e-3 * key, torch.zeros_like(g), torch.ones_like(beta)
    return [x.to(device).requires_grad_() for x in (query, key, value, g, beta)]


def recurrence(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The rule token by token in float64, from its definition, queries and keys normalised: the truth."""
    query, key, value, g, beta = (x.double() for x in (query, key, value, g, beta))
    query, key = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (query, key))
    S = value.new_zeros(*key.shape[::2], key.shape[3], value.shape[3]) if state is None else state.double()
    out = []
    for q, k, v, decay, b in zip(*(x.unbind(1) for x in (query, key, value, g.exp(), beta)), strict=True):
        S = S * decay[..., None, None]
        update = b[..., None] * (v - torch.einsum("bhkv,bhk->bhv", S, k))
        S = S + torch.einsum("bhk,bhv->bhkv", k, update)
        out.append(torch.einsum("bhkv,bhk->bhv", S, q) * q.shape[-1] ** -0.5)
    return torch.stack(out, 1), S


def seconds(work: Callable[[], Any]) -> float:
    """Processor time on the CPU, wall time on an accelerator."""
    if DEVICE == "cpu":
        start = time.process_time()
        work()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def train_step(rule: Rule, x: list[Tensor]) -> None:
    """Forward and backward."""
    rule(*x, use_qk_l2norm_in_kernel=True)[0].sum().backward()


def medians(rules: dict[str, Rule], x: list[Tensor], repeats: int) -> dict[str, float]:
    """Median seconds of each rule's training step, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in rules}
    for _ in range(repeats):
        for name, rule in rules.items():
            times[name].append(seconds(lambda rule=rule: train_step(rule, x)))
    return {name: statistics.median(found) for name, found in times.items()}


def floor_seconds(tokens: int) -> float:
    """The rule's matrix products forward and backward, at the rate of a large product measured now."""
    a, b = torch.randn(2, 1536, 1536, device=DEVICE)
    once = statistics.median(seconds(lambda: a @ b) for _ in range(7))
    rate = len(a) ** 3 / once
    return tokens * HEADS * (9 * DIM * DIM + 12 * CHUNK * DIM) / rate


def peak_mb(name: str, tokens: int) -> float:
    """What a training step of the rule needs beside its inputs, measured in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_peak_mb, name, tokens).result()


def _peak_mb(name: str, tokens: int) -> float:
    torch.set_num_threads(1)
    rule = _rules()[name]
    train_step(rule, inputs(1, 64, 2, DIM))
    x = inputs(1, tokens, HEADS, DIM)
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = _high_water_mb()
    train_step(rule, x)
    return _high_water_mb() - before


def _high_water_mb() -> float:
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def errors(rule: Rule, *, alike: bool) -> float:
    """Largest error of the output against the recurrence, relative to its largest value; 5 seeds' mean."""
    found = []
    for seed in range(5):
        x = inputs(1, 512, 4, DIM, seed=seed, alike=alike)
        with torch.no_grad():
            truth, _ = recurrence(*x)
            out, _ = rule(*x, use_qk_l2norm_in_kernel=True)
        found.append(float((out - truth).abs().max() / truth.abs().max()))
    return statistics.mean(found)


def _rules() -> dict[str, Rule]:
    rules: dict[str, Rule] = {"ours": chunk_gated_delta_rule, "reference": reference()}
    kernel = fla() if DEVICE == "cuda" else None
    return rules if kernel is None else rules | {"fla": kernel}


def main() -> None:
    """Print the tables, short configurations first, then the JSON line."""
    torch.set_num_threads(1)
    rules = _rules()
    others = [name for name in rules if name != "ours"]

    print(f"error against the float64 recurrence, {', '.join(rules)}")
    error_ratio = 0.0
    for case, alike in (("random", False), ("alike keys, beta 1, no decay", True)):
        found = {name: errors(rule, alike=alike) for name, rule in rules.items()}
        print(f"{case:<30}" + "".join(f"{e:>11.1e}" for e in found.values()), flush=True)
        error_ratio = max(error_ratio, found["ours"] / found["reference"])

    print(f"\npeak memory of forward + backward, MB, {', '.join(rules)}")
    memory_ratio = 0.0
    for tokens in (512, 1024, 2048, 4096):
        peaks = {name: peak_mb(name, tokens) for name in rules}
        print(f"T={tokens:<28}" + "".join(f"{peak:>11.0f}" for peak in peaks.values()), flush=True)
        memory_ratio = max(memory_ratio, peaks["ours"] / peaks["reference"])

    print("\nseconds of forward + backward, median: ours, " + ", ".join(f"{o}, ratio" for o in others))
    _row("8 x 300, 4 heads of 32", medians(rules, inputs(8, 300, 4, 32), 11))
    ours, speedup, floor_ratio = {}, {}, 0.0
    for tokens in LENGTHS:
        slow = tokens > REFERENCE_UP_TO and DEVICE == "cpu"
        running = {name: rule for name, rule in rules.items() if name != "reference" or not slow}
        found = medians(running, inputs(1, tokens, HEADS, DIM), 3 if tokens == REFERENCE_UP_TO else 5)
        ours[tokens] = found["ours"]
        speedup[tokens] = found.get("reference", math.nan) / found["ours"]
        above = found["ours"] / floor_seconds(tokens)
        floor_ratio = max(floor_ratio, above)
        _row(
            f"1 x {tokens}, {HEADS} heads of {DIM}",
            found,
            f"   {above:.1f} x the floor",
        )

    result = {
        "speedup_2048": speedup[2048],
        "speedup_8192": speedup[8192],
        "growth_8192_16384": ours[16384] / ours[8192],
        "floor_ratio": floor_ratio,
        "memory_ratio": memory_ratio,
        "error_ratio": error_ratio,
    }
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


def _row(what: str, found: dict[str, float], note: str = "") -> None:
    cells = [f"{found['ours']:>9.4f}"]
    cells += [f"{t:>9.4f} {t / found['ours']:>6.2f}x" for name, t in found.items() if name != "ours"]
    print(f"{what:<30}" + "".join(cells) + note, flush=True)


if __name__ == "__main__":
    main()
