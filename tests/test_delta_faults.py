"""QUANT=delta on a production that does not fit, and under Ctrl-C and kill -9: named, or survived."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, profile, shards
from core.errors import DONE, Refused, UserError
from quant import mtp, quantize
from quant.merging import stream
from quant.quantising import recipe
from tests import deltas
from tests.deltas import ADAPTER, BASE, LAYERS, MERGED, NVFP4, PRODUCTION, ROOT, WORDS, adapt, payload, raw

torch = pytest.importorskip("torch")
pytest.importorskip("llmcompressor")
PARTIAL = NVFP4.with_name("nvfp4.partial")
Q = f"{LAYERS}.1.self_attn.q_proj"


@pytest.fixture(scope="module")
def made(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("production")
    deltas.make(place, base_dir)
    return place


@pytest.fixture(autouse=True)
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with base, production, an adapter on the attention and its merged checkpoint."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    adapt(deltas.ATTENTION)
    return tmp_path


def refusal(kind: type[Exception] = UserError) -> str:
    """What the stage says when it refuses, having left nothing behind."""
    with pytest.raises(kind) as caught:
        quantize.main(WORDS)
    assert sorted(path.name for path in NVFP4.parent.iterdir()) == ["merged"]
    return str(caught.value)


def recorded() -> dict[str, Any]:
    return artifacts.require(NVFP4, "quantize")["counts"]


def flip(data: bytearray) -> None:
    data[0] ^= 1


# ---- whose production it is ---------------------------------------------------------------------


def test_production_of_another_base_is_refused_unless_forced() -> None:
    router = f"{LAYERS}.2.mlp.gate.weight"
    deltas.change(PRODUCTION, router, flip)
    message = refusal(Refused)
    assert f"mlp.gate.weight: 1 differ (in BF16, 81 compared), the first {router}" in message
    assert "production was made of another base" in message
    assert "make quantize QUANT=full" in message
    assert "FORCE=1" in message
    assert quantize.main([*WORDS, "FORCE=1"]) == DONE
    assert recorded()["provenance"]["forced"]
    assert recorded()["provenance"]["differing_tensors"] == [router]


@pytest.mark.parametrize("part", ["weight_packed", "weight_scale", "weight_global_scale"])
@pytest.mark.parametrize("name", ["mlp.experts.*.gate_proj", "self_attn.o_proj"])
def test_production_of_another_recipe_is_refused_unless_forced(name: str, part: str) -> None:
    pattern = re.compile(rf"{LAYERS}.\d.{name.replace('*', '[0-9]')}.{part}")
    for tensor in filter(pattern.fullmatch, shards.read_checkpoint(PRODUCTION)):
        deltas.change(PRODUCTION, tensor, flip)
    message = refusal(Refused)
    assert re.search(rf"{re.escape(name)}: [1-9] differ \(quantised", message)
    assert "production was quantised by another recipe" in message


def test_norms_that_llm_compressor_rounded_are_named_and_stay(capsys: pytest.CaptureFixture[str]) -> None:
    norm = f"{LAYERS}.0.input_layernorm.weight"
    deltas.change(PRODUCTION, norm, flip)
    assert quantize.main(WORDS) == DONE
    assert "input_layernorm.weight: 1 differ (vectors" in capsys.readouterr().out
    assert recorded()["provenance"]["differing_vectors"] == [norm]
    assert raw(NVFP4)[norm] == raw(PRODUCTION)[norm]


def test_another_scheme_is_named() -> None:
    path = PRODUCTION / "config.json"
    settings = json.loads(path.read_text())
    settings["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 32
    path.write_text(json.dumps(settings))
    assert "group_0 has weights with group_size 32, expected 16" in refusal()


# ---- what production lacks or has wrongly -------------------------------------------------------


def plain(tensors: dict[str, Any], module: str, weight: Any) -> None:
    """Let `module` be in BF16 instead of NVFP4."""
    for name in [name for name in tensors if name.startswith(f"{module}.")]:
        del tensors[name]
    tensors[f"{module}.weight"] = weight


def test_a_half_ignored_fused_group_is_named() -> None:
    weight = torch.zeros(64, 128, dtype=torch.bfloat16)
    deltas.rewrite(PRODUCTION, lambda tensors: plain(tensors, Q.replace("q_proj", "k_proj"), weight))
    message = refusal()
    assert f"{Q} is quantised and {Q.replace('q_proj', 'k_proj')} of the same fused group is not" in message
    assert "vLLM refuses" in message


def test_a_missing_mtp_head_is_brought_from_the_base(capsys: pytest.CaptureFixture[str]) -> None:
    def lose(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.startswith(mtp.PREFIX)]:
            del tensors[name]

    deltas.rewrite(PRODUCTION, lose)
    assert quantize.main(WORDS) == DONE
    assert "has no MTP head; the base's" in capsys.readouterr().out
    base, found = raw(BASE), raw(NVFP4)
    head = {name for name in base if name.startswith(mtp.PREFIX)}
    assert len(head) == recorded()["mtp_restored"] > 5
    assert {name: found[name] for name in head} == {name: base[name] for name in head}
    ignore = json.loads((NVFP4 / "config.json").read_text())["quantization_config"]["ignore"]
    assert ignore.count("re:^mtp.*") == 1
    manifest = artifacts.require(NVFP4, "quantize")
    assert artifacts.complete(NVFP4, manifest)


def test_a_width_that_no_group_of_16_fills_is_named() -> None:
    def narrow(tensors: dict[str, Any]) -> None:
        for part, columns in (("weight_packed", 20), ("weight_scale", 2)):
            tensors[f"{Q}.{part}"] = tensors[f"{Q}.{part}"][:, :columns].contiguous()

    deltas.rewrite(PRODUCTION, narrow)
    assert "40]" in refusal()
    deltas.rewrite(BASE, lambda tensors: tensors.update({f"{Q}.weight": torch.zeros(128, 40).bfloat16()}))
    with pytest.raises(UserError, match=rf"{Q} has 40 columns, NVFP4 needs a multiple of 16"):
        recipe.check_widths(shards.read_checkpoint(BASE), profile.load("tiny"))


def test_a_tensor_that_production_lacks_is_named() -> None:
    deltas.rewrite(PRODUCTION, lambda t: [t.pop(name) for name in list(t) if ".1.self_attn.o_proj" in name])
    assert "bytes of adapted weights have no place in it" in refusal()


def test_a_truncated_shard_is_named() -> None:
    shard = shards.shard_files(PRODUCTION)[0]
    os.truncate(shard, shard.stat().st_size - 10)
    assert "truncated shard" in refusal()


def test_a_merge_of_another_adapter_is_named() -> None:
    before = artifacts.require(ADAPTER, "train")
    files = payload(ADAPTER)
    adapt(("o_proj",))
    for name, data in files.items():
        (ADAPTER / name).write_bytes(data)
    (ADAPTER / artifacts.MANIFEST).write_text(json.dumps(before))
    assert f"{MERGED}: merged from another adapter than {ADAPTER} is today: make merge" in refusal()


# ---- Ctrl-C and kill -9 -------------------------------------------------------------------------


def in_many_shards() -> dict[str, bytes]:
    """Cut production into about ten shards; the files when nothing happens."""
    deltas.rewrite(PRODUCTION, lambda tensors: None, shard_bytes=350_000)
    (PRODUCTION / artifacts.MANIFEST).unlink()
    assert len(shards.shard_files(PRODUCTION)) >= 8
    assert quantize.main(WORDS) == DONE
    wanted = payload(NVFP4)
    shutil.rmtree(NVFP4)
    return wanted


def test_after_ctrl_c_finished_shards_are_not_written_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = in_many_shards()
    real = artifacts.Draft.finish

    def finish(draft: artifacts.Draft, *args: Any, **notes: Any) -> None:
        if len(draft.finished) == 5:
            raise KeyboardInterrupt
        real(draft, *args, **notes)

    with monkeypatch.context() as patched:
        patched.setattr(artifacts.Draft, "finish", finish)
        with pytest.raises(KeyboardInterrupt):
            quantize.main(WORDS)
    finished = json.loads((PARTIAL / artifacts.JOURNAL).read_text())["finished"]
    before = {name: (PARTIAL / name).stat().st_mtime_ns for name in finished}
    assert len(before) == 5
    assert quantize.main(WORDS) == DONE
    assert "going on, 5 shards are finished" in capsys.readouterr().out
    assert {name: (NVFP4 / name).stat().st_mtime_ns for name in before} == before
    assert payload(NVFP4) == wanted


def test_an_error_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stream.os, "pwrite", full)
    monkeypatch.setattr(stream.os, "copy_file_range", full)
    with pytest.raises(OSError, match="No space"):
        quantize.main(WORDS)
    assert sorted(path.name for path in NVFP4.parent.iterdir()) == ["merged"]


SLOWED = """
import sys, time
import torch
from quant import delta, quantize
real = delta.write_shard
def slowed(*args):
    time.sleep(0.3)
    return real(*args)
delta.write_shard = slowed
print("ready", flush=True)
quantize.main(sys.argv[1:])
"""
"""The stage, its shards spread over some time so that a kill hits between and within them."""


def killed(rng: random.Random) -> bool:
    """Start the stage and kill it at a random instant while it writes shards; whether it was at work."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", SLOWED, *WORDS], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout and child.stdout.readline() == b"ready\n"
        while not (PARTIAL / "config.json").exists() and child.poll() is None:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.5))
        alive = child.poll() is None
        child.send_signal(signal.SIGKILL)
    return alive


def kill_often(times: int) -> None:
    wanted, rng = in_many_shards(), random.Random(times)
    alive = sum(killed(rng) for _ in range(times))
    assert alive >= times * 0.8
    assert not NVFP4.exists() or artifacts.complete(NVFP4, artifacts.require(NVFP4, "quantize"))
    assert quantize.main(WORDS) == DONE
    assert payload(NVFP4) == wanted
    assert sorted(path.name for path in NVFP4.parent.iterdir()) == ["merged", "nvfp4"]


def test_killed_at_random_instants_the_next_run_ends_the_same() -> None:
    kill_often(2)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(5))
def test_killed_often_the_next_run_ends_the_same(round_: int) -> None:
    kill_often(4 + round_ % 2)
