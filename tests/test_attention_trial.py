"""flash-attention is used only where it proves itself; stand-ins fail in its ways."""

from pathlib import Path

import pytest

from core import attention_trial

HEAD = """
from torch.nn.functional import scaled_dot_product_attention

def flash_attn_func(q, k, v, causal):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
"""
RIGHT = HEAD + "    return scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)"
BROKEN = {
    "no kernel": (
        HEAD + "    raise RuntimeError('no kernel image for sm_121')",
        "no kernel image for sm_121",
    ),
    "looks ahead": (
        HEAD + "    return scaled_dot_product_attention(q, k, v).transpose(1, 2)",
        "its output is off by",
    ),
}


@pytest.fixture
def flash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a stand-in for flash_attn where this process and its children import it from."""

    def put(source: str) -> None:
        (tmp_path / "flash_attn.py").write_text(source)

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    attention_trial.fault.cache_clear()
    yield put
    attention_trial.fault.cache_clear()


def test_without_it_torch_s_own_runs_and_the_manifest_says_why():
    attention_trial.fault.cache_clear()
    assert attention_trial.implementation() == "sdpa"
    assert attention_trial.described() == "sdpa (flash-attention: not installed)"


def test_one_that_works_is_used(flash):
    flash(RIGHT)
    assert attention_trial.described() == attention_trial.implementation() == "flash_attention_2"


@pytest.mark.parametrize("how", BROKEN)
def test_one_that_does_not_is_not(flash, how):
    source, reason = BROKEN[how]
    flash(source)
    assert attention_trial.implementation() == "sdpa"
    assert reason in attention_trial.described()
