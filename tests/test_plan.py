"""The plan: what is trained, of which layers, at what cost; PEFT trains exactly that, or the run stops."""

import pytest

from core import profile, shards
from core.errors import UserError
from trainer.planning.plan import check_trained as check
from trainer.planning.plan import choose_layers, make_plan, table

TINY = profile.load("tiny")
RANK = 4


@pytest.fixture(scope="module")
def tensors(base_dir):
    return shards.read_checkpoint(base_dir)


@pytest.fixture(scope="module")
def prepared(base_dir, tensors):
    """(what PEFT makes trainable, the plan) by the plan's options; each on the real model."""
    from peft import LoraConfig, get_peft_model

    from core.generate import load_model

    def prepare(**options):
        plan = make_plan(TINY, tensors, RANK, **options)
        lora = LoraConfig(
            r=RANK, target_modules=plan.pattern, target_parameters=list(plan.target_parameters) or None
        )
        model = get_peft_model(load_model(base_dir, "float32"), lora)
        return {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}, plan

    return prepare


@pytest.mark.parametrize("layers", ["", "last 2"])
@pytest.mark.parametrize("experts", [False, True])
def test_peft_trains_what_the_plan_says(prepared, layers, experts):
    trainable, plan = prepared(experts=experts, layers=layers)
    check(trainable, plan)
    assert sum(trainable.values()) == plan.parameters == sum(f.parameters for f in plan.families)
    assert len(trainable) == 2 * (len(plan.modules) + len(plan.target_parameters))


@pytest.mark.parametrize("fault", ["one expert weight", "one layer", "a larger rank", "the router"])
def test_experts_trained_otherwise_are_caught(prepared, fault):
    trainable, plan = prepared(experts=True)
    experts = [name for name in trainable if ".mlp.experts." in name]
    assert experts
    if fault == "one expert weight":
        changed = {n: size for n, size in trainable.items() if ".experts.base_layer." not in n}
    elif fault == "one layer":
        changed = {n: size for n, size in trainable.items() if not (n in experts and ".layers.0." in n)}
    elif fault == "a larger rank":
        changed = {n: size * (2 if n in experts else 1) for n, size in trainable.items()}
    else:
        changed = {**trainable, "base_model.model.model.language_model.layers.0.mlp.gate.weight": 64}
    with pytest.raises(AssertionError):
        check(changed, plan)


def test_experts_with_dropout_are_refused(tensors):
    with pytest.raises(UserError, match=r"LORA_EXPERTS=1 needs LORA_DROPOUT=0 \(it is 0.05\)"):
        make_plan(TINY, tensors, RANK, experts=True, dropout=0.05)


def test_a_target_that_is_not_there_and_one_too_many_are_refused(tensors):
    from dataclasses import replace

    absent = replace(TINY, families={**TINY.families, "attention": ("self_attn.qkv_proj",)})
    with pytest.raises(UserError, match=r"no tensor .*self_attn\.qkv_proj\.weight in the base: make verify"):
        make_plan(absent, tensors, RANK)
    one = next(info for name, info in tensors.items() if name.endswith("self_attn.q_proj.weight"))
    vision = {f"model.visual.{TINY.layers_prefix}.{3}.self_attn.q_proj.weight": one}
    with pytest.raises(UserError, match=r"would also match model\.visual"):
        make_plan(TINY, {**tensors, **vision}, RANK)


def test_layers_are_chosen_by_their_end_or_by_numbers():
    there = range(8)
    assert choose_layers("", there) == set(there)
    assert choose_layers("last 3", there) == {5, 6, 7}
    assert choose_layers("0-2 7", there) == {0, 1, 2, 7}
    for wrong in ("8", "3-9", "last", "first 2", "2-1", "last 0", "1,2"):
        with pytest.raises(UserError, match=f"LORA_LAYERS={wrong}: "):
            choose_layers(wrong, there)


def test_the_table_adds_up(tensors):
    plan = make_plan(TINY, tensors, RANK, experts=True)
    *lines, last = table(plan, RANK).splitlines()
    shown = [int(line.split()[-1].replace(",", "")) for line in lines[1:]]
    assert [line.split()[0] for line in lines[1:]] == [
        "attention",
        "gated_deltanet",
        "shared_expert",
        "experts",
    ]
    assert f" {sum(shown):,} " in last
