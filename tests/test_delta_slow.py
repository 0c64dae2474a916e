"""The long proof of QUANT=delta: a zero adapter on a gigabyte gives production's files back."""

from pathlib import Path

import pytest

from benchmarks import nvfp4, synthetic
from benchmarks.merge import in_child
from core import artifacts, shards

torch = pytest.importorskip("torch")
pytest.importorskip("llmcompressor")
pytestmark = pytest.mark.slow


def test_a_zero_adapter_gives_a_large_production_s_files_back(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    base, adapter, production, made = (tmp_path / name for name in ("base", "adapter", "production", "made"))
    synthetic.write(base, 1.0)
    synthetic.write_adapter(adapter, base, experts=False)
    weights = adapter / "adapter_model.safetensors"
    zeroed = {n: torch.zeros_like(t) if "lora_B" in n else t for n, t in load_file(weights).items()}
    save_file(zeroed, weights, metadata={"format": "pt"})
    in_child(nvfp4.oneshot, base, base, production, 1)
    assert sum(info.stop - info.start for info in shards.read_checkpoint(production).values()) > 5e8
    in_child(nvfp4.delta, production, base, adapter, made)
    digests = [
        {name: artifacts.file_sha256(file) for name, file in artifacts.payload(path).items()}
        for path in (production, made)
    ]
    assert digests[0] == digests[1]
