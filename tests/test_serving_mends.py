"""What makes vLLM's CPU build serve the tiny checkpoints, as far as it can be tried without vLLM."""

import subprocess
import sys
from typing import Any

import torch

from tests.conftest import ROOT
from tests.serving import stand_ins


def test_an_environment_of_other_versions_is_refused_in_one_line() -> None:
    script = ROOT / "tests/serving/mend_vllm_cpu.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: vllm-cpu is None; the mends are for 0.32.0: rm -r .venv-serve\n"


def rule(
    *, query: Any, key: Any, value: Any, g: Any, beta: Any, initial_state: Any, initial_state_indices: Any
) -> tuple[Any, Any]:
    """The gated delta rule of one sequence, token by token, as the kernel for it is called."""
    state, out = initial_state[int(initial_state_indices[0])], []
    unit = [torch.nn.functional.normalize(x[0], dim=-1) for x in (query, key)]
    for q, k, v, decay, step in zip(*unit, value[0], g[0], beta[0], strict=True):
        state *= decay.exp()[:, None, None]
        change = (v - torch.einsum("hk,hkv->hv", k, state)) * step[:, None]
        state += torch.einsum("hk,hv->hkv", k, change)
        out.append(torch.einsum("hk,hkv->hv", q * q.shape[-1] ** -0.5, state))
    return torch.stack(out)[None], initial_state


def test_filling_up_narrow_heads_changes_neither_output_nor_state() -> None:
    tokens, heads, width = 7, 3, 32
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, tokens, heads, width, dtype=torch.float64) for _ in range(3))
    inputs = {
        "query": query, "key": key, "value": value, "g": -torch.rand(1, tokens, heads).double(),
        "beta": torch.rand(1, tokens, heads).double(), "initial_state_indices": torch.tensor([1]),
    }  # fmt: skip
    results = []
    for one in (rule, stand_ins.widened(rule)):
        states = torch.ones(3, heads, width, width, dtype=torch.float64)
        results.append((one(**inputs, initial_state=states)[0], states))
    for direct, filled in zip(*results, strict=True):
        torch.testing.assert_close(filled, direct)
    assert not torch.equal(results[0][1][1], results[0][1][0])
