"""Somebody else's adapter onto somebody else's checkpoint: BASE, ADAPTER, MERGED."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, shards
from core.errors import UserError
from quant import merge
from tests import tiny_model
from tests.conftest import run_make
from tests.merging import ATTENTION, EXPERTS, ROOT, peft_model, process, raw, save_adapter

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
PLACE = ["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models"]
WORDS = [*PLACE, "BASE=models/tiny", "ADAPTER=theirs", "MERGED=new/merged"]
BASE, ADAPTER, MERGED = Path("models/tiny"), Path("theirs"), Path("new/merged")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a base without a manifest, and PEFT's adapter on its attention."""
    place = tmp_path_factory.mktemp("alone")
    with contextlib.chdir(place):
        tiny_model.make(BASE)
        peft_model(target_modules=ATTENTION, text_only=True).save_pretrained(str(ADAPTER))
    return place


@pytest.fixture(autouse=True)
def base(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with copies of both."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def peft_config() -> dict[str, Any]:
    return json.loads((ADAPTER / "adapter_config.json").read_text())


def peft_tensors() -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(ADAPTER / "adapter_model.safetensors")


def test_as_a_command_with_the_probe_in_a_process_of_its_own() -> None:
    before = {p.relative_to(BASE.parent): p.stat().st_mtime_ns for p in BASE.parent.rglob("*")}
    done = process("-m", "quant.merge", words=WORDS)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "parity: model.layers.*.self_attn.q_proj: kept " in done.stdout
    assert "merge: 4 tensors merged" in done.stdout
    changed = {name for name, data in raw(BASE).items() if raw(MERGED)[name] != data}
    assert changed == {f"model.language_model.layers.3.self_attn.{name}.weight" for name in ATTENTION}
    manifest = artifacts.require(MERGED, "merge")
    assert (manifest["profile"], manifest["run"]) == ("none", "none")
    assert {p.relative_to(BASE.parent): p.stat().st_mtime_ns for p in BASE.parent.rglob("*")} == before
    index = json.loads((MERGED / shards.INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(map(len, raw(MERGED).values()))


def test_make_needs_no_trained_run() -> None:
    shown = run_make(ROOT, "-n", "merge", "BASE=b", "ADAPTER=a", "MERGED=m").stdout
    assert "-m quant.merge" in shown
    assert "-m trainer.train" not in shown
    assert "BASE='b' ADAPTER='a' MERGED='m'" in shown
    assert "-m trainer.train" in run_make(ROOT, "-n", "merge").stdout


def test_up_to_date_until_the_base_or_the_adapter_changes(capsys: pytest.CaptureFixture[str]) -> None:
    merge.main(WORDS)
    capsys.readouterr()
    merge.main(WORDS)
    assert capsys.readouterr().out == f"merge: up to date ({MERGED})\n"
    config = peft_config() | {"lora_alpha": 12}
    (ADAPTER / "adapter_config.json").write_text(json.dumps(config))
    merge.main(WORDS)
    assert "tensors merged" in capsys.readouterr().out


def test_an_adapter_in_shards_is_the_same_adapter() -> None:
    merge.main(WORDS)
    wanted = raw(MERGED)
    tensors, config = peft_tensors(), peft_config()
    shutil.rmtree(ADAPTER)
    names = sorted(tensors)
    weight_map = {name: f"adapter_model-0000{1 + n % 2}-of-00002.safetensors" for n, name in enumerate(names)}
    for file in sorted(set(weight_map.values())):
        save_adapter(ADAPTER, {name: tensors[name] for name in names if weight_map[name] == file}, config)
        (ADAPTER / "adapter_model.safetensors").rename(ADAPTER / file)
    index = {"metadata": {}, "weight_map": weight_map}
    (ADAPTER / "adapter_model.safetensors.index.json").write_text(json.dumps(index))
    merge.main(WORDS)
    assert raw(MERGED) == wanted


@pytest.mark.parametrize("stacked", [True, False])
def test_an_adapter_on_single_experts_fits_a_stack_as_well(stacked: bool) -> None:
    shutil.rmtree(BASE)
    tiny_model.make(BASE, single_experts=not stacked)
    infos = shards.read_checkpoint(BASE)
    shutil.rmtree(BASE)
    tiny_model.make(BASE, single_experts=True)
    generator = torch.Generator().manual_seed(3)
    tensors, weights = {}, {}
    for name, data in raw(BASE).items():
        if name.startswith("model.language_model.layers.") and ".mlp.experts." in name:
            info = shards.read_checkpoint(BASE)[name]
            module = f"base_model.model.{name.removesuffix('.weight')}"
            a = torch.randn(3, info.shape[1], generator=generator) * 0.1
            b = torch.randn(info.shape[0], 3, generator=generator) * 0.1
            tensors |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
            weight = torch.frombuffer(bytearray(data), dtype=torch.bfloat16).view(info.shape)
            weights[name] = weight + b @ a * 2
    shutil.rmtree(ADAPTER)
    config = {
        "peft_type": "LORA",
        "r": 3,
        "lora_alpha": 6,
        "target_modules": ["gate_proj", "up_proj", "down_proj"],
    }
    save_adapter(ADAPTER, tensors, config | {"target_modules": r".*experts\.\d+\..*_proj"})
    shutil.rmtree(BASE)
    tiny_model.make(BASE, single_experts=not stacked)
    merge.main(WORDS)
    after = raw(MERGED)
    assert infos.keys() == after.keys()
    if not stacked:
        found = {name: after[name] for name in weights}
    else:
        found = {}
        for name, info in infos.items():
            if ".mlp.experts." in name and name.startswith("model."):
                stack = torch.frombuffer(bytearray(after[name]), dtype=torch.bfloat16).view(info.shape)
                apart = tiny_model.unstack({name: stack})
                found |= {n: t.contiguous().view(torch.uint8).numpy().tobytes() for n, t in apart.items()}
    wanted = {n: t.bfloat16().contiguous().view(torch.uint8).numpy().tobytes() for n, t in weights.items()}
    assert found == wanted


def test_a_stack_of_experts_in_shards_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """gate_up_proj and down_proj in different files, experts one by one over several files."""
    from safetensors.torch import load_file

    peft_model(target_modules=[], target_parameters=EXPERTS).save_pretrained(str(ADAPTER))
    merge.main(WORDS)
    wanted = raw(MERGED)
    tensors = {name: t for file in shards.shard_files(BASE) for name, t in load_file(file).items()}
    shutil.rmtree(BASE)
    tiny_model.make(BASE)
    for file in BASE.glob("*.safetensors"):
        file.unlink()
    shards.write_checkpoint(BASE, tiny_model.unstack(tensors), max_shard_bytes=20_000)
    merge.main(WORDS)
    stacks = {n: torch.frombuffer(bytearray(b), dtype=torch.bfloat16) for n, b in wanted.items()}
    shaped = {n: t.view(tensors[n].shape) for n, t in stacks.items()}
    apart = {
        n: t.contiguous().view(torch.uint8).numpy().tobytes() for n, t in tiny_model.unstack(shaped).items()
    }
    assert raw(MERGED) == apart


@pytest.mark.parametrize("left_out", ["BASE", "ADAPTER", "MERGED"])
def test_all_three_are_named_or_none(left_out: str) -> None:
    with pytest.raises(UserError, match=f"{left_out} is blank"):
        merge.main([word for word in WORDS if not word.startswith(left_out)])


@pytest.mark.parametrize("where", ["models/tiny", "models/tiny/merged", "models", "theirs", "theirs/x"])
def test_inputs_are_never_overwritten(where: str) -> None:
    before = raw(BASE)
    with pytest.raises(UserError, match="would overwrite or lie inside"):
        merge.main([*WORDS[:-1], f"MERGED={where}"])
    assert raw(BASE) == before


def test_a_directory_that_is_no_merge_is_left_alone() -> None:
    MERGED.mkdir(parents=True)
    (MERGED / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="was not made by a merge"):
        merge.main(WORDS)
    assert (MERGED / "thesis.txt").read_text() == "mine"


def test_a_missing_directory_is_named() -> None:
    with pytest.raises(UserError, match="ADAPTER=nowhere: no such directory"):
        merge.main([*WORDS[:-2], "ADAPTER=nowhere", "MERGED=new/merged"])


def test_a_directory_without_an_adapter_is_named() -> None:
    (ADAPTER / "adapter_config.json").unlink()
    with pytest.raises(UserError, match=r"adapter_config\.json: no such file"):
        merge.main(WORDS)


def test_a_pickled_adapter_is_refused() -> None:
    (ADAPTER / "adapter_model.safetensors").rename(ADAPTER / "adapter_model.bin")
    with pytest.raises(UserError, match="is a pickle"):
        merge.main(WORDS)
