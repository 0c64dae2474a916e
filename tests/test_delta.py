"""QUANT=delta: production's bytes but for what the adapter touches, and there what oneshot would write."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, chat, shards
from core.errors import DONE, NEGATIVE, UserError
from quant import dequantize, quantize
from quant.quantising import pack
from tests import deltas
from tests.deltas import (
    ADAPTER,
    ATTENTION,
    BASE,
    DENSE,
    LAYERS,
    MERGED,
    NVFP4,
    PRODUCTION,
    ROOT,
    SHARED,
    WORDS,
    adapt,
    payload,
    raw,
)

torch = pytest.importorskip("torch")
pytest.importorskip("llmcompressor")
PARTS = ("weight_packed", "weight_scale", "weight_global_scale")


@pytest.fixture(scope="module")
def made(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("production")
    deltas.make(place, base_dir)
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with base and production."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def counts() -> dict[str, Any]:
    return artifacts.require(NVFP4, "quantize")["counts"]


@pytest.mark.parametrize("experts", [False, True])
def test_a_zero_adapter_gives_production_s_files_back(place: Path, experts: bool) -> None:
    adapt(size=0.0, experts=experts)
    assert quantize.main(WORDS) == DONE
    assert payload(NVFP4) == payload(PRODUCTION)
    assert all(columns[kind]["signal"] == 1 for columns in counts()["retention"].values() for kind in columns)


def test_weights_are_those_of_oneshot_on_the_merged_model(place: Path) -> None:
    adapt(experts=True)
    assert quantize.main(WORDS) == DONE
    rows = chat.read_rows(ROOT / "examples/replay.jsonl")[1:3]
    Path("full").mkdir()
    deltas.oneshot(MERGED, BASE, Path("full"), rows)
    ours, theirs, before = raw(NVFP4), raw(Path("full")), raw(PRODUCTION)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        if name.endswith("input_global_scale"):
            assert tensor == before[name]
        else:
            assert tensor == theirs[name], name
    changed = {name for name in ours if ours[name] != before[name]}
    assert {f"{LAYERS}.0.linear_attn.in_proj_a.weight"} < changed
    assert {name.rpartition(".")[2] for name in changed} == {"weight", *PARTS}


def test_only_what_is_touched_changes_a_fused_partner_by_its_global_scale(place: Path) -> None:
    adapt(("k_proj",), size=1.0)  # far beyond q and v
    assert quantize.main(WORDS) == DONE
    ours, before = raw(NVFP4), raw(PRODUCTION)
    groups = {name for name in before if ours[name] != before[name]}
    touched = {f"{LAYERS}.{n}.self_attn.{p}_proj.{part}" for n in (1, 3) for p in "qkv" for part in PARTS}
    assert {f"{LAYERS}.1.self_attn.v_proj.weight_global_scale"} < groups <= touched
    for n in (1, 3):
        shared = {ours[f"{LAYERS}.{n}.self_attn.{p}_proj.weight_global_scale"] for p in "qkv"}
        assert len(shared) == 1


def test_the_second_run_does_nothing_and_calibration_is_no_matter(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapt(("o_proj",))
    assert quantize.main(WORDS) == DONE
    assert quantize.main([*WORDS, "CALIBRATION_ROWS=3", "CALIBRATION_LENGTH=5"]) == DONE
    assert "up to date" in capsys.readouterr().out
    assert quantize.main([*WORDS, "KEEP_TUNED=bf16"]) == DONE
    assert "up to date" not in capsys.readouterr().out


def test_production_may_be_another_directory(place: Path) -> None:
    adapt(("o_proj",))
    assert quantize.main(WORDS) == DONE
    before = payload(NVFP4)
    shutil.rmtree(NVFP4)
    PRODUCTION.rename("served")
    (Path("served") / artifacts.MANIFEST).unlink()
    with pytest.raises(UserError, match=r"tiny-production: no checkpoint.*PRODUCTION.*QUANT=full"):
        quantize.main(WORDS)
    assert quantize.main([*WORDS, "PRODUCTION=served"]) == DONE
    assert payload(NVFP4) == before


def test_production_s_shards_may_be_cut_otherwise_than_the_base_s(place: Path) -> None:
    adapt(experts=True)
    assert quantize.main(WORDS) == DONE
    before = raw(NVFP4)
    deltas.rewrite(PRODUCTION, lambda tensors: None, shard_bytes=200_000)
    (PRODUCTION / artifacts.MANIFEST).unlink()
    assert len(shards.shard_files(PRODUCTION)) > 8
    assert quantize.main(WORDS) == DONE
    assert raw(NVFP4) == before


# ---- KEEP_TUNED ---------------------------------------------------------------------------------


def test_kept_groups_are_the_merged_ones_and_on_the_ignore_list(place: Path) -> None:
    adapt((*SHARED, "q_proj"), experts=True)
    assert quantize.main([*WORDS, "KEEP_TUNED=bf16"]) == DONE
    found, merged, before = raw(NVFP4), raw(MERGED), raw(PRODUCTION)
    kept = {f"{LAYERS}.{n}.self_attn.{p}_proj" for n in (1, 3) for p in "qkv"}
    kept |= {f"{LAYERS}.{n}.mlp.{path}" for n in range(4) for path in SHARED}
    plain = {name for name in found if name in merged}
    assert plain - before.keys() == {f"{module}.weight" for module in kept}
    assert all(found[name] == merged[name] for name in plain)
    assert not [name for name in found if name.rpartition(".")[0] in kept and not name.endswith(".weight")]
    ignore, earlier = (
        json.loads((path / "config.json").read_text())["quantization_config"]["ignore"]
        for path in (NVFP4, PRODUCTION)
    )
    assert ignore[: len(earlier)] == earlier
    assert set(ignore[len(earlier) :]) == kept
    assert counts()["kept_in_bf16"] == len(kept)
    for info in shards.read_checkpoint(NVFP4).values():
        assert info.start % shards.ITEM_BYTES[info.dtype] == 0


def test_a_checkpoint_that_keeps_the_tuned_is_dequantised(place: Path) -> None:
    adapt()
    assert quantize.main([*WORDS, "KEEP_TUNED=bf16"]) == DONE
    assert dequantize.main(WORDS) == DONE
    restored, merged = raw(Path("models/one/nvfp4-bf16")), raw(MERGED)
    assert restored.keys() == merged.keys()
    tuned = {n for n in merged if n.startswith(LAYERS) and n.removesuffix(".weight").endswith(DENSE)}
    assert len(tuned) == 2 * 4 + 2 * 5 + 4 * 3
    assert all(restored[name] == merged[name] for name in tuned)


# ---- what is said of it -------------------------------------------------------------------------


def test_retention_is_what_the_checkpoints_show(place: Path) -> None:
    adapt(ATTENTION)
    assert quantize.main(WORDS) == DONE
    found = counts()["retention"]["self_attn.o_proj"]
    tensors = {path: dequantized(path) for path in (PRODUCTION, NVFP4)}
    projection = trained = error = 0.0
    for layer in (1, 3):
        name = f"{LAYERS}.{layer}.self_attn.o_proj"
        a, b = (adapter()[f"base_model.model.{name}.lora_{half}.weight"] for half in "AB")
        delta, change = 2 * b @ a, tensors[NVFP4][name] - tensors[PRODUCTION][name]
        projection += float((change * delta).sum())
        trained += float(delta.square().sum())
        error += float((change - delta).square().sum())
    assert found["nvfp4"]["signal"] == pytest.approx(projection / trained, abs=1e-4)
    assert found["nvfp4"]["noise"] == pytest.approx((error / trained) ** 0.5, rel=1e-4)
    assert found["bf16"]["noise"] < found["nvfp4"]["noise"] / 10


def dequantized(path: Path) -> dict[str, Any]:
    """o_proj's values by module."""
    read = raw_tensors(path)
    return {
        name.removesuffix(".weight_packed"): pack.dense(
            read[name].numpy(),
            read[name.replace("packed", "scale")].view(torch.uint8).numpy(),
            read[name.replace("packed", "global_scale")].item(),
        )
        for name in read
        if name.endswith("o_proj.weight_packed")
    }


def raw_tensors(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {name: tensor for file in shards.shard_files(path) for name, tensor in load_file(file).items()}


def adapter() -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(ADAPTER / "adapter_model.safetensors")


def test_sizes_of_the_choices_are_those_of_the_checkpoints(place: Path) -> None:
    adapt()
    sizes = {}
    for words, name in (([], "QUANT=delta"), (["KEEP_TUNED=bf16"], "KEEP_TUNED=bf16")):
        assert quantize.main([*WORDS, *words]) == DONE
        sizes[name] = counts()["bytes"]
    choices = {row["choice"]: row for row in counts()["choices"]}
    assert {name: choices[name]["bytes"] for name in sizes} == sizes
    more = sizes["KEEP_TUNED=bf16"] - sizes["QUANT=delta"]
    assert choices["KEEP_TUNED=bf16"]["token_bytes"] - choices["QUANT=delta"]["token_bytes"] == more > 0
    assert choices["KEEP_TUNED=bf16"]["noise"] < choices["QUANT=delta"]["noise"] / 10


def test_activations_beyond_production_s_scale_are_seen(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapt(("o_proj",))
    assert quantize.main(WORDS) == DONE
    assert "not estimated" in capsys.readouterr().out
    assert "data/tiny/dataset is not there" in counts()["saturation"]["skipped"]
    deltas.dataset()
    shutil.rmtree(NVFP4)
    assert quantize.main(WORDS) == DONE
    before = counts()["saturation"]
    assert {"self_attn.q_proj", "mlp.shared_expert.down_proj", "mlp.experts"} <= before.keys()

    def tenfold(data: bytearray) -> None:
        data[:] = (torch.frombuffer(data, dtype=torch.float32) * 10).numpy().tobytes()

    deltas.change(PRODUCTION, f"{LAYERS}.1.self_attn.o_proj.input_global_scale", tenfold)
    shutil.rmtree(NVFP4)
    assert quantize.main(WORDS) == DONE
    after = counts()["saturation"]
    assert after["self_attn.o_proj"]["cut"] > before["self_attn.o_proj"]["cut"]
    assert after["self_attn.o_proj"]["largest"] > 3 * before["self_attn.o_proj"]["largest"]
    assert after["self_attn.q_proj"] == before["self_attn.q_proj"]


def test_without_a_verdict_that_passes_nothing_is_written(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapt(("o_proj",))
    deltas.judge("no_change")
    assert quantize.main(WORDS) == NEGATIVE
    assert not NVFP4.exists()
    assert quantize.main([*WORDS, "FORCE=1"]) == DONE
    assert counts()["forced"]
    assert not counts()["provenance"]["forced"]


@pytest.mark.slow
def test_keeping_the_tuned_gives_full_s_checkpoint_as_well(place: Path) -> None:
    adapt((*SHARED, "q_proj"), experts=True)
    deltas.dataset()
    found = {}
    for way in ("delta", "full"):
        assert quantize.main([*WORDS, f"QUANT={way}", "KEEP_TUNED=bf16"]) == DONE
        ignore = json.loads((NVFP4 / "config.json").read_text())["quantization_config"]["ignore"]
        found[way] = raw(NVFP4), set(ignore), counts()["made"]
    weights = {
        way: {name: tensor for name, tensor in one[0].items() if not name.endswith("input_global_scale")}
        for way, one in found.items()
    }
    assert weights["delta"] == weights["full"]
    assert found["delta"][1:] == found["full"][1:]


@pytest.mark.parametrize(
    ("word", "message"),
    [("QUANT=detla", "did you mean delta"), ("KEEP_TUNED=fp8", "KEEP_TUNED=fp8: expected blank or bf16")],
)
def test_a_misspelt_way_is_named(tmp_path: Path, word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        quantize.main([*WORDS, word])
