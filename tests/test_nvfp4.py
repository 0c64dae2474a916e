"""NVFP4: what is quantised stays near, what is not stays the same bytes; refusals write nothing."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, chat, profile, shards, verdicts
from core.errors import DONE, NEGATIVE, UserError
from core.profiles import tiny
from quant import dequantize, nvfp4, production, quantize

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
torch = pytest.importorskip("torch")
pytest.importorskip("llmcompressor")
from safetensors.torch import load_file  # noqa: E402  (needs torch)

ROOT = Path(__file__).parent.parent
WORDS = ["PROFILE=tiny", "RUN=one", "MODELS_DIR=models"]
QUANTIZE = [*WORDS, "CALIBRATION_ROWS=4"]
BASE, MERGED = Path("models/tiny"), Path("models/one/merged")
NVFP4, BF16, VERDICT = Path("models/one/nvfp4"), Path("models/one/nvfp4-bf16"), Path("out/one/verdict/merged")
LAYERS = "model.language_model.layers"
A_LOG = f"{LAYERS}.0.linear_attn.A_log"
PASSES = {"loss": "no_change", "tool_calls": "improves", "skills": "improves"}
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""OCP Microscaling Formats 1.0, table 5."""
CONTENTS = ("config.json", "tokenizer.json", "chat_template.jinja", "preprocessor_config.json")


@pytest.fixture(scope="module")
def made(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which quantize and dequantize have run, on a merged checkpoint unlike its base.

    Its MTP head is zeroed and one of its A_log is float32, which the config's dtype is not.
    """
    place = tmp_path_factory.mktemp("made")
    with contextlib.chdir(place):
        shutil.copytree(base_dir, BASE)
        tensors = load(BASE)
        tensors |= {n: torch.zeros_like(t) for n, t in tensors.items() if n.startswith("mtp.")}
        tensors[A_LOG] = tensors[A_LOG].float() + 1e-6
        with artifact(MERGED) as draft:
            for file in BASE.iterdir():
                if file.suffix != ".safetensors" and file.name != artifacts.MANIFEST:
                    shutil.copy(file, draft.path)
            shards.write_checkpoint(draft.path, tensors, max_shard_bytes=1_500_000)
        with artifact(Path("data/tiny/dataset"), "dataset") as draft:
            rows = chat.read_rows(ROOT / "examples/replay.jsonl")[:8]
            chat.write_rows(draft.path / "train.jsonl", rows)
        judge(PASSES)
        assert quantize.main(QUANTIZE) == DONE
        assert dequantize.main(WORDS) == DONE
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a copy of `made`."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def artifact(path: Path, kind: str = "checkpoint", **inputs: dict[str, str]) -> Any:
    """An artefact under construction."""
    return artifacts.create(path, kind=kind, profile="tiny", run="one", settings={}, inputs=inputs)


def judge(gates: dict[str, str]) -> None:
    """Write a verdict on the merged checkpoint."""
    judged = artifacts.as_input(MERGED, artifacts.require(MERGED, "merge"))
    with artifact(VERDICT, "verdict", checkpoint=judged) as draft:
        found = {"gates": {gate: {"verdict": verdict} for gate, verdict in gates.items()}}
        (draft.path / verdicts.FILE).write_text(json.dumps(found), encoding="utf-8")


def load(checkpoint: Path) -> dict[str, Any]:
    """Every tensor of a checkpoint."""
    return {n: t for file in shards.shard_files(checkpoint) for n, t in load_file(file).items()}


def raw(checkpoint: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every tensor's dtype, shape and bytes."""
    found = shards.read_checkpoint(checkpoint).items()
    return {name: (info.dtype, info.shape, shards.read_bytes(info)) for name, info in found}


def quantized_names() -> set[str]:
    """The matrices that the ignore list leaves to NVFP4, as the checkpoint is saved: experts one by one."""
    names = {f"{LAYERS}.{n}.self_attn.{p}_proj" for n in (1, 3) for p in "qkvo"}
    for mlp in (f"{LAYERS}.{n}.mlp" for n in range(4)):
        modules = [f"{mlp}.shared_expert", *(f"{mlp}.experts.{e}" for e in range(8))]
        names |= {f"{module}.{p}_proj" for module in modules for p in ("gate", "up", "down")}
    return names


def matrix(tensors: dict[str, Any], name: str) -> Any:
    """One of `quantized_names` out of tensors in the base's layout, where experts are fused."""
    match = re.fullmatch(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj", name)
    if match is None:
        return tensors[f"{name}.weight"].float()
    experts, index, leaf = match[1], int(match[2]), match[3]
    if leaf == "down":
        return tensors[f"{experts}.down_proj"][index].float()
    return tensors[f"{experts}.gate_up_proj"][index].float().chunk(2)[leaf == "up"]


def relative_errors(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, float]:
    """||found - wanted|| / ||wanted|| of each quantised matrix."""
    pairs = {name: (matrix(found, name), matrix(wanted, name)) for name in quantized_names()}
    return {name: float((one - other).norm() / other.norm()) for name, (one, other) in pairs.items()}


def damage(checkpoint: Path, change: Any) -> None:
    """Write the checkpoint anew with its tensors changed by `change`."""
    tensors = load(checkpoint)
    change(tensors)
    for file in shards.shard_files(checkpoint):
        file.unlink()
    shards.write_checkpoint(checkpoint, tensors, max_shard_bytes=10_000_000)


# ---- what is quantised, and how near it stays ---------------------------------------------------


def test_exactly_what_the_ignore_list_leaves_is_quantised(made: Path) -> None:
    packed = {n.removesuffix(".weight_packed") for n in load(made / NVFP4) if n.endswith("_packed")}
    assert packed == quantized_names()
    assert len(packed) == artifacts.require(made / NVFP4, "quantize")["counts"]["quantized_linears"]


def test_every_matrix_stays_within_the_error_of_nvfp4(made: Path) -> None:
    found = relative_errors(load(made / BF16), load(made / MERGED))
    assert min(found.values()) > 0
    assert max(found.values()) < 0.12


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


def test_values_are_those_of_the_format_s_definition(made: Path) -> None:
    tensors, restored = load(made / NVFP4), load(made / BF16)
    for name in sorted(quantized_names())[::7]:
        packed = tensors[f"{name}.weight_packed"].tolist()
        scale = tensors[f"{name}.weight_scale"].float()
        divisor = float(tensors[f"{name}.weight_global_scale"])
        nibbles = [[nibble for byte in row for nibble in (byte & 15, byte >> 4)] for row in packed]
        values = [[E2M1[n & 7] * (-1 if n & 8 else 1) for n in row] for row in nibbles]
        wanted = torch.tensor(values) * scale.repeat_interleave(16, 1) / divisor
        torch.testing.assert_close(matrix(restored, name), wanted, rtol=2**-8, atol=0)


@pytest.mark.parametrize("group", [*tiny.PROFILE.quant.fused] if tiny.PROFILE.quant else [])
def test_fused_matrices_share_their_global_scale(made: Path, group: tuple[str, ...]) -> None:
    tensors = load(made / NVFP4)
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


def test_what_is_not_quantised_keeps_the_merged_checkpoint_s_bytes(made: Path) -> None:
    merged, found, restored = raw(made / MERGED), raw(made / NVFP4), raw(made / BF16)
    untouched = [n for n in merged if n in found and not n.startswith("mtp.")]
    assert {A_LOG, f"{LAYERS}.0.input_layernorm.weight", "lm_head.weight"} < set(untouched)
    assert merged[A_LOG][0] == "F32"
    for name in untouched:
        assert merged[name] == found[name] == restored[name], name


def test_the_mtp_head_is_the_base_s(made: Path) -> None:
    base = {n: t for n, t in raw(made / BASE).items() if n.startswith("mtp.")}
    assert len(base) > 5
    for directory in (NVFP4, BF16):
        assert {n: t for n, t in raw(made / directory).items() if n.startswith("mtp.")} == base
    config = json.loads((made / NVFP4 / "config.json").read_text())
    assert "re:^mtp.*" in config["quantization_config"]["ignore"]


def test_names_shapes_and_dtypes_come_back(made: Path) -> None:
    merged, restored = raw(made / MERGED), raw(made / BF16)
    assert {n: t[:2] for n, t in restored.items()} == {n: t[:2] for n, t in merged.items()}


def test_the_files_beside_the_weights_are_the_source_s(made: Path) -> None:
    beside = {n: p for n, p in artifacts.payload(made / MERGED).items() if p.suffix != ".safetensors"}
    assert set(CONTENTS) < set(beside)
    for directory in (made / NVFP4, made / BF16):
        for name in beside.keys() - {"config.json", shards.INDEX}:
            assert (directory / name).read_bytes() == beside[name].read_bytes(), name
        assert {file.stat().st_mode & 0o777 for file in artifacts.payload(directory).values()} == {0o644}
    config = json.loads(beside["config.json"].read_text())
    quantised = json.loads((made / NVFP4 / "config.json").read_text())
    assert quantised.pop("quantization_config")["format"] == dequantize.FORMAT
    assert quantised == json.loads((made / BF16 / "config.json").read_text()) == config


def test_transformers_loads_the_dequantised_checkpoint_whole(made: Path) -> None:
    from transformers import AutoModelForImageTextToText

    loaded: Any = AutoModelForImageTextToText.from_pretrained(made / BF16, output_loading_info=True)
    info = loaded[1]
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    assert all(name.startswith("mtp.") for name in info["unexpected_keys"])


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


def test_force_is_recorded_and_the_bytes_are_the_same_again(place: Path) -> None:
    before = artifacts.require(NVFP4, "quantize")
    assert (before["counts"]["forced"], before["counts"]["verdict"][:8]) == (False, "improves")
    shutil.rmtree(NVFP4)
    judge(PASSES | {"skills": "worse"})
    assert quantize.main([*QUANTIZE, "FORCE=1"]) == DONE
    after = artifacts.require(NVFP4, "quantize")
    assert (after["counts"]["forced"], after["counts"]["verdict"][:5]) == (True, "worse")
    assert after["files"] == before["files"]


def test_the_second_run_does_nothing_whatever_the_verdict_that_passes(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge({"skills": "improves"})
    assert quantize.main(QUANTIZE) == dequantize.main(WORDS) == DONE
    assert capsys.readouterr().out.count("up to date") == 2


def test_dequantising_needs_the_nvfp4_checkpoint_alone(place: Path) -> None:
    before = artifacts.require(BF16, "dequantize")["files"]
    for path in (BASE, MERGED, BF16, Path("data"), Path("out")):
        shutil.rmtree(path)
    assert dequantize.main(WORDS) == DONE
    assert artifacts.require(BF16, "dequantize")["files"] == before


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
        dequantize.dequantize(MERGED, place)


def test_a_declared_mtp_head_that_the_base_lacks_is_refused(place: Path) -> None:
    damage(BASE, lambda tensors: [tensors.pop(n) for n in list(tensors) if n.startswith("mtp.")])
    (place / "target").mkdir()
    with pytest.raises(UserError, match=r"no tensor under mtp\..*: make base"):
        nvfp4.quantize(MERGED, place / "target", base=BASE, profile=profile.load("tiny"), rows=[])
    assert not list((place / "target").iterdir())


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
