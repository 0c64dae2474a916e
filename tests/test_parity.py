"""The parity probe: silent on a right merge, loud on every way in which merges go wrong."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import shards
from core.errors import UserError
from quant import lora, merge
from quant.merging import formulas, layout, plan
from quant.merging.ops import Op
from tests.merging import (
    ADAPTER,
    BASE,
    DENSE,
    EXPERTS,
    MERGED,
    WORDS,
    artifact,
    make_base,
    peft_model,
    raw,
    work_in,
)

torch = pytest.importorskip("torch")
pytest.importorskip("peft")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("bf16"), "bf16")


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> None:
    """A working directory that holds the bf16 base."""
    work_in(tmp_path, monkeypatch, made)


def save(
    scale: float = 1.0, edit: Callable[[dict[str, Any], dict[str, Any]], Any] | None = None, **options: Any
) -> None:
    """PEFT's adapter as the run's, its B scaled; `edit` changes tensors and config."""
    from safetensors.torch import load_file, save_file

    with artifact(ADAPTER, "adapter") as draft:
        peft_model(**options).save_pretrained(str(draft.path))
        file, config_file = draft.path / lora.WEIGHTS, draft.path / lora.CONFIG
        tensors, config = load_file(file), json.loads(config_file.read_text())
        for name in tensors:
            if ".lora_B." in name:
                tensors[name] = tensors[name] * scale
        if edit:
            edit(tensors, config)
        save_file(tensors, file, metadata={"format": "pt"})
        config_file.write_text(json.dumps(config))


def grouped(tensors: dict[str, Any], experts: int = 4) -> None:
    """Re-lay every stack's lora_B so that each expert's columns stand together."""
    for name, b in tensors.items():
        if ".lora_B." in name:
            tensors[name] = b.view(len(b), -1, experts).transpose(1, 2).reshape(b.shape).contiguous()


STACKS: dict[str, Any] = {"target_modules": [], "target_parameters": EXPERTS}


def test_a_right_merge_keeps_all_of_the_change(capsys: pytest.CaptureFixture[str]) -> None:
    save(0.2, target_modules=DENSE, target_parameters=EXPERTS)
    merge.main(WORDS)
    out = capsys.readouterr().out
    for family in ("layers.*.self_attn.q_proj", "layers.*.mlp.experts.down_proj"):
        assert f"parity: model.language_model.{family}: " in out
    found = json.loads((MERGED / "manifest.json").read_text())["counts"]["parity"]
    assert len(found) == len(DENSE) + len(EXPERTS)
    assert all(0.9 < family["kept"] < 1.1 and min(family["change"].values()) > 0 for family in found.values())


def test_a_zero_adapter_gives_the_very_bytes_of_the_base() -> None:
    # A weight of -0 is the one that adding a change of +0 would change.
    info = shards.read_checkpoint(BASE)["model.language_model.layers.3.self_attn.q_proj.weight"]
    with info.file.open("r+b") as file:
        file.seek(info.start)
        file.write(b"\x00\x80")
    save(0.0, target_modules=DENSE, target_parameters=EXPERTS)
    merge.main(WORDS)
    for file in shards.shard_files(BASE):
        assert (MERGED / file.name).read_bytes() == file.read_bytes()


def test_a_dora_adapter_as_it_starts_changes_less_than_rounding() -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3_5MoeForConditionalGeneration

    model: Any = Qwen3_5MoeForConditionalGeneration.from_pretrained(BASE)
    with artifact(ADAPTER, "adapter") as draft:
        config = LoraConfig(r=3, lora_alpha=6, target_modules=DENSE, use_dora=True)
        get_peft_model(model, config).save_pretrained(str(draft.path))
    merge.main(WORDS)
    change = json.loads((MERGED / "manifest.json").read_text())["counts"]["relative_change"]
    assert change["max"] < 2**-8


def test_a_family_whose_change_mostly_vanishes_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    save(2e-4, target_modules=["q_proj", "v_proj"])
    merge.main(WORDS)
    assert "warning: model.language_model.layers.*.self_attn.q_proj: rounding" in capsys.readouterr().out


# ---- planted faults ----------------------------------------------------------------------------


def block_wise(op: Op, b: Any, expert: int) -> Any:
    """The wrong reading of lora_B that others have."""
    return b.view(len(b), op.experts, -1)[:, expert]


def swapped(real: Callable[..., list[Op]]) -> Callable[..., list[Op]]:
    """gate_proj's change to up_proj and the other way round."""

    def make(*args: Any) -> list[Op]:
        ops = real(*args)
        pairs = {op.name: op for op in ops}
        found = []
        for op in ops:
            other = pairs.get(op.name.replace("gate_proj", "up_proj"), op)
            if other is op:
                other = pairs.get(op.name.replace("up_proj", "gate_proj"), op)
            found.append(replace(op, parts=other.parts))
        return found

    return make


def refused() -> str:
    with pytest.raises(UserError) as caught:
        merge.main(WORDS)
    assert not MERGED.exists()
    return str(caught.value)


@pytest.mark.parametrize("scale", [1.0, 0.01])
@pytest.mark.parametrize("parameters", [EXPERTS, EXPERTS[:1], EXPERTS[1:]])
def test_block_wise_experts_are_seen(
    scale: float, parameters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(scale, target_modules=[], target_parameters=parameters)
    monkeypatch.setattr(formulas, "_own_b", block_wise)
    assert (
        f"parity breaks in model.language_model.layers.*.{min(parameters, key=parameters.index)[:11]}"
        in refused()
    )


def test_swapped_matrices_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    save(0.05, target_modules=["gate_proj", "up_proj"])
    monkeypatch.setattr(plan, "make", swapped(plan.make))
    assert "parity breaks in model.language_model.layers.*.mlp.shared_expert." in refused()


@pytest.mark.parametrize(
    ("options", "scaling"),
    [
        ({}, lambda adapter, name: 1 / adapter.rank(name)),  # alpha forgotten
        ({"use_rslora": True}, lambda adapter, name: adapter.config["lora_alpha"] / adapter.rank(name)),
        ({"alpha_pattern": {"q_proj": 9}}, lambda adapter, name: 6 / adapter.rank(name)),
    ],
    ids=["alpha", "rslora", "alpha pattern"],
)
def test_a_wrong_scaling_is_seen(
    options: dict[str, Any], scaling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(0.05, target_modules=["q_proj"], **options)
    monkeypatch.setattr(lora.Adapter, "scaling", scaling)
    assert "parity breaks in model.language_model.layers.*.self_attn.q_proj" in refused()


def test_a_lost_magnitude_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    save(0.05, target_modules=["q_proj"], use_dora=True)
    real = formulas.merge_rows

    def plain(op: Op, parts: Any, *rest: Any) -> Any:
        return real(op, {part: t for part, t in parts.items() if part != "magnitude"}, *rest)

    monkeypatch.setattr(formulas, "merge_rows", plain)
    assert "parity breaks" in refused()


# ---- the layout of the experts' columns --------------------------------------------------------


def heavy_experts(tensors: dict[str, Any], experts: int = 4) -> None:
    """What training leaves: experts that saw more tokens moved further, one that saw none not at all."""
    for name, b in tensors.items():
        if ".lora_B." in name:
            moved = torch.tensor([0.0, 0.3, 1.0, 3.0])
            tensors[name] = (b.view(len(b), -1, experts) * moved).reshape(b.shape)


def test_the_stamp_is_believed() -> None:
    save(**STACKS)
    merge.main(WORDS)
    interleaved = raw(MERGED)
    save(
        edit=lambda tensors, config: (grouped(tensors), config.update(lora_B_layout="grouped_by_expert")),
        **STACKS,
    )
    merge.main(WORDS)
    assert raw(MERGED) == interleaved
    save(edit=lambda _, config: config.update(lora_B_layout="rank_major"), **STACKS)
    merge.main(WORDS)
    assert raw(MERGED) == interleaved


def by_unsloth(config: dict[str, Any]) -> None:
    config["auto_mapping"] = {"unsloth_fixed": True}


@pytest.mark.parametrize("old", [False, True])
def test_an_unstamped_adapter_of_unsloth_is_read_as_its_numbers_show(old: bool) -> None:
    save(edit=lambda tensors, _: heavy_experts(tensors), **STACKS)
    merge.main(WORDS)
    wanted = raw(MERGED)
    shutil.rmtree(MERGED)

    def edit(tensors: dict[str, Any], config: dict[str, Any]) -> None:
        heavy_experts(tensors)
        by_unsloth(config)
        if old:
            grouped(tensors)

    save(edit=edit, **STACKS)
    merge.main(WORDS)
    assert raw(MERGED) == wanted


def test_an_unstamped_adapter_of_unsloth_that_shows_nothing_is_refused() -> None:
    save(edit=lambda _, config: by_unsloth(config), **STACKS)
    message = refused()
    assert "written by Unsloth without lora_B_layout" in message
    assert "unsloth-zoo#1269" in message


def test_a_grouped_adapter_that_does_not_say_so_is_refused() -> None:
    save(edit=lambda tensors, _: (heavy_experts(tensors), grouped(tensors)), **STACKS)
    assert "looks grouped_by_expert" in refused()


@pytest.mark.parametrize("seed", range(20))
def test_numbers_without_a_difference_show_no_layout(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    stacks = [(torch.randn(64, 8 * 16, generator=generator), 16) for _ in range(4)]
    assert layout.shown(stacks) is None


def test_what_training_leaves_shows_the_layout() -> None:
    """A few steps of AdamW on the stacks, in PEFT's own layout."""
    model = peft_model(**STACKS)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.zero_()
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        tokens = torch.randint(8, (1, 6), generator=generator)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    with artifact(ADAPTER, "adapter") as draft:
        model.save_pretrained(str(draft.path))
    ops = plan.make(lora.read(ADAPTER), shards.read_checkpoint(BASE))
    trained = [(lora.load(op.parts["B"]), op.experts) for op in ops]
    assert layout.shown(trained) == "rank_major"
    relaid = [(b.view(len(b), -1, e).transpose(1, 2).reshape(b.shape), e) for b, e in trained]
    assert layout.shown(relaid) == "grouped_by_expert"
