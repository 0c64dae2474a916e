"""inspect AGAINST: what differs between two checkpoints is told exactly."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from core import shards
from core.errors import DONE
from quant import inspect
from quant.inspecting import compare
from quant.inspecting.modules import family
from tests.nvfp4_stand_in import LAYERS, Q, Tensors, altered, look, make_base, make_nvfp4, plain

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BF16 checkpoint."""
    return make_base(tmp_path_factory.mktemp("inspect") / "base")


@pytest.fixture(scope="module")
def nvfp4(base: Path) -> Path:
    """The stand-in for its NVFP4."""
    return make_nvfp4(base)


def compared(new: Path, old: Path) -> dict[tuple[str, str], int]:
    rows = compare.families(inspect.read(new).modules, inspect.read(old).modules)
    return {(name, what): count for name, what, count, _ in rows}


def test_a_checkpoint_is_identical_to_itself_however_it_is_cut_into_shards(
    nvfp4: Path, tmp_path: Path
) -> None:
    path = altered(nvfp4, tmp_path / "one", lambda *_: None)
    found = compared(path, nvfp4)
    assert {what for _, what in found} == {compare.IDENTICAL}
    rows = compare.families(inspect.read(path).modules, inspect.read(nvfp4).modules)
    assert sum(row[3] for row in rows) == sum(
        t.stop - t.start for t in shards.read_checkpoint(nvfp4).values()
    )


def test_one_flipped_bit_changes_exactly_its_module(nvfp4: Path, tmp_path: Path) -> None:
    path = tmp_path / "one"
    shutil.copytree(nvfp4, path)
    info = shards.read_checkpoint(path)[f"{Q}.weight_packed"]
    with info.file.open("r+b") as file:
        file.seek(info.stop - 1)
        file.write(b"\x01")
    apart = {key: count for key, count in compared(path, nvfp4).items() if key[1] != compare.IDENTICAL}
    assert apart == {(family(Q), "changed"): 1}


def test_each_kind_of_difference_is_told_apart(nvfp4: Path, tmp_path: Path) -> None:
    def change(tensors: Tensors, _: dict[str, Any]) -> None:
        plain(tensors, Q, torch.bfloat16)
        del tensors["lm_head.weight"]
        tensors["model.new.weight"] = torch.zeros(2, 2)
        tensors["mtp.norm.weight"] = torch.zeros(32)

    apart = compared(altered(nvfp4, tmp_path / "one", change), nvfp4)
    assert {key: count for key, count in apart.items() if key[1] != compare.IDENTICAL} == {
        (family(Q), "NVFP4 -> BF16"): 1,
        ("lm_head", "missing"): 1,
        ("model.new", "added"): 1,
        ("mtp.norm", "BF16 -> F32"): 1,
    }


def test_a_base_and_its_nvfp4_are_compared_under_the_stack_s_name(
    base: Path, nvfp4: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(nvfp4, base)
    experts = f"{LAYERS}.N.mlp.experts"
    assert {what: count for (name, what), count in found.items() if name.startswith(experts)} == {
        "BF16 -> NVFP4": 4
    }
    assert {what for _, what in found} == {compare.IDENTICAL, "BF16 -> NVFP4"}
    assert look(nvfp4, base) == DONE
    shown = capsys.readouterr().out
    assert re.search(rf"^{re.escape(experts)}\.gate_up_proj +BF16 -> NVFP4 +4 ", shown, re.M)
    assert re.search(r"^config\.json quantization_config: \{.*… \(there null\)$", shown, re.M)


def test_config_and_files_that_differ_are_named(nvfp4: Path, tmp_path: Path) -> None:
    def change(_: Tensors, config: dict[str, Any]) -> None:
        config["text_config"]["num_experts_per_tok"] = 3
        config["quantization_config"]["ignore"].append("re:extra.*")

    path = altered(nvfp4, tmp_path / "one", change)
    (path / "chat_template.jinja").write_text("other", encoding="utf-8")
    (path / "recipe.yaml").write_text("", encoding="utf-8")
    one, two = inspect.read(path), inspect.read(nvfp4)
    assert list(compare.settings(one.config, two.config)) == [
        'config.json quantization_config.ignore: with "re:extra.*"',
        "config.json text_config.num_experts_per_tok: 3 (there 2)",
    ]
    assert list(compare.files(path, nvfp4)) == [
        "chat_template.jinja: differs",
        f"recipe.yaml: only in {path}",
    ]
