"""The mlx backend beside the plain one: the same logits, labels, losses and weights, here on a CPU."""

import json
import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm")  # its wheel needs glibc 2.35

import mlx.core as mx
import numpy as np

from core import config, generate, shards
from core.errors import UserError
from core.render import IGNORE
from core.settings import TrainSettings
from tests import little_llama, merging
from trainer import backends
from trainer.backends import mlx, plain
from trainer.job import Job, Stopped
from trainer.learning import states
from trainer.learning.samples import Sample
from trainer.planning import plan

WORDS = ["PROFILE=tiny", "RUN=x", "LORA_RANK=4", "LORA_ALPHA=8", "BATCH_SIZE=4", "LEARNING_RATE=0.002"]
WORDS += ["TRAIN_SEED=100", "EPOCHS=2", "SAVE_STEPS=2", "EVAL_STEPS=0"]


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    rng = random.Random(100)
    found = []
    for number in range(12):
        ids = [rng.randrange(3, 300) for _ in range(rng.randrange(8, 30))]
        labels = [token if i > 4 and i % 3 else IGNORE for i, token in enumerate(ids)]
        found.append(Sample(ids, labels, f"row-{number}", "mcp_calls"))
    return found


def make_job(base_dir: Path, out: Path, *words: str) -> Job:
    given = config.split_words([*WORDS, f"MODELS_DIR={base_dir.parent}"]) | config.split_words(words)
    settings = config.parse(TrainSettings, [f"{name}={value}" for name, value in given.items()])
    planned = plan.of(settings, shards.read_checkpoint(settings.base_dir))
    return Job(settings, planned, out, out / "states", settings.batch_size, settings.accumulate)


def weights(adapted: Any) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in adapted.arrays().items()}


@pytest.fixture(scope="module")
def trained(base_dir, samples, tmp_path_factory):
    """An adapter of the mlx backend, and its log."""
    job = make_job(base_dir, tmp_path_factory.mktemp("mlx"))
    model, tokenizer = mlx.load(job)
    plan.check_trained({name: p.numel() for name, p in model.named_parameters()}, job.plan)
    return model, mlx.fit(model, tokenizer, samples, job), job


def test_logits_are_those_of_transformers(base_dir, tokenizer, tmp_path):
    import torch

    model, _ = mlx.load(make_job(base_dir, tmp_path))
    ids = tokenizer("¿Qué ha cambiado en el repositorio?")["input_ids"]
    with torch.no_grad():
        theirs = generate.load_model(base_dir, "float32")(torch.tensor([ids])).logits[0].numpy()
    ours = np.array(model.model(mx.array([ids]))[0])
    assert np.abs(ours - theirs).max() < 1e-3 * theirs.std()


def test_it_trains_as_the_plain_backend_does(base_dir, samples, trained, tmp_path):
    adapted, log, _ = trained
    compare(adapted, log, make_job(base_dir, tmp_path), samples)


def test_a_mistral_trains_as_in_the_plain_backend(samples, tmp_path, monkeypatch):
    from transformers import MistralConfig, MistralForCausalLM

    little = little_llama.install(monkeypatch, tmp_path)
    base = tmp_path / little.base
    shape = MistralConfig(**json.loads((base / "config.json").read_text()) | {"model_type": "mistral"})
    MistralForCausalLM(shape).bfloat16().save_pretrained(base)
    job = make_job(base, tmp_path / "mlx", f"PROFILE={little.name}")
    adapted, tokenizer = mlx.load(job)
    log = mlx.fit(adapted, tokenizer, samples, job)
    compare(adapted, log, replace(job, states=tmp_path / "plain"), samples)


def compare(adapted: Any, log: list[dict[str, Any]], job: Job, samples: list[Sample]) -> None:
    """Train the same by the plain backend; losses, norms, rates and weights are within 0.1 %."""
    model, tokenizer = plain.load(job)
    theirs = [entry for entry in plain.fit(model, tokenizer, samples, job) if "loss" in entry]
    assert len(log) == len(theirs) == 6
    for ours, other in zip(log, theirs, strict=True):
        for name in ("loss", "grad_norm", "learning_rate"):
            assert ours[name] == pytest.approx(other[name], rel=1e-3)
    end = {
        n.replace(".default", ""): p.detach().numpy() for n, p in model.named_parameters() if p.requires_grad
    }
    found = weights(adapted)
    assert found.keys() == end.keys()
    for name, values in found.items():
        assert np.abs(values - end[name]).max() < 1e-3, name


def test_a_stopped_run_goes_on_as_if_undisturbed(base_dir, samples, tmp_path, monkeypatch):
    from trainer.backends import mlx_loop

    undisturbed = make_job(base_dir, tmp_path / "undisturbed", "LORA_DROPOUT=0.2")
    model, tokenizer = mlx.load(undisturbed)
    whole = mlx.fit(model, tokenizer, samples, undisturbed)
    end = weights(model)

    job = make_job(base_dir, tmp_path / "stopped", "LORA_DROPOUT=0.2")
    model, tokenizer = mlx.load(job)
    step = mlx_loop._Loop.take_step

    def interrupted(self: Any) -> None:
        step(self)
        if self.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(mlx_loop._Loop, "take_step", interrupted)
        with pytest.raises(Stopped, match="after step 3 of 6"):
            mlx.fit(model, tokenizer, samples, job)
    newest = states.latest(job.states)
    assert newest and states.step_of(newest) == 3
    model, tokenizer = mlx.load(job)
    log = mlx.fit(model, tokenizer, samples, job)
    assert log == whole
    assert all(np.array_equal(one, end[name]) for name, one in weights(model).items())


def test_its_adapter_merges_to_what_mlx_fuses(base_dir, trained, tmp_path, monkeypatch):
    import torch

    from core.shards import write_checkpoint
    from quant import lora, merge

    adapted, _, job = trained
    monkeypatch.chdir(tmp_path)
    base, adapter, merged = Path("fp32"), Path("adapter"), Path("merged")
    shutil.copytree(base_dir, base, ignore=shutil.ignore_patterns("*.safetensors*", "manifest.json"))
    tensors = {name: lora.load(info).float() for name, info in shards.read_checkpoint(base_dir).items()}
    write_checkpoint(base, tensors, max_shard_bytes=1 << 30)
    adapter.mkdir()
    replace(adapted, job=job).save_pretrained(adapter)
    words = [f"BASE={base}", f"ADAPTER={adapter}", f"MERGED={merged}"]
    assert merge.main([*merging.WORDS, *words]) == 0
    result = shards.read_checkpoint(merged)
    for name, module in adapted.modules.items():
        fused = torch.from_numpy(np.array(module.fuse().weight))
        found = lora.load(result[f"{name}.weight"])
        assert (found - fused).abs().max() <= 1e-6, name


def test_neither_routers_nor_experts_are_trained(trained):
    adapted, _, job = trained
    names = [name for name, _ in adapted.named_parameters()]
    assert len(names) == 2 * len(job.plan.modules)
    assert not any(".gate." in name or "experts" in name.split(".") for name in names)


def test_a_batch_larger_than_the_data_is_one_step_of_all_of_it(base_dir, samples, tmp_path):
    job = make_job(base_dir, tmp_path, "BATCH_SIZE=64", "EPOCHS=1")
    model, tokenizer = mlx.load(job)
    (step,) = mlx.fit(model, tokenizer, samples, job)
    assert step["loss"] > 0


@pytest.mark.parametrize("word", ["PACKING=1", "OPTIMIZER=adafactor"])
def test_what_it_lacks_is_refused(base_dir, samples, tmp_path, word):
    job = make_job(base_dir, tmp_path, word)
    model, tokenizer = mlx.load(job)
    with pytest.raises(UserError, match=word.split("=")[0]):
        mlx.fit(model, tokenizer, samples, job)


def test_a_cpu_is_taken_only_when_asked_for_by_name(monkeypatch):
    from core import profile

    monkeypatch.setattr("sys.platform", "linux")
    both = replace(profile.load("tiny"), backends=("mlx", "plain"))
    assert backends.choose(both, "")[0] == "plain"
    assert backends.choose(both, "")[1] == {"mlx": "no Apple GPU"}
    assert backends.choose(both, "mlx")[0] == "mlx"
