"""What a run tells: metrics without a step twice, a tracker that is there, a canary that sings in time."""

import json

import pytest

from core.errors import UserError
from trainer.learning import canary, metrics


def test_metrics_can_be_read_while_they_are_written_and_a_resumed_run_repeats_none(tmp_path):
    path = tmp_path / "out/metrics.jsonl"
    file = metrics.Metrics(path, after_step=0)
    for step in range(1, 6):
        file.append({"step": step, "loss": 1 / step})
        assert metrics.read(path)[-1]["step"] == step
    with path.open("a") as handle:
        handle.write('{"step": 6, "lo')
    assert len(metrics.read(path)) == 5, "half a line is none"
    again = metrics.Metrics(path, after_step=3)
    again.append({"step": 4, "loss": 0.1})
    assert [entry["step"] for entry in metrics.read(path)] == [1, 2, 3, 4]
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]


def test_a_full_disk_costs_a_line_and_not_the_run(tmp_path, capsys):
    file = metrics.Metrics(tmp_path / "metrics.jsonl", after_step=0)
    file.path = tmp_path  # a directory: cannot be opened
    file.append({"step": 1})
    assert capsys.readouterr().err.count("\n") == 1


def test_a_tracker_that_is_not_there_is_named_with_the_mend(tmp_path, monkeypatch):
    assert metrics.report_to("", tmp_path) == []
    with pytest.raises(
        UserError, match=r"TRACKER=tensorbord: no such tracker \(did you mean tensorboard\?\)"
    ):
        metrics.report_to("tensorbord", tmp_path)
    monkeypatch.setattr(metrics, "find_spec", lambda _: None)
    for name in ("tensorboard", "trackio"):
        with pytest.raises(UserError, match=rf"TRACKER={name}: not installed: .*pip install {name}"):
            metrics.report_to(name, tmp_path)


def test_a_tracker_writes_beside_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "find_spec", lambda _: object())
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "")
    assert metrics.report_to("tensorboard", tmp_path) == ["tensorboard"]
    import os

    assert os.environ["TENSORBOARD_LOGGING_DIR"] == str(tmp_path / "tensorboard")


def log(**columns: list[float]) -> list[dict[str, float]]:
    names = columns.keys()
    return [
        dict(zip(names, values, strict=True), step=i)
        for i, values in enumerate(zip(*columns.values(), strict=True))
    ]


MOVING = [1.0 + i / 10 for i in range(10)]


@pytest.mark.parametrize(
    ("loss", "grad_norm", "accuracy", "said"),
    [
        (MOVING, MOVING, MOVING, None),
        ([0.0] * 10, MOVING, MOVING, "the loss is 0"),
        (MOVING, [1.0] * 10, MOVING, "the gradient norm is 1.0"),
        (MOVING, MOVING, [0.0] * 10, "the token accuracy is 0.0"),
        (MOVING, MOVING, [0.5] * 10, "the token accuracy is 0.5"),
        (MOVING, MOVING, [1.0] * 10, None),
        (MOVING, MOVING, [0.0] * 9 + [0.1], None),
    ],
)
def test_a_run_that_learns_nothing_is_noticed_after_ten_steps(loss, grad_norm, accuracy, said):
    found = canary.fault_in_log(log(loss=loss, grad_norm=grad_norm, token_accuracy=accuracy))
    assert found is None if said is None else said in str(found)
    assert canary.fault_in_log(log(loss=loss, grad_norm=grad_norm, token_accuracy=accuracy)[:9]) is None


def test_the_curves_are_the_same_bytes_each_time(tmp_path):
    entries = [*log(loss=[2.0, 1.0, 0.5]), {"step": 2, "eval_loss": 0.7}]
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    metrics.plot(entries, one)
    metrics.plot(entries, two)
    metrics.plot(entries[:3], tmp_path / "train.png")
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes() != (tmp_path / "train.png").read_bytes()
