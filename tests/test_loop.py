"""Nothing lost: however a training is interrupted, it ends with the bytes of an undisturbed one."""

import json
import math
import os
import signal
from pathlib import Path

import pytest

from core.errors import UserError
from tests.training import Training, rows
from trainer.job import Stopped
from trainer.learning import metrics, states


@pytest.fixture(scope="module")
def whole(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """An undisturbed run of nine steps, with states after every second and evaluations after every third."""
    words = ("SAVE_STEPS=2", "EVAL_STEPS=3")
    return Training(tmp_path_factory.mktemp("whole"), base_dir, words).start()


def interrupted(training: Training, at: int, monkeypatch: pytest.MonkeyPatch, number: int) -> Stopped:
    """Run until the signal that arrives during step `at`."""
    from trainer.learning.loop import Loop

    step = Loop.training_step

    def signalled(self: Loop, *args: object) -> object:
        if self.state.global_step + 1 == at:
            os.kill(os.getpid(), number)
        return step(self, *args)

    with monkeypatch.context() as patch, pytest.raises(Stopped) as stopped:
        patch.setattr(Loop, "training_step", signalled)
        training.start()
    return stopped.value


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_step_in_progress_and_the_run_goes_on_to_the_same_bytes(
    whole, tmp_path, monkeypatch, number
):
    run = Training(tmp_path, whole.base, ("SAVE_STEPS=100",))
    stopped = interrupted(run, 5, monkeypatch, number)
    assert str(stopped) == "stopped after step 5 of 9; the state of step 5 is kept"
    assert [path.name for path in run.states.iterdir()] == ["step-000005"]
    assert len(metrics.read(run.metrics)) == 5
    run.start()
    assert run.losses() == whole.losses()
    assert run.adapter() == whole.adapter()


def test_a_crash_costs_the_steps_since_the_last_state_and_no_line_is_written_twice(
    whole, tmp_path, monkeypatch
):
    run = Training(tmp_path, whole.base, whole.words)
    interrupted(run, 7, monkeypatch, signal.SIGTERM)
    (run.states / "step-000007").rename(tmp_path / "lost")  # as if it had not been saved
    with run.metrics.open("a") as file:
        file.write('{"step": 8, "lo')  # what a kill may leave
    assert states.latest(run.states) == run.states / "step-000006"
    run.start()
    assert run.adapter() == whole.adapter()
    told = metrics.read(run.metrics)
    assert [entry["step"] for entry in told if "loss" in entry] == list(range(1, 10))
    assert [entry["step"] for entry in told if "eval_loss" in entry] == [3, 6, 9]


def test_a_damaged_state_is_noticed_and_the_one_before_is_used(whole, tmp_path, capsys):
    run = whole.copy(tmp_path / "run")
    assert sorted(path.name for path in run.states.iterdir()) == ["step-000006", "step-000008"]
    file = run.states / "step-000008" / "optimizer.pt"
    file.write_bytes(file.read_bytes()[:-100])
    run.start()
    told = capsys.readouterr()
    assert "the state step-000008 is not used: optimizer.pt is damaged" in told.err
    assert "going on after step 6" in told.out
    assert run.adapter() == whole.adapter()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "optimizer.pt is damaged"),
        (lambda file: file.write_bytes(b"x" + file.read_bytes()[1:]), "optimizer.pt is damaged"),
        (lambda file: file.unlink(), "optimizer.pt is missing"),
        (lambda file: (file.parent / "manifest.json").unlink(), "it has no manifest"),
    ],
    ids=["truncated", "corrupt", "missing", "no manifest"],
)
def test_every_damage_to_a_state_is_seen(tmp_path, base_dir, capsys, fault, reason):
    settings = Training(tmp_path, base_dir).job().settings
    for step in (2, 4, 6):
        with states.writing(tmp_path, states.name_of(states.STEP, step), settings) as directory:
            (directory / "optimizer.pt").write_bytes(bytes([step] * 99))
    fault(tmp_path / "step-000006/optimizer.pt")
    assert states.latest(tmp_path) == tmp_path / "step-000004"
    assert capsys.readouterr().err == f"train: the state step-000006 is not used: {reason}\n"
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-000004"]


def test_evaluations_change_nothing_and_tell_each_bucket(whole, tmp_path):
    run = Training(tmp_path, whole.base).start()
    assert run.adapter() == whole.adapter()
    assert run.losses() == whole.losses()
    (first, *_), found = metrics.evaluations(whole.log), metrics.evaluations(whole.log)
    assert [entry["step"] for entry in found] == [3, 6, 9]
    assert {"eval_loss", "eval_mcp_loss", "eval_skills_loss", "eval_replay_loss"} <= first.keys()
    assert first["eval_loss"] not in (first["eval_replay_loss"], 0)
    assert metrics.evaluations(run.log) == []
    assert (whole.directory / "out/x/loss.png").stat().st_size > 1000


@pytest.mark.parametrize("how", ["packed", "one row at a time"])
def test_how_the_rows_of_a_step_are_grouped_does_not_change_the_training(
    base_dir, tmp_path, monkeypatch, how
):
    from trainer.learning import packing

    words = ("BATCH_SIZE=4", "LORA_DROPOUT=0", "MAX_STEPS=2", *(["PACKING=1"] if how == "packed" else []))
    other = Training(tmp_path / "other", base_dir, words, batch=0 if how == "packed" else 1).start()
    monkeypatch.setattr(packing, "packed", packing.padded)  # the same steps, padded
    monkeypatch.setattr(packing, "enable", lambda *_: packing.Measured(0, 0, 0, "float32", 0))
    padded = Training(tmp_path / "padded", base_dir, words).start()
    assert len(padded.losses()) == 2
    for one, two in zip(padded.log[:2], other.log[:2], strict=True):
        assert math.isclose(one["loss"], two["loss"], rel_tol=2e-5)
        assert math.isclose(one["grad_norm"], two["grad_norm"], rel_tol=2e-4)


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_rows(whole, tmp_path, monkeypatch):
    from trainer.learning.loop import Loop

    mean = Loop.compute_loss

    def poisoned(self: Loop, *args, **more):
        bad = self.state.global_step == 4
        return mean(self, *args, **more) * (math.nan if bad else 1)

    run = Training(tmp_path, whole.base, whole.words)
    monkeypatch.setattr(Loop, "compute_loss", poisoned)
    with pytest.raises(UserError, match=r"the loss of step 5 is nan: look at its rows \(train-\d\d, train-"):
        run.start()
    assert sorted(path.name for path in run.states.iterdir()) == ["step-000002", "step-000004"]
    monkeypatch.undo()
    run.start()
    assert run.adapter() == whole.adapter()


def test_a_gradient_that_is_not_finite_stops_the_run_before_the_optimiser(whole, tmp_path, monkeypatch):
    from trainer.learning.loop import Loop

    step = Loop.training_step

    def poisoned(self: Loop, model, *args):
        loss = step(self, model, *args)
        next(p for p in model.parameters() if p.grad is not None).grad[0] = math.inf
        return loss

    monkeypatch.setattr(Loop, "training_step", poisoned)
    with pytest.raises(UserError, match=r"the gradient of step 1 is (nan|inf)"):
        Training(tmp_path, whole.base).start()


def test_a_full_disk_costs_a_state_and_not_the_run(whole, tmp_path, monkeypatch, capsys):
    import torch

    save, written = torch.save, []

    def full(data, file, *args, **more):
        written.append(str(file))
        if "step-000004" in str(file):
            raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 128 vs 22")
        return save(data, file, *args, **more)

    run = Training(tmp_path, whole.base, ("SAVE_STEPS=2", "MAX_STEPS=5"))
    monkeypatch.setattr(torch, "save", full)
    run.start()
    assert any("step-000004" in name for name in written)
    lines = [line for line in capsys.readouterr().err.splitlines() if "not saved" in line]
    assert len(lines) == 1
    assert lines[0].startswith("train: step-000004 is not saved (")
    assert [path.name for path in run.states.iterdir()] == ["step-000002"]
    assert states.fault_in(run.states / "step-000002") is None


def test_training_stops_when_it_helps_no_more_and_keeps_the_best(whole, tmp_path, monkeypatch):
    from trainer.learning import evaluation

    found = iter([3.0, 2.0, 2.5, 2.1, 1.0])
    monkeypatch.setattr(evaluation, "losses", lambda *_: {"eval_loss": next(found)})
    words = ("EVAL_STEPS=1", "EARLY_STOP=2", "MAX_STEPS=9", "SAVE_STEPS=4")
    stopped = Training(tmp_path / "stopped", whole.base, words).start()
    assert len(stopped.losses()) == 4, "two evaluations after the best"
    assert [path.name for path in stopped.states.iterdir()] == ["best-000002"]
    best = stopped.states / "best-000002/adapter_model.safetensors"
    assert best.read_bytes() == (stopped.directory / "adapter/adapter_model.safetensors").read_bytes()


def test_replay_does_not_decide_an_early_stop():
    from trainer.learning import evaluation
    from trainer.learning.samples import Sample

    buckets = {name: [Sample([1, 2], [-100, 2], name, name)] for name in ("mcp", "replay")}
    found = evaluation.losses(lambda part: 1.0 if part[0].bucket == "mcp" else 9.0, buckets, 4)
    assert found == {"eval_loss": 1.0, "eval_mcp_loss": 1.0, "eval_replay_loss": 9.0}
    log = [{"step": i, "eval_loss": loss} for i, loss in enumerate([3, 2, 2, 2.5])]
    assert evaluation.best(log) == 1
    assert evaluation.exhausted(log, 2)
    assert not evaluation.exhausted(log, 3)


def test_a_dry_run_leaves_no_state(whole, tmp_path):
    run = Training(tmp_path, whole.base, ("SAVE_STEPS=1", "EVAL_STEPS=1"), steps=2).start()
    assert len(run.losses()) == 2
    assert not list(run.states.glob("step-*"))


def test_what_is_told_of_a_step(whole):
    (first, *_) = (json.loads(line) for line in whole.metrics.read_text().splitlines())
    assert first.keys() == {
        "step", "loss", "grad_norm", "learning_rate", "token_accuracy", "tokens_per_second"
    }  # fmt: skip
    assert first["tokens_per_second"] > 0
    samples = sum(len(row.train_turns or (0, 1)) for row in rows(10))
    assert len(whole.losses()) == math.ceil(samples / 2) == 9
