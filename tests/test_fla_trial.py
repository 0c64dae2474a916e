"""fla's kernels are used only where they prove themselves; stand-ins for fla fail in every way it has."""

import sys
from pathlib import Path

import pytest

from core import fla_trial

HEAD = """
import os, signal, time
from core.gated_delta import chunk_gated_delta_rule as right

def chunk_gated_delta_rule(q, k, v, **more):
"""
RIGHT = HEAD + "    return right(q, k, v, **more)"
BROKEN = {
    "raises": HEAD + "    raise RuntimeError('no kernel for sm_121')",
    "crashes": HEAD + "    os.kill(os.getpid(), signal.SIGSEGV)",
    "hangs": HEAD + "    time.sleep(600)",
    "no numbers": HEAD
    + "    return [float('nan') * x if x is not None else x for x in right(q, k, v, **more)]",
    "wrong gradient": HEAD + "    return right(q, k, v.detach() * .5 + v * .5, **more)",
    "not importable": "import no_such_library",
}
SAYS = {
    "raises": "no kernel for sm_121 at 130 tokens",
    "crashes": "killed by signal 11 at 130 tokens",
    "hangs": "no answer within 0:03 at 130 tokens",
    "no numbers": "its output is off by nan at 130 tokens",
    "wrong gradient": "its gradient of v is off by 0.5 at 130 tokens",
    "not importable": "no_such_library",
}


@pytest.fixture
def fla(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a stand-in for fla where this process and its children import it from."""
    fla_trial.fault.cache_clear()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def put(source: str) -> None:
        package = tmp_path / "fla/ops/gated_delta_rule"
        package.mkdir(parents=True)
        for directory in (package.parent.parent, package.parent):
            (directory / "__init__.py").touch()
        (package / "__init__.py").write_text(source, encoding="utf-8")

    yield put
    fla_trial.fault.cache_clear()


def test_a_kernel_that_agrees_is_used(fla) -> None:
    fla(RIGHT)
    assert fla_trial.rule(130) == "fla"


@pytest.mark.parametrize("how", BROKEN)
def test_a_kernel_that_fails_is_named_and_not_used(fla, how: str) -> None:
    fla(BROKEN[how])
    reason = fla_trial.fault(130, 3 if how == "hangs" else fla_trial.SECONDS)
    assert reason is not None
    assert SAYS[how] in reason
    assert "\n" not in reason


def test_without_fla_nothing_is_tried() -> None:
    fla_trial.fault.cache_clear()
    assert fla_trial.rule() == "core/gated_delta.py (fla: not installed)"
