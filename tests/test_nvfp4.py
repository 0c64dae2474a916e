"""NVFP4: what is quantised stays near, what is not stays the same bytes; refusals write nothing."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, chat, profile, shards
from core.errors import DONE, NEGATIVE, UserError
from core.profile import Quant
from core.profiles import tiny
from quant import dequantize, inspect, nvfp4, production, quantize
from quant.quantising import calibration, oneshot
from tests.quantizing import (
    A_LOG,
    BASE,
    BF16,
    LAYERS,
    MERGED,
    NVFP4,
    PASSES,
    QUANTIZE,
    ROOT,
    VERDICT,
    WORDS,
    damage,
    judge,
    load,
    quantized_names,
    raw,
    relative_errors,
)

torch = pytest.importorskip("torch")
pytest.importorskip("llmcompressor")

CONTENTS = ("config.json", "tokenizer.json", "chat_template.jinja", "preprocessor_config.json")


@pytest.fixture
def place(quantized_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a copy of the run."""
    shutil.copytree(quantized_run, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- what is quantised, and how near it stays ---------------------------------------------------


def test_exactly_what_the_ignore_list_leaves_is_quantised(quantized_run: Path) -> None:
    packed = {n.removesuffix(".weight_packed") for n in load(quantized_run / NVFP4) if n.endswith("_packed")}
    assert packed == quantized_names()
    assert len(packed) == artifacts.require(quantized_run / NVFP4, "quantize")["counts"]["quantized_linears"]


def test_every_matrix_stays_within_the_error_of_nvfp4(quantized_run: Path) -> None:
    found = relative_errors(load(quantized_run / BF16), load(quantized_run / MERGED))
    assert min(found.values()) > 0
    assert max(found.values()) < 0.12


@pytest.mark.parametrize("group", [*tiny.PROFILE.quant.fused] if tiny.PROFILE.quant else [])
def test_fused_matrices_share_their_global_scale(quantized_run: Path, group: tuple[str, ...]) -> None:
    tensors = load(quantized_run / NVFP4)
    pattern = "|".join(re.escape(path).replace(r"experts\.", r"experts\.\d+\.") for path in group)
    sets: dict[str, set[float]] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(rf"(.+\.\d+)\.({pattern})\.weight_global_scale", name)
        if match:
            sets.setdefault(f"{match[1]}.{match[2].rpartition('.')[0]}", set()).add(float(tensor))
    assert sets
    assert all(len(values) == 1 for values in sets.values())
    assert len(set.union(*sets.values())) > 1


# ---- what is not quantised ----------------------------------------------------------------------


def test_what_is_not_quantised_keeps_the_merged_checkpoint_s_bytes(quantized_run: Path) -> None:
    merged, found, restored = (
        raw(quantized_run / MERGED),
        raw(quantized_run / NVFP4),
        raw(quantized_run / BF16),
    )
    untouched = [n for n in merged if n in found and not n.startswith("mtp.")]
    assert {A_LOG, f"{LAYERS}.0.input_layernorm.weight", "lm_head.weight"} < set(untouched)
    assert merged[A_LOG][0] == "F32"
    for name in untouched:
        assert merged[name] == found[name] == restored[name], name


def test_the_mtp_head_is_the_base_s(quantized_run: Path) -> None:
    base = {n: t for n, t in raw(quantized_run / BASE).items() if n.startswith("mtp.")}
    assert len(base) > 5
    for directory in (NVFP4, BF16):
        assert {n: t for n, t in raw(quantized_run / directory).items() if n.startswith("mtp.")} == base
    config = json.loads((quantized_run / NVFP4 / "config.json").read_text())
    assert "re:^mtp.*" in config["quantization_config"]["ignore"]


def test_names_shapes_and_dtypes_come_back(quantized_run: Path) -> None:
    merged, restored = raw(quantized_run / MERGED), raw(quantized_run / BF16)
    assert {n: t[:2] for n, t in restored.items()} == {n: t[:2] for n, t in merged.items()}


def test_the_files_beside_the_weights_are_the_source_s(quantized_run: Path) -> None:
    beside = {
        n: p for n, p in artifacts.payload(quantized_run / MERGED).items() if p.suffix != ".safetensors"
    }
    assert set(CONTENTS) < set(beside)
    for directory in (quantized_run / NVFP4, quantized_run / BF16):
        for name in beside.keys() - {"config.json", shards.INDEX}:
            assert (directory / name).read_bytes() == beside[name].read_bytes(), name
        assert {file.stat().st_mode & 0o777 for file in artifacts.payload(directory).values()} == {0o644}
    config = json.loads(beside["config.json"].read_text())
    quantised = json.loads((quantized_run / NVFP4 / "config.json").read_text())
    assert quantised.pop("quantization_config")["format"] == dequantize.FORMAT
    assert quantised == json.loads((quantized_run / BF16 / "config.json").read_text()) == config


# ---- the verdict, and when there is nothing to do -----------------------------------------------


@pytest.mark.parametrize("gates", [None, PASSES | {"skills": "no_change"}, PASSES | {"loss": "worse"}])
def test_without_a_verdict_that_passes_nothing_is_written(
    place: Path, capsys: pytest.CaptureFixture[str], gates: dict[str, str] | None
) -> None:
    shutil.rmtree(NVFP4)
    shutil.rmtree(VERDICT)
    if gates:
        judge(gates)
    before = sorted(place.rglob("*"))
    assert quantize.main(QUANTIZE) == NEGATIVE
    assert sorted(place.rglob("*")) == before
    (line,) = capsys.readouterr().out.splitlines()
    assert "make quantize FORCE=1" in line


def test_force_is_recorded_and_the_bytes_are_the_same_again_without_memory(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(oneshot, "_free", lambda size: size // 3)  # a machine that holds a third of it
    stray = NVFP4.with_name("nvfp4.partial.offload")
    stray.mkdir()
    (stray / "half.safetensors").write_bytes(b"of a killed run")
    before = artifacts.require(NVFP4, "quantize")
    assert (before["counts"]["forced"], before["counts"]["verdict"][:8]) == (False, "improves")
    shutil.rmtree(NVFP4)
    judge(PASSES | {"skills": "worse"})
    assert quantize.main([*QUANTIZE, "FORCE=1"]) == DONE
    after = artifacts.require(NVFP4, "quantize")
    assert (after["counts"]["forced"], after["counts"]["verdict"][:5]) == (True, "worse")
    assert after["files"] == before["files"]
    assert "fit in memory, the rest stays on the disk" in capsys.readouterr().out
    assert not stray.exists()


def test_the_second_run_does_nothing_whatever_the_verdict_that_passes(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge({"skills": "improves"})
    assert quantize.main(QUANTIZE) == dequantize.main(WORDS) == DONE
    assert capsys.readouterr().out.count("up to date") == 2


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "path"), [(quantize, MERGED), (dequantize, NVFP4)])
def test_a_truncated_shard_is_one_line_and_nothing_is_written(place: Path, stage: Any, path: Path) -> None:
    target = NVFP4 if stage is quantize else BF16
    shutil.rmtree(target)
    shard = shards.shard_files(path)[0]
    os.truncate(shard, shard.stat().st_size - 100)
    with pytest.raises(UserError, match=r"truncated shard .*again") as error:
        stage.main(QUANTIZE if stage is quantize else WORDS)
    assert "\n" not in str(error.value)
    assert not target.exists()


def test_a_declared_mtp_head_that_the_base_lacks_is_refused(place: Path) -> None:
    damage(BASE, lambda tensors: [tensors.pop(n) for n in list(tensors) if n.startswith("mtp.")])
    (place / "target").mkdir()
    with pytest.raises(UserError, match=r"no tensor under mtp\..*: make base"):
        nvfp4.quantize(MERGED, place / "target", base=BASE, profile=profile.load("tiny"), rows=[])
    assert not list((place / "target").iterdir())


def quantize_refused(message: str, *, quant: Quant | None = tiny.PROFILE.quant) -> None:
    """`nvfp4.quantize` refuses with this message and writes nothing."""
    target = Path("target")
    target.mkdir()
    altered = replace(tiny.PROFILE, quant=quant)
    with pytest.raises(UserError, match=message) as error:
        nvfp4.quantize(MERGED, target, base=BASE, profile=altered, rows=[])
    assert "\n" not in str(error.value)
    assert not list(target.iterdir())


def test_a_scheme_for_the_kv_cache_is_refused_in_profile_and_recipe(place: Path) -> None:
    assert tiny.PROFILE.quant is not None
    reason = r"kv_cache_scheme is .*corrupts the weights' scales; remove it"
    quantize_refused(reason, quant=replace(tiny.PROFILE.quant, kv_cache_scheme="FP8"))
    Path("target").rmdir()
    recipe = (
        "stage:\n  modifiers:\n    QuantizationModifier: {scheme: NVFP4, kv_cache_scheme: {num_bits: 8}}\n"
    )
    (MERGED / "recipe.yaml").write_text(recipe)
    quantize_refused(rf"recipe\.yaml: {reason}")
    Path("target").rmdir()
    (MERGED / "recipe.yaml").write_text(recipe.replace("{num_bits: 8}", "null"))
    quantize_refused("no calibration rows")


def test_what_is_quantised_already_is_refused(place: Path) -> None:
    shutil.copyfile(NVFP4 / "config.json", MERGED / "config.json")
    quantize_refused(r"quantised already; expected the merged BF16 checkpoint: make merge")


# ---- calibration, and what comes from where -----------------------------------------------------


def test_calibration_takes_a_row_of_each_bucket_in_turn() -> None:
    rows = [
        chat.Row(id=f"{bucket}{n}", bucket=bucket, group="", split="train", messages=[], tools=[])
        for bucket, count in (("mcp", 50), ("replay", 3), ("skills", 10))
        for n in range(count)
    ]
    chosen = [row.id for row in calibration.choose(rows, 12)]
    assert chosen[:6] == ["mcp0", "replay0", "skills0", "mcp1", "replay1", "skills1"]
    assert {
        bucket: sum(one.startswith(bucket) for one in chosen) for bucket in ("mcp", "replay", "skills")
    } == {
        "mcp": 5,
        "replay": 3,
        "skills": 4,
    }
    everything = calibration.choose(rows, 1000)
    assert len(everything) == len(rows) == len({row.id for row in everything})


def test_long_rows_are_cut_to_their_last_tokens(base_dir: Path) -> None:
    from core.generate import load_tokenizer

    tokenizer = load_tokenizer(base_dir)
    rows = chat.read_rows(ROOT / "examples/replay.jsonl")[:3]
    whole, cut = (calibration.samples(rows, tokenizer, length) for length in (10**6, 50))
    assert max(map(len, whole)) > 50
    assert cut == [sample[-50:] for sample in whole]


def test_finishing_a_checkpoint_twice_changes_nothing(place: Path) -> None:
    before = {name: file.read_bytes() for name, file in artifacts.payload(NVFP4).items()}
    nvfp4.finish(MERGED, NVFP4, base=BASE, mtp=True)
    assert {name: file.read_bytes() for name, file in artifacts.payload(NVFP4).items()} == before


def test_what_another_tool_lost_beside_the_weights_comes_from_the_base(place: Path) -> None:
    for name in ("preprocessor_config.json", "video_preprocessor_config.json", "tokenizer.json"):
        (MERGED / name).unlink()
        (NVFP4 / name).unlink()
    (MERGED / "chat_template.jinja").write_text("another tool's")
    (MERGED / "recipe.yaml").write_text("another tool's")
    recipe = (NVFP4 / "recipe.yaml").read_bytes()
    assert len(inspect.faults(NVFP4)) == 3
    nvfp4.finish(MERGED, NVFP4, base=BASE, mtp=True)
    assert inspect.faults(NVFP4) == []
    assert (NVFP4 / "chat_template.jinja").read_bytes() == (BASE / "chat_template.jinja").read_bytes()
    assert (NVFP4 / "recipe.yaml").read_bytes() == recipe


def test_llm_compressor_s_checkpoint_is_one_that_vllm_would_load(
    quantized_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"CHECKPOINT={quantized_run / NVFP4}", f"AGAINST={quantized_run / MERGED}"]
    assert inspect.main([*WORDS, *words]) == DONE
    shown = capsys.readouterr().out
    experts = re.escape(f"{LAYERS}.N.mlp.experts.N")
    assert re.search(rf"^{experts}\.gate_proj +NVFP4 +32 .* with up_proj; input: 1 a layer$", shown, re.M)
    assert re.search(rf"^{experts}\.down_proj +NVFP4 +32 .* own; input: [2-8] a layer$", shown, re.M)
    assert "19 of 19 modules on the ignore list" in shown
    assert re.search(
        r"^mtp\.fc +changed +1 ", shown, re.M
    )  # its MTP head is the base's, the merged one's is zero
    assert re.search(r"^model\.\S+\.N\.self_attn\.q_proj +BF16 -> NVFP4 +2 ", shown, re.M)
    assert not re.search(r"^model\.\S+linear_attn\S+ +changed", shown, re.M)


# ---- production's checkpoint --------------------------------------------------------------------


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tiny profile with a short calibration."""
    assert tiny.PROFILE.quant is not None
    quant = replace(tiny.PROFILE.quant, calibration_rows=1)
    monkeypatch.setattr(tiny, "PROFILE", replace(tiny.PROFILE, quant=quant))
    yield


def test_an_embedded_production_is_the_base_in_nvfp4(
    place: Path, few_rows: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "examples").symlink_to(ROOT / "examples")
    assert production.main(WORDS) == DONE
    assert production.main(WORDS) == DONE
    assert "up to date" in capsys.readouterr().out
    restored = dequantize.plan(shards.read_checkpoint(Path("models/tiny-production")))
    assert restored.keys() == shards.read_checkpoint(BASE).keys()


def test_a_downloaded_production_is_recorded_and_a_missing_one_only_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["PROFILE=qwen3_6_35b_a3b", "RUN=one", f"MODELS_DIR={tmp_path}"]
    path = tmp_path / "Qwen3.6-35B-A3B-NVFP4"
    assert production.main(words) == DONE
    assert f"hf download RedHatAI/Qwen3.6-35B-A3B-NVFP4 --local-dir {path}" in capsys.readouterr().out
    assert not path.exists()
    path.mkdir()
    (path / "config.json").write_text("{}")
    assert production.main(words) == DONE
    assert artifacts.require(path, "base")["files"].keys() == {"config.json"}
