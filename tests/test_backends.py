"""What the backends share: the adapter's start, its targets and layout; and how a training is launched."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from core import config, profile
from core.errors import UserError
from core.settings import TrainSettings
from quant import lora, merge
from tests.training import Training
from trainer import backends
from trainer.backends import adapter, unsloth
from trainer.job import Task
from trainer.running import launch

QWEN = profile.load("qwen3_6_35b_a3b")


def settings(**more: object) -> TrainSettings:
    """Of PROFILE=tiny."""
    words = {"PROFILE": "tiny", "RUN": "one", "MODELS_DIR": "models", "TRAIN_SEED": 0} | more
    return config.parse(TrainSettings, [f"{name}={value}" for name, value in words.items()])


def command(directory: Path, backend: str = "plain", **more: object) -> list[str]:
    """What would be started for a task in that directory."""
    task = Task(
        words=[], backend=backend, out="out/one", states=str(directory), adapter="a", batch=1, accumulate=1
    )
    return launch.command(settings(**more), task)


def test_the_start_follows_from_name_and_seed_alone():
    first = adapter.first_lora_a("a.lora_A.weight", (4, 100), 0)
    assert first.equal(adapter.first_lora_a("a.lora_A.weight", (4, 100), 0))
    assert not first.equal(adapter.first_lora_a("b.lora_A.weight", (4, 100), 0))
    assert not first.equal(adapter.first_lora_a("a.lora_A.weight", (4, 100), 1))
    assert 0.09 < float(first.abs().max()) <= 0.1, "uniform in +-1/sqrt(in)"


def test_experts_are_trained_as_planned_and_merged(base_dir, tmp_path, monkeypatch, capsys):
    words = ("LORA_EXPERTS=1", "LORA_DROPOUT=0", "MAX_STEPS=1", "LORA_RANK=3")
    run = Training(tmp_path, base_dir, words)
    job = run.job()
    assert job.plan.parameters == sum(job.plan.sizes.values())
    assert len(job.plan.target_parameters) == 8, "two stacks in each of four layers"
    run.start()
    capsys.readouterr()
    saved = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert saved["target_parameters"] == list(job.plan.target_parameters)
    found = lora.read(tmp_path / "adapter")
    trained = sum(info.shape[0] * info.shape[1] for p in found.modules.values() for info in p.values())
    assert trained == job.plan.parameters
    monkeypatch.chdir(tmp_path)
    places = [f"BASE={base_dir}", "ADAPTER=adapter", "MERGED=merged"]
    assert merge.main(["PROFILE=tiny", "RUN=x", "MODELS_DIR=.", *places]) == 0
    said = capsys.readouterr().out
    assert "mlp.experts.gate_up_proj: kept" in said
    assert "merge: 38 tensors merged" in said


def test_an_adapter_on_experts_says_how_its_columns_lie(tmp_path):
    class Peft:
        """A stand-in: what PEFT, and Unsloth with its stamp, write."""

        def __init__(self, **written: object) -> None:
            self.written = written

        def save_pretrained(self, directory: Path) -> None:
            (directory / "adapter_config.json").write_text(json.dumps(self.written))

    def layout(**written: object) -> str | None:
        adapter.save(Peft(**written), tmp_path)
        return json.loads((tmp_path / "adapter_config.json").read_text()).get("lora_B_layout")

    experts = {"target_parameters": ["mlp.experts.down_proj"]}
    assert layout(**experts) == "rank_major"
    assert layout(**experts, lora_B_layout="grouped_by_expert") == "grouped_by_expert"
    assert layout(target_parameters=[]) is None


def test_several_processes_are_for_the_plain_backend(monkeypatch):
    monkeypatch.setattr(unsloth, "unavailable", lambda _: None)
    name, reasons = backends.choose(QWEN, "", 2)
    assert name == "plain"
    assert reasons == {"unsloth": "it trains in one process; NODES times NPROC is 2"}
    with pytest.raises(UserError, match=r"unsloth: it trains in one process"):
        backends.choose(QWEN, "unsloth", 2)


def test_unsloth_is_looked_for_without_importing_it(monkeypatch):
    monkeypatch.setattr(unsloth, "find_spec", lambda name: None if name == "torchvision" else object())
    assert unsloth.unavailable(QWEN) == "not installed: torchvision"
    monkeypatch.setattr(unsloth, "find_spec", lambda name: object())
    assert unsloth.unavailable(QWEN) == "no CUDA device"
    assert not {"unsloth", "unsloth_zoo"} & sys.modules.keys()


def test_what_libraries_read_at_import_is_there_before(tmp_path):
    started = command(tmp_path, "unsloth")
    assert started[0] == "env"
    variables = dict(word.split("=", 1) for word in started[1 : started.index(sys.executable)])
    assert variables["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert variables["HF_HUB_OFFLINE"] == variables["UNSLOTH_DISABLE_CPU_FALLBACK"] == "1"
    assert Path(variables["UNSLOTH_COMPILE_LOCATION"]).is_relative_to(Path("out/one").resolve())
    assert started[started.index(sys.executable) :][1:] == [
        "-m",
        "trainer.worker",
        str(tmp_path / "task.json"),
    ]
    assert not any("UNSLOTH" in word for word in command(tmp_path))


def test_several_processes_of_one_machine_meet_on_its_loopback(tmp_path):
    started = command(tmp_path, NPROC=2)
    assert "--master-addr=127.0.0.1" in started
    assert "--nproc-per-node=2" in started
    assert any(word.startswith("GLOO_SOCKET_IFNAME=lo") for word in started)


def test_several_machines_meet_at_the_first(tmp_path):
    started = command(tmp_path, NODES=2, NODE_RANK=1, MASTER="spark-1:29500")
    for word in ("--nnodes=2", "--node-rank=1", "--master-addr=spark-1", "--master-port=29500"):
        assert word in started
    with pytest.raises(UserError, match="MASTER is blank"):
        command(tmp_path, NODES=2)
    with pytest.raises(UserError, match="NODE_RANK=2: expected 0 to 1"):
        command(tmp_path, NODES=2, NODE_RANK=2, MASTER="spark-1")
    with pytest.raises(UserError, match="MASTER=spark-1:x: expected host or host:port"):
        command(tmp_path, NODES=2, MASTER="spark-1:x")


def test_options_never_leave_the_targets_to_the_backend(base_dir, tmp_path):
    """Unsloth trains the experts unasked where target_parameters is None."""
    job = Training(tmp_path, base_dir).job()
    assert adapter.options(job)["target_parameters"] == []
    stacks = replace(job.plan, target_parameters=("layers.0.mlp.experts.down_proj",))
    assert adapter.options(replace(job, plan=stacks))["target_parameters"] == [
        "layers.0.mlp.experts.down_proj"
    ]
