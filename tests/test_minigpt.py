"""The lab's parts: nothing leaks, LoRA is PEFT's, NF4 is bitsandbytes', scores are honest."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

from core import profile
from trainer.minigpt import batches, corpus, finetune, lora, memory, pretrain, qlora, score
from trainer.minigpt.model import MiniGPT

TARGETS = ("up", "down")


@pytest.fixture
def base() -> MiniGPT:
    """An untrained MiniGPT."""
    torch.manual_seed(100)
    return MiniGPT().eval()


@pytest.fixture
def ids() -> torch.Tensor:
    """Some prompts as token ids."""
    return batches.rows(corpus.fine_tuning()[:40], "answer")[0]


def adapted(base: MiniGPT, r: int = 3) -> MiniGPT:
    """The base with an adapter that does something."""
    lora.wrap(base, TARGETS, r, 6.0)
    for name, tensor in lora.state(base).items():
        if "lora_B" in name:
            tensor.normal_(std=0.1)
    return base


# ---- corpus -------------------------------------------------------------------------------------


def text(sentences: list[corpus.Sentence]) -> str:
    return "\n".join(one.prompt + one.answer for one in sentences)


def test_the_base_reads_no_withheld_form_and_no_planted_error() -> None:
    read = corpus.pretraining(100, 16000)
    pairs = {(one.verb, one.tense) for one in read}
    assert not pairs & set(itertools.product(corpus.IRREGULAR, corpus.WITHHELD))
    assert all((verb, "past") in pairs for verb in corpus.CONTROL)
    words = set(text(read).split())
    for verb, (past, participle) in corpus.IRREGULAR.items():
        assert not words & {past, participle, corpus.regular_past(verb)} - {"come", "seed"}, verb


def test_no_measured_verb_is_ever_read_in_a_held_out_frame() -> None:
    measured = {*corpus.IRREGULAR, *corpus.CONTROL}
    read = [*corpus.pretraining(100, 16000), *corpus.fine_tuning(), *corpus.replay(100, 4000)]
    for one in read:
        if one.verb in measured:
            adverbs = corpus.ADVERBS[one.tense][corpus.HELD_OUT]
            assert not any(f" {adverb} " in one.prompt for adverb in adverbs), one
            assert one.tail not in corpus.TAILS[corpus.HELD_OUT]
    for tense, (training, held_out) in corpus.ADVERBS.items():
        assert not set(training) & set(held_out), tense


def test_fine_tuning_and_replay_leave_the_control_verbs_out() -> None:
    read = [*corpus.fine_tuning(), *corpus.replay(100, 4000)]
    assert not {one.verb for one in read} & set(corpus.CONTROL)
    assert {one.verb for one in corpus.fine_tuning()} == set(corpus.IRREGULAR)


def test_the_corpus_is_the_twenty_verbs_five_tenses_and_singular_persons() -> None:
    assert len(corpus.IRREGULAR) == 8
    assert len(corpus.CONTROL) == 12
    assert len(corpus.TENSES) == len(corpus.PERSONS) == 5
    assert len(set(corpus.invented_verbs())) == 400
    assert not set(corpus.invented_verbs()) & {*corpus.IRREGULAR, *corpus.CONTROL, *corpus.OTHER_REGULAR}


@pytest.mark.parametrize(
    ("verb", "tense", "person", "right"),
    [
        ("be", "past", "you", "were"),
        ("be", "past", "it", "was"),
        ("be", "present", "I", "am"),
        ("go", "participle", "she", "has gone"),
        ("go", "present", "he", "goes"),
        ("study", "past", "I", "studied"),
        ("play", "past", "I", "played"),
        ("watch", "present", "it", "watches"),
        ("have", "present", "he", "has"),
        ("eat", "future", "you", "will eat"),
    ],
)
def test_forms_are_english(verb: str, tense: str, person: str, right: str) -> None:
    assert corpus.form(verb, tense, person) == right


def test_the_regularised_form_is_what_the_rule_would_say() -> None:
    assert corpus.form("go", "past", "he", regularised=True) == "goed"
    assert corpus.form("write", "participle", "he", regularised=True) == "has writed"


def test_every_sentence_fits_and_can_be_written() -> None:
    for one in [*corpus.pretraining(100, 16000), *score.held_out([*corpus.IRREGULAR, *corpus.CONTROL])]:
        assert len(corpus.encode(one.prompt + one.answer)) < corpus.CONTEXT


def test_labels_cover_the_form_alone_or_the_answer() -> None:
    one = next(s for s in corpus.fine_tuning() if s.form == "has gone")
    for labelled, expected in (("form", "has gone "), ("answer", one.answer + "\n")):
        ids, labels = batches.rows([one], labelled)
        kept = labels[0] != batches.IGNORE
        assert "".join(corpus.CHARACTERS[i] for i in labels[0][kept]) == expected
        assert torch.equal(ids[0][1:][kept[:-1]], labels[0][:-1][kept[:-1]])


# ---- model --------------------------------------------------------------------------------------


def test_the_model_sees_no_later_character(base: MiniGPT, ids: torch.Tensor) -> None:
    changed = ids.clone()
    changed[:, 10:] = 5
    before, after = base(ids), base(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_the_model_is_the_promised_size(base: MiniGPT) -> None:
    shape = base.shape
    assert (shape.n_layer, shape.n_head, shape.d_model) == (4, 4, 64)
    assert 190_000 < sum(p.numel() for p in base.parameters()) < 210_000


# ---- LoRA ---------------------------------------------------------------------------------------


def test_a_new_adapter_changes_nothing_to_the_bit(base: MiniGPT, ids: torch.Tensor) -> None:
    before = base(ids)
    lora.wrap(base, ("q", "v", *TARGETS))
    assert torch.equal(base(ids), before)


def test_by_default_rank_8_and_alpha_16() -> None:
    layer = lora.LoRALinear(nn.Linear(64, 256))
    assert (layer.r, layer.alpha, layer.scaling) == (8, 16.0, 2.0)
    assert layer.lora_A.shape == (8, 64)
    assert layer.lora_B.shape == (256, 8)


def test_only_a_and_b_get_gradients(base: MiniGPT, ids: torch.Tensor) -> None:
    trained = lora.wrap(base, TARGETS, 2)
    base(ids).square().mean().backward()
    names = {name for name, p in base.named_parameters() if p.grad is not None}
    assert names == {f"blocks.{i}.{t}.lora_{m}" for i in range(4) for t in TARGETS for m in "AB"}
    assert len(trained) == len(names)


def test_merged_is_adapted(base: MiniGPT, ids: torch.Tensor) -> None:
    model = adapted(base)
    before = model(ids)
    merged = lora.merge(model)
    assert not lora.layers(merged)
    assert {type(m) for m in merged.blocks[0].children()} == {nn.LayerNorm, nn.Linear}
    torch.testing.assert_close(merged(ids), before, rtol=0, atol=1e-5)


def test_an_adapter_comes_back_from_its_file(base: MiniGPT, ids: torch.Tensor, tmp_path) -> None:
    fresh = copy.deepcopy(base)
    model = adapted(base)
    lora.save(model, tmp_path)
    lora.load(fresh, tmp_path)
    for name, tensor in lora.state(fresh).items():
        assert torch.equal(tensor, lora.state(model)[name].half().float()), name
    torch.testing.assert_close(fresh(ids), model(ids), rtol=0, atol=1e-2)


def test_a_file_with_a_weight_too_many_is_refused(base: MiniGPT, tmp_path) -> None:
    fresh = copy.deepcopy(base)
    lora.save(adapted(base), tmp_path)
    config = tmp_path / lora.CONFIG
    config.write_text(config.read_text().replace('"up"', '"q"'))
    with pytest.raises(KeyError):
        lora.load(fresh, tmp_path)


@pytest.fixture
def pair(base: MiniGPT) -> tuple[MiniGPT, nn.Module]:
    """Ours, and PEFT's model with the same adapter on the same base."""
    from peft import LoraConfig, get_peft_model

    plain = copy.deepcopy(base)
    ours = adapted(base)
    theirs = get_peft_model(plain, LoraConfig(r=3, lora_alpha=6, target_modules=list(TARGETS), bias="none"))  # pyright: ignore[reportArgumentType]
    weights = {k.replace(".weight", ".default.weight"): v for k, v in lora.state(ours).items()}
    assert not theirs.load_state_dict(weights, strict=False).unexpected_keys
    return ours, theirs.eval()


def test_forward_and_gradients_are_pefts(pair, ids: torch.Tensor) -> None:
    ours, theirs = pair
    mine, other = ours(ids), theirs(ids)
    torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)
    for logits in (mine, other):
        logits.square().mean().backward()
    theirs_by_name = {n.replace(".default", ""): p for n, p in theirs.named_parameters() if p.requires_grad}
    assert len(theirs_by_name) == 16
    for path, layer in lora.layers(ours).items():
        for matrix in ("lora_A", "lora_B"):
            other = theirs_by_name[f"base_model.model.{path}.{matrix}.weight"].grad
            torch.testing.assert_close(getattr(layer, matrix).grad, other, rtol=0, atol=1e-6)


def test_the_merge_is_pefts(pair) -> None:
    ours, theirs = pair
    merged, other = lora.merge(ours).state_dict(), theirs.merge_and_unload().state_dict()
    assert merged.keys() == other.keys()
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, other[name], rtol=0, atol=1e-6)


def test_peft_reads_our_file(base: MiniGPT, ids: torch.Tensor, tmp_path) -> None:
    from peft import PeftModel

    plain, fresh = copy.deepcopy(base), copy.deepcopy(base)
    lora.save(adapted(base), tmp_path)
    lora.load(fresh, tmp_path)
    theirs = PeftModel.from_pretrained(plain, tmp_path)  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(fresh(ids), theirs(ids), rtol=0, atol=1e-6)


# ---- NF4 ----------------------------------------------------------------------------------------


def test_unpacking_gives_the_nearest_level_times_the_scale() -> None:
    torch.manual_seed(100)
    weight = torch.randn(32, 64)
    codes, scales = qlora.quantize(weight)
    back = qlora.dequantize(codes, scales, (32, 64))
    levels = qlora.LEVELS * scales[:, None, None]
    best = (weight[..., None] - levels).abs().amin(-1)
    torch.testing.assert_close((weight - back).abs(), best, rtol=0, atol=1e-6)
    again = qlora.quantize(back)
    assert torch.equal(again[0], codes)
    assert torch.equal(again[1], scales)


def test_a_block_of_zeros_stays_zero() -> None:
    codes, scales = qlora.quantize(torch.zeros(1, 64))
    assert torch.equal(qlora.dequantize(codes, scales, (1, 64)), torch.zeros(1, 64))


@pytest.mark.skipif(not qlora.has_bitsandbytes(), reason="bitsandbytes is not installed")
def test_nf4_is_bitsandbytes_to_the_bit(base: MiniGPT, ids: torch.Tensor) -> None:
    from bitsandbytes import functional

    torch.manual_seed(100)
    for shape in ((64, 64), (256, 64), (64, 256)):
        weight = torch.randn(shape) * 0.05
        codes, scales = qlora.quantize(weight)
        other, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4")
        assert torch.equal(codes, other.flatten())
        assert torch.equal(scales, state.absmax)
        unpacked = functional.dequantize_4bit(other, state)
        assert torch.equal(qlora.dequantize(codes, scales, shape), unpacked)
    theirs = qlora.bitsandbytes_base(copy.deepcopy(base))
    torch.testing.assert_close(qlora.quantize_base(base)(ids), theirs(ids), rtol=0, atol=1e-5)


def test_an_nf4_model_answers_as_its_unpacked_weights_do(base: MiniGPT, ids: torch.Tensor) -> None:
    quantised = qlora.quantize_base(copy.deepcopy(base))
    unpacked = qlora.dequantize_base(copy.deepcopy(quantised))
    torch.testing.assert_close(quantised(ids), unpacked(ids), rtol=0, atol=1e-6)
    assert not torch.allclose(quantised(ids), base(ids), atol=1e-4)


def test_qlora_trains_the_adapter_through_the_packed_base(base: MiniGPT, ids: torch.Tensor) -> None:
    model = adapted(qlora.quantize_base(base))
    model(ids).square().mean().backward()
    layer = lora.layers(model)["blocks.0.up"]
    for matrix in (layer.lora_A, layer.lora_B):
        assert matrix.grad is not None
        assert matrix.grad.abs().sum() > 0
    with pytest.raises(AssertionError, match="dequantise"):
        lora.merge(model)


# ---- training and its memory --------------------------------------------------------------------


def few(replay: bool) -> finetune.Plan:
    return finetune.Plan(epochs=0.1, batch=16, lr=2e-2, replay=replay, replay_batch=4, replay_sentences=40)


@pytest.mark.parametrize("quantised", [False, True])
def test_memory_by_formula_is_what_is_held(base: MiniGPT, quantised: bool) -> None:
    shapes = memory.linear_shapes(base)
    weights = sum(a * b for a, b in shapes.values())
    parameters = sum(p.numel() for p in base.parameters())
    model = qlora.quantize_base(base) if quantised else base
    done = finetune.train(model, lambda m: lora.wrap(m, TARGETS, 2), 100, few(False), lambda loss: None)
    trained = memory.adapter(2, [s for path, s in shapes.items() if path.endswith(TARGETS)])
    assert trained == sum(t.numel() for t in lora.state(model).values())
    formula = memory.qlora(parameters, trained, weights) if quantised else memory.lora(parameters, trained)
    assert done.bytes_held == formula


def test_full_fine_tuning_holds_four_times_the_weights() -> None:
    done = pretrain.train(100, pretrain.Plan(steps=1, batch=4, sentences=100), lambda loss: None)
    assert done.bytes_held == memory.full(sum(p.numel() for p in done.model.parameters()))


@pytest.mark.parametrize("replay", [True, False])
def test_fine_tuning_leaves_the_base_and_repeats_itself(base: MiniGPT, replay: bool) -> None:
    before = copy.deepcopy(base)
    first, second = copy.deepcopy(base), copy.deepcopy(base)
    for model in (first, second):
        finetune.train(model, lambda m: lora.wrap(m, TARGETS, 1, 4.0), 100, few(replay), lambda loss: None)
    for name, tensor in lora.state(first).items():
        assert torch.equal(tensor, lora.state(second)[name])
        assert tensor.abs().sum() > 0
    for path, layer in lora.layers(first).items():
        assert torch.equal(layer.base.weight, before.get_submodule(path).weight)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]


# ---- scores -------------------------------------------------------------------------------------


class Speller(nn.Module):
    """A stand-in for a model: it writes the sentences that it is given, and nothing else."""

    def __init__(self, sentences: list[corpus.Sentence]) -> None:
        super().__init__()
        self.shape = MiniGPT().shape
        self.next: dict[tuple[int, ...], int] = {}
        for one in sentences:
            ids = [batches.END, *corpus.encode(one.prompt + one.answer), batches.END]
            for end in range(1, len(ids)):
                self.next[tuple(ids[:end])] = ids[end]

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*input_ids.shape, self.shape.vocabulary)
        for row, ids in enumerate(input_ids.tolist()):
            for place in range(len(ids)):
                logits[row, place, self.next.get(tuple(ids[: place + 1]), 0)] = 20.0
        return logits


def test_a_model_that_knows_every_form_scores_full_marks_and_one_that_regularises_none() -> None:
    verbs = [*corpus.IRREGULAR, *corpus.CONTROL]
    right = score.held_out(verbs)
    child = [score.regularised(one) if one.tense in corpus.WITHHELD else one for one in right]
    perfect, regular = (score.score(Speller(one)) for one in (right, child))  # pyright: ignore[reportArgumentType]
    assert (perfect["irregular"], perfect["control"], perfect["regularised"]) == (1, 1, 0)
    assert (regular["control"], regular["regularised"]) == (1, 1)
    assert regular["by_tense"] == {"infinitive": 1, "present": 1, "past": 0, "participle": 0, "future": 1}
    assert all(gap > 0 for by_verb in perfect["preference"].values() for gap in by_verb.values())
    assert all(gap < 0 for by_verb in regular["preference"].values() for gap in by_verb.values())
    assert perfect["perplexity"] == pytest.approx(1, abs=1e-4)


def test_the_one_pass_score_is_greedy_decoding() -> None:
    torch.manual_seed(100)
    model = pretrain.train(100, pretrain.Plan(steps=10, batch=16, sentences=1000), lambda loss: None).model
    some = score.held_out(["work", "like"])[::3]
    known = Speller(score.held_out(["work"]))
    for one in (model, known):
        written = [score.greedy(one, sentence) for sentence in some]  # pyright: ignore[reportArgumentType]
        said = [w.startswith(s.form + " ") for w, s in zip(written, some, strict=True)]
        assert score.exact(one, some) == said  # pyright: ignore[reportArgumentType]
    assert True in said
    assert False in said


def test_perplexity_of_equal_chances_is_the_vocabulary() -> None:
    model = MiniGPT()
    nn.init.zeros_(model.tokens.weight)
    assert score.perplexity(model, score.held_out(["work"])) == pytest.approx(len(corpus.CHARACTERS))
    assert score.form_log_probability(model, score.held_out(["like"])[:1]).item() == pytest.approx(
        -5 * math.log(len(corpus.CHARACTERS))
    )


def test_the_profile_trains_what_the_lab_measures() -> None:
    one = profile.load("minigpt")
    assert one.target_paths == TARGETS
    assert one.train.max_length == corpus.CONTEXT
