"""dequantize: the values of the format's definition, in the base's layout, whole or refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, shards
from core.errors import DONE, UserError
from quant import dequantize
from quant.merging import stream
from tests import tiny_model
from tests.quantizing import (
    BASE,
    BF16,
    LAYERS,
    MERGED,
    NVFP4,
    WORDS,
    damage,
    load,
    matrix,
    quantized_names,
    raw,
    relative_errors,
)

torch = pytest.importorskip("torch")
pytest.importorskip("llmcompressor")

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""OCP Microscaling Formats 1.0, table 5."""


@pytest.fixture
def place(quantized_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a copy of the run."""
    shutil.copytree(quantized_run, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("only", ["experts", "self_attn"])
def test_a_forgotten_global_scale_is_seen(place: Path, only: str) -> None:
    def forget(tensors: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            if name.endswith("weight_global_scale") and only in name:
                tensor.fill_(1.0)

    damage(NVFP4, forget)
    shutil.rmtree(BF16)
    assert dequantize.main(WORDS) == DONE
    found = relative_errors(load(BF16), load(MERGED))
    assert all((error > 0.12) == (only in name) for name, error in found.items())


def test_values_are_those_of_the_format_s_definition(quantized_run: Path) -> None:
    tensors, restored = load(quantized_run / NVFP4), load(quantized_run / BF16)
    for name in sorted(quantized_names())[::7]:
        packed = tensors[f"{name}.weight_packed"].tolist()
        scale = tensors[f"{name}.weight_scale"].float()
        divisor = float(tensors[f"{name}.weight_global_scale"])
        nibbles = [[nibble for byte in row for nibble in (byte & 15, byte >> 4)] for row in packed]
        values = [[E2M1[n & 7] * (-1 if n & 8 else 1) for n in row] for row in nibbles]
        wanted = torch.tensor(values) * scale.repeat_interleave(16, 1) / divisor
        torch.testing.assert_close(matrix(restored, name), wanted, rtol=2**-8, atol=0)


def test_transformers_loads_the_dequantised_checkpoint_whole(quantized_run: Path) -> None:
    from transformers import AutoModelForImageTextToText

    loaded: Any = AutoModelForImageTextToText.from_pretrained(quantized_run / BF16, output_loading_info=True)
    info = loaded[1]
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    assert all(name.startswith("mtp.") for name in info["unexpected_keys"])


def test_dequantising_needs_the_nvfp4_checkpoint_alone(place: Path) -> None:
    before = artifacts.require(BF16, "dequantize")["files"]
    for path in (BASE, MERGED, BF16, Path("data"), Path("out")):
        shutil.rmtree(path)
    assert dequantize.main(WORDS) == DONE
    assert artifacts.require(BF16, "dequantize")["files"] == before


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (f"{LAYERS}.1.self_attn.q_proj.weight_scale", r"q_proj\.weight_scale is missing"),
        (f"{LAYERS}.1.self_attn.q_proj.weight_global_scale", r"weight_global_scale is missing"),
        (f"{LAYERS}.2.mlp.experts.3.up_proj.weight_packed", r"experts\.3\.up_proj\.weight_packed is missing"),
        (f"{LAYERS}.2.mlp.experts.3.up_proj", r"experts\.3\.up_proj is missing"),
    ],
)
def test_a_quantised_matrix_is_whole_or_refused(place: Path, missing: str, message: str) -> None:
    infos = shards.read_checkpoint(NVFP4)
    left = {n: i for n, i in infos.items() if n != missing and not n.startswith(missing + ".")}
    assert len(left) < len(infos)
    with pytest.raises(UserError, match=message):
        dequantize.plan(left)


def test_what_is_not_nvfp4_is_not_dequantised(place: Path) -> None:
    with pytest.raises(UserError, match=r"quantization format is None, expected nvfp4-pack-quantized"):
        dequantize.dequantize(MERGED, artifacts.Draft(place))


def test_groups_kept_in_bf16_come_back_as_they_are(place: Path) -> None:
    kept = [f"{LAYERS}.1.self_attn.{p}_proj" for p in "qkv"] + [f"{LAYERS}.2.mlp.experts.3.down_proj"]
    merged = load(MERGED)

    def keep(tensors: dict[str, Any]) -> None:
        for name in kept:
            for part in ("weight_packed", "weight_scale", "weight_global_scale", "input_global_scale"):
                del tensors[f"{name}.{part}"]
            tensors[f"{name}.weight"] = matrix(merged, name).bfloat16()

    before = load(BF16)
    damage(NVFP4, keep)
    shutil.rmtree(BF16)
    assert dequantize.main(WORDS) == DONE
    after = load(BF16)
    assert after.keys() == before.keys()
    for name in quantized_names():
        wanted = merged if name in kept else before
        assert torch.equal(matrix(after, name), matrix(wanted, name)), name


def test_an_mtp_head_that_is_kept_expert_by_expert_keeps_its_names(place: Path) -> None:
    prefix = "mtp.layers.0.mlp.experts"

    def unstack(tensors: dict[str, Any]) -> None:
        own = {name: tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        tensors |= tiny_model.unstack(own)

    damage(NVFP4, unstack)
    shutil.rmtree(BF16)
    assert dequantize.main(WORDS) == DONE
    found, wanted = raw(NVFP4), raw(BF16)
    names = {name for name in found if name.startswith(prefix)}
    assert len(names) == 8 * 3
    assert {name: wanted[name] for name in names} == {name: found[name] for name in names}


def test_an_interrupted_dequantisation_goes_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = artifacts.require(BF16, "dequantize")["files"]
    shutil.rmtree(BF16)
    monkeypatch.setattr(dequantize, "SHARD_BYTES", 1_500_000)
    written: list[str] = []
    write = stream.write_shard

    def interrupt(target: Path, *rest: Any) -> str:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(target.name)
        return write(target, *rest)

    monkeypatch.setattr(stream, "write_shard", interrupt)
    with pytest.raises(KeyboardInterrupt):
        dequantize.main(WORDS)
    assert not BF16.exists()
    monkeypatch.setattr(
        stream, "write_shard", lambda target, *rest: written.append(target.name) or write(target, *rest)
    )
    assert dequantize.main(WORDS) == DONE
    assert len(written) == len(set(written)) > 3  # none was written twice
    whole = raw(BF16)
    monkeypatch.undo()
    monkeypatch.chdir(place)
    shutil.rmtree(BF16)
    assert dequantize.main(WORDS) == DONE
    assert artifacts.require(BF16, "dequantize")["files"] == before
    assert raw(BF16) == whole
