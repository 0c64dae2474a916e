"""`make plan` and the head of `make train`: what a run will take, and what cannot be is one line."""

import json

import pytest

from core import artifacts, config
from core.errors import DONE, NEGATIVE, UserError
from core.settings import TrainSettings
from trainer import plan_stage, train
from trainer.learning import samples
from trainer.planning import forecast, memory
from trainer.running import preparation

TOKENS = {"samples": 100, "all": 20_000, "longest": 500}


@pytest.fixture
def words(base_dir, tmp_path, monkeypatch):
    """The settings of a run on a dataset of 100 samples, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    facts = {"profile": "tiny", "run": "r", "settings": {}, "inputs": {}}
    with artifacts.create(tmp_path / "data/tiny/dataset", kind="dataset", **facts) as draft:
        (draft.path / "train.jsonl").write_text("{}\n")
        draft.counts = {"tokens": {"train": TOKENS}}
    return ["PROFILE=tiny", "RUN=r", f"MODELS_DIR={base_dir.parent}", "TRAIN_SEED=100", "EPOCHS=2"]


def made(words) -> forecast.Forecast:
    settings = config.parse(TrainSettings, words)
    return forecast.make(settings, artifacts.require(settings.data_dir / "dataset", "dataset"))


def test_the_plan_shows_modules_memory_steps_and_disk(words, capsys):
    assert plan_stage.main(words) == DONE
    shown = capsys.readouterr().out
    assert "together                         30        135,424" in shown
    assert "plan: steps    25 of 8 rows, 40,000 tokens, time not known yet: make dry-run" in shown
    assert "plan: memory" in shown
    assert "activations" in shown
    assert "plan: disk     5.4 MB" in shown


def test_a_plan_above_the_limit_is_a_verdict_and_training_does_not_begin(words, capsys):
    assert plan_stage.main([*words, "MEMORY_LIMIT=0.1"]) == NEGATIVE
    assert "MEMORY_LIMIT=0.1 GB: lower BATCH_SIZE" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"it would take .* MEMORY_LIMIT=0\.1 GB"):
        train.main([*words, "MEMORY_LIMIT=0.1"])


def test_steps_end_at_max_steps_and_the_last_one_may_be_short(words):
    assert (made(words).steps, made(words).tokens) == (25, 40_000)
    assert (made([*words, "MAX_STEPS=5"]).steps, made([*words, "MAX_STEPS=5"]).tokens) == (5, 8_000)
    assert made([*words, "MAX_STEPS=99"]).steps == 25
    assert made([*words, "ACCUMULATE=3"]).steps == 9


def test_the_time_comes_from_the_last_dry_run(words, tmp_path, capsys):
    assert made(words).seconds is None
    (tmp_path / "out/r").mkdir(parents=True)
    (tmp_path / "out/r" / forecast.RATE).write_text(json.dumps({"tokens_per_second": 500}))
    assert made(words).seconds == 80
    assert plan_stage.main(words) == DONE
    assert "1:20 at 500 tokens/s" in capsys.readouterr().out


def test_more_rows_a_device_step_take_more_memory_and_accumulation_does_not(words, monkeypatch):
    monkeypatch.setattr(forecast.room, "place", lambda: "gpu")
    peak = made(words).estimate.peak
    assert made([*words, "BATCH_SIZE=16"]).estimate.peak > peak
    assert made([*words, "ACCUMULATE=4"]).estimate.peak == peak
    assert made([*words, "OPTIMIZER=adamw_8bit"]).estimate.adapter < made(words).estimate.adapter


def test_a_cpu_takes_a_step_of_many_tokens_in_parts(words, monkeypatch):
    monkeypatch.setattr(forecast.room, "place", lambda: "cpu")
    most = memory.AT_ONCE["cpu"]
    assert most
    peak = made(words).estimate.peak
    assert most < 8 * TOKENS["longest"]
    assert made([*words, "BATCH_SIZE=16"]).estimate.peak == peak
    assert made([*words, "BATCH_SIZE=2"]).estimate.peak < peak
    settings = config.parse(TrainSettings, words)
    assert preparation.task(settings, words, "plain", settings.out_dir, settings.out_dir).tokens == most


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("SCHEDULE=cosin", "SCHEDULE=cosin: expected one of linear, cosine,"),
        ("OPTIMIZER=adam", "OPTIMIZER=adam: expected one of adamw_torch_fused,"),
        (
            "OPTIMIZER=adamw_8bit",
            "OPTIMIZER=adamw_8bit needs CUDA and bitsandbytes, and here is no NVIDIA GPU",
        ),
        ("LORA_LAYERS=9", "LORA_LAYERS=9: the base has the layers 0-3"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(words, word, message, monkeypatch):
    monkeypatch.setattr("core.machine.kind", lambda: "cpu")
    with pytest.raises(UserError) as refused:
        preparation.prepare(config.parse(TrainSettings, [*words, word]), "plan")
    assert str(refused.value).startswith(message)


def test_a_dry_run_takes_the_longest_rows_and_others_of_all_lengths():
    made = [samples.Sample([0] * n, [0] * n, str(n), "made") for n in range(1, 101)]
    taken = [len(sample.input_ids) for sample in samples.spread(made, 10)]
    assert len(taken) == 10
    assert max(taken) == 100
    assert min(taken) <= 10
    assert [len(s.input_ids) for s in samples.spread(made[:3], 10)] == [3, 2, 1]
