"""The merge against PEFT's own, bit for bit, and every adapter that it must refuse."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_model

from core import artifacts, shards
from core.errors import UserError
from quant import merge

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
torch = pytest.importorskip("torch")
pytest.importorskip("peft")
from safetensors.torch import save_file  # noqa: E402  (needs torch)

ROOT = Path(__file__).parent.parent
WORDS = ["PROFILE=tiny", "RUN=one", "MODELS_DIR=models"]
BASE, MERGED, ADAPTER = Path("models/tiny"), Path("models/one/merged"), Path("out/one/adapter")
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
DELTANET = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
DENSE = [*ATTENTION, *DELTANET, "gate_proj", "up_proj", "shared_expert.down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
PATTERNS = {
    "rank_pattern": {"q_proj": 5, r"layers\.1\.linear_attn\.in_proj_.*": 2, "experts.down_proj": 6},
    "alpha_pattern": {"mlp.shared_expert.up_proj": 3, "in_proj_qkv": 11, "experts.gate_up_proj": 9},
}
LAYER = "base_model.model.model.language_model.layers.3.self_attn."


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The base as an artefact, by dtype."""
    made = {}
    for dtype in ("bfloat16", "float32"):
        path = tmp_path_factory.mktemp(dtype) / "tiny"
        with artifact(path, "checkpoint") as draft:
            tiny_model.make(draft.path, dtype=dtype)
        made[dtype] = path
    return made


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bases: dict[str, Path]) -> None:
    """A working directory that holds the bf16 base."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(bases["bfloat16"], BASE)


def artifact(path: Path, kind: str, **inputs: dict[str, str]) -> Any:
    """An artefact under construction."""
    return artifacts.create(path, kind=kind, profile="tiny", run="one", settings={}, inputs=inputs)


def hand_made(change: Callable[[dict[str, Any], dict[str, Any]], Any] | None = None) -> None:
    """A plain adapter on layer 3's attention; `change` edits its tensors and config."""
    generator = torch.Generator().manual_seed(7)
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "bias": "none", "use_dora": False}
    tensors = {}
    infos = shards.read_checkpoint(BASE)
    for name in ATTENTION:
        rows, columns = infos[f"model.language_model.layers.3.self_attn.{name}.weight"].shape
        tensors[f"{LAYER}{name}.lora_A.weight"] = torch.randn(3, columns, generator=generator) * 0.1
        tensors[f"{LAYER}{name}.lora_B.weight"] = torch.randn(rows, 3, generator=generator) * 0.1
    if change:
        change(tensors, config)
    with artifact(ADAPTER, "adapter") as draft:
        save_file(tensors, draft.path / "adapter_model.safetensors")
        (draft.path / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def peft_merge(text_only: bool = False, dtype: str = "float32", **options: Any) -> dict[str, bytes]:
    """Save a random adapter as the run's; return PEFT's merge of it by the checkpoint's names."""
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeForConditionalGeneration

    model_class = Qwen3_5MoeForCausalLM if text_only else Qwen3_5MoeForConditionalGeneration
    config = LoraConfig(r=3, lora_alpha=6, **options)
    model = get_peft_model(model_class.from_pretrained(BASE), config)
    generator = torch.Generator().manual_seed(8)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            values = torch.randn(parameter.shape, generator=generator) * 0.1
            parameter.data = values.to(getattr(torch, dtype))
    with artifact(ADAPTER, "adapter") as draft:
        model.save_pretrained(str(draft.path))
    merged = {}
    for name, tensor in model.merge_and_unload().state_dict().items():
        if text_only:
            name = re.sub(r"^model\.", "model.language_model.", name)
        merged[name] = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    return merged


def process(*what: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, given the settings."""
    command = [sys.executable, *what, *WORDS]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def raw(directory: Path) -> dict[str, bytes]:
    """Every tensor's bytes."""
    return {name: shards.read_bytes(t) for name, t in shards.read_checkpoint(directory).items()}


def files(directory: Path, suffix: str) -> dict[str, bytes]:
    """The bytes of the files whose name ends in `suffix`."""
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.name.endswith(suffix)}


def headers(directory: Path) -> dict[str, bytes]:
    """The header of every shard, its length included."""
    shard_bytes = files(directory, ".safetensors")
    return {name: b[: 8 + int.from_bytes(b[:8], "little")] for name, b in shard_bytes.items()}


def refused(words: list[str] = WORDS) -> str:
    """The one line with which the merge refuses, having left nothing behind."""
    with pytest.raises(UserError) as caught:
        merge.main(words)
    assert not MERGED.exists()
    assert not MERGED.with_name("merged.partial").exists()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.filterwarnings("ignore:The following")  # PEFT's on patterns that match no module
@pytest.mark.parametrize("base_dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"target_modules": DENSE}, id="plain"),
        pytest.param({"target_modules": DENSE, "text_only": True}, id="text-only"),
        pytest.param({"target_modules": DENSE, "use_rslora": True, **PATTERNS}, id="patterns"),
        pytest.param({"target_modules": DENSE, "dtype": "bfloat16"}, id="bf16"),
        pytest.param({"target_modules": DENSE, "dtype": "float16"}, id="fp16"),
        pytest.param({"target_modules": ["attn.qkv"]}, id="vision"),
        pytest.param({"target_modules": ATTENTION, "target_parameters": EXPERTS}, id="experts"),
        pytest.param(
            {"target_modules": [], "target_parameters": EXPERTS, "use_rslora": True, **PATTERNS},
            id="experts-patterns",
        ),
        pytest.param(
            {"target_modules": [], "target_parameters": EXPERTS[::-1], "text_only": True},
            id="experts-text-only",
        ),
        pytest.param(
            {"target_modules": [], "target_parameters": EXPERTS, "dtype": "bfloat16"},
            id="experts-bf16",
        ),
        pytest.param({"target_modules": [], "target_parameters": EXPERTS[1:]}, id="down-experts"),
        pytest.param({"target_modules": [], "target_parameters": ["gate.weight"]}, id="router"),
    ],
)
def test_equals_peft(options: dict[str, Any], base_dtype: str, bases: dict[str, Path]) -> None:
    shutil.rmtree(BASE)
    shutil.copytree(bases[base_dtype], BASE)
    peft = peft_merge(**options)
    merge.main(WORDS)

    before, after = raw(BASE), raw(MERGED)
    assert [name for name in peft if peft[name] != after[name]] == []
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in peft if before[name] != peft[name]}
    assert headers(MERGED) == headers(BASE)
    assert files(MERGED, ".index.json") == files(BASE, ".index.json")
    counts = json.loads((MERGED / "manifest.json").read_text())["counts"]
    assert counts["merged"] == len(changed) > 0
    assert counts["tensors"] == counts["merged"] + counts["copied"] == len(before)
    assert 0 < counts["relative_change"]["min"] <= counts["relative_change"]["max"]


def test_only_the_adapted_tensors_differ(capsys: pytest.CaptureFixture[str]) -> None:
    hand_made()
    merge.main(WORDS)
    assert capsys.readouterr().out.startswith("merge: 4 modules merged, relative change 0.")
    before, after = raw(BASE), raw(MERGED)
    adapted = {f"model.language_model.layers.3.self_attn.{name}.weight" for name in ATTENTION}
    assert {name for name in before if before[name] != after[name]} == adapted
    assert sum(name.startswith("mtp.") for name in after) == 19
    assert any(name.startswith("model.visual.") for name in after)


def test_zero_adapter_gives_the_base_back() -> None:
    # A weight of -0 is the one that adding a delta of +0 would change.
    info = shards.read_checkpoint(BASE)["model.language_model.layers.3.self_attn.q_proj.weight"]
    with info.file.open("r+b") as file:
        file.seek(info.start)
        file.write(b"\x00\x80")
    hand_made(lambda tensors, _: [t.zero_() for name, t in tensors.items() if "lora_B" in name])
    merge.main(WORDS)
    assert files(MERGED, ".safetensors") == files(BASE, ".safetensors")


def test_copies_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_made()
    merge.main(WORDS)
    first = files(MERGED, ".safetensors")
    shutil.rmtree(MERGED)
    monkeypatch.delattr(os, "copy_file_range")
    monkeypatch.setattr(merge, "CHUNK", 1000)
    merge.main(WORDS)
    assert files(MERGED, ".safetensors") == first


def test_the_other_files() -> None:
    hand_made()
    (BASE / ".cache").mkdir()
    (BASE / ".cache" / "lock").write_text("")
    (BASE / "consolidated.safetensors").write_bytes(b"unmerged")
    (BASE / "chat_template.jinja").chmod(0o600)
    merge.main(WORDS)
    expected = {p.name for p in BASE.iterdir()} - {".cache", "consolidated.safetensors"}
    assert {p.name for p in MERGED.iterdir()} == expected
    assert files(MERGED, ".jinja") == files(BASE, ".jinja")
    modes = {path.name: path.stat().st_mode & 0o777 for path in artifacts.payload(MERGED).values()}
    assert modes == dict.fromkeys(modes, 0o644)


def test_second_run_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    hand_made()
    merge.main(WORDS)
    before = {path: path.stat().st_mtime_ns for path in MERGED.iterdir()}
    capsys.readouterr()
    run = "import sys; from quant import merge; merge.main(sys.argv[1:])"
    done = process("-c", f"{run}; assert 'torch' not in sys.modules")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"merge: up to date ({MERGED})\n", "")
    assert {path: path.stat().st_mtime_ns for path in MERGED.iterdir()} == before

    hand_made(lambda tensors, config: config.update(lora_alpha=12))
    merge.main(WORDS)
    assert "merge: 4 modules merged" in capsys.readouterr().out


def test_base_that_we_did_not_make() -> None:
    hand_made()
    words = ["PROFILE=qwen3_6_35b_a3b", *WORDS[1:]]
    assert "make base" in refused(words)
    download = Path("models/Qwen3.6-35B-A3B")
    BASE.rename(download)
    (download / "manifest.json").unlink()
    artifacts.record(download, kind="checkpoint", profile="qwen3_6_35b_a3b")
    merge.main(words)
    assert headers(MERGED) == headers(download)


def test_exit_code_of_a_refusal() -> None:
    done = process("-m", "quant.merge")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {ADAPTER} is not there yet: make train\n"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peft_type", "VERA"),
        ("use_dora", True),
        ("lora_bias", True),
        ("bias", "all"),
        ("modules_to_save", ["lm_head"]),
        ("trainable_token_indices", [1]),
        ("init_lora_weights", "pissa"),
        ("lora_B_layout", "grouped_by_expert"),
    ],
)
def test_refuses_a_kind_of_adapter_by_its_config(field: str, value: Any) -> None:
    hand_made(lambda _, config: config.update({field: value}))
    message = refused()
    assert field in message
    assert repr(value) in message


@pytest.mark.parametrize(
    ("name", "word"),
    [
        (f"{LAYER}q_proj.surprise", "no part of a LoRA pair"),
        (f"{LAYER}q_proj.lora_magnitude_vector", "DoRA"),
        (f"{LAYER}q_proj.lora_B.bias", "lora_bias"),
        ("base_model.model.lm_head.base_layer.weight", "copy of a base weight"),
        ("base_model.model.model.language_model.embed_tokens.lora_embedding_A", "embedding"),
        ("model.language_model.layers.3.self_attn.q_proj.lora_A.weight", "no part of a LoRA pair"),
        (f"{LAYER}x_proj.lora_A.weight", "no lora_B beside it"),
        (f"{LAYER}x_proj.lora_B.weight", "no lora_A beside it"),
    ],
)
def test_refuses_a_leftover_tensor(name: str, word: str) -> None:
    hand_made(lambda tensors, _: tensors.update({name: torch.ones(3, 3)}))
    message = refused()
    assert name in message
    assert word in message


def test_refuses_an_adapter_for_other_names() -> None:
    def rename(tensors: dict[str, Any], _: Any) -> None:
        for name in list(tensors):
            tensors[name.replace("layers.3.", "layers.9.")] = tensors.pop(name)

    hand_made(rename)
    assert "layers.9.self_attn.k_proj.lora_A.weight has no weight in the base" in refused()


def test_refuses_an_adapter_for_another_base() -> None:
    with artifact(ADAPTER, "adapter", base={"path": str(BASE), "sha256": "0" * 64}):
        pass
    assert "trained on another base" in refused()


def test_refuses_two_pairs_for_one_tensor() -> None:
    def double(tensors: dict[str, Any], _: Any) -> None:
        for name in [name for name in tensors if "q_proj" in name]:
            tensors[name.replace("language_model.", "")] = tensors[name].clone()

    hand_made(double)
    assert "both change model.language_model.layers.3.self_attn.q_proj.weight" in refused()


@pytest.mark.parametrize("shape", [(3, 65), (4, 64), (3, 64, 1)])
def test_refuses_a_wrong_shape(shape: tuple[int, ...]) -> None:
    name = f"{LAYER}q_proj.lora_A.weight"
    hand_made(lambda tensors, _: tensors.update({name: torch.ones(shape)}))
    message = refused()
    assert f"{name} {list(shape)}" in message
    assert "[128, 64]" in message


def test_refuses_an_empty_adapter() -> None:
    hand_made(lambda tensors, _: tensors.clear())
    assert "no LoRA tensors" in refused()


def test_refuses_mixed_and_unknown_dtypes() -> None:
    name = f"{LAYER}q_proj.lora_A.weight"
    hand_made(lambda tensors, _: tensors.update({name: tensors[name].bfloat16()}))
    assert f"{name} is BF16 and its lora_B F32" in refused()
    hand_made(lambda tensors, _: tensors.update({name: tensors[name].double()}))
    assert f"{name} is F64" in refused()


def test_refuses_a_truncated_shard() -> None:
    hand_made()
    shard = shards.shard_files(BASE)[-1]
    os.truncate(shard, shard.stat().st_size - 10)
    message = refused()
    assert str(shard) in message
    assert "truncated" in message


def test_refuses_a_delta_that_is_not_finite() -> None:
    hand_made(lambda tensors, _: tensors[f"{LAYER}v_proj.lora_B.weight"].fill_(float("nan")))
    assert "v_proj.weight is not finite" in refused()


def test_refuses_a_delta_that_rounding_eats() -> None:
    hand_made(lambda tensors, _: tensors[f"{LAYER}v_proj.lora_B.weight"].mul_(1e-12))
    assert "v_proj.weight: its delta" in refused()


def test_refuses_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_made()
    monkeypatch.setattr(merge.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert "MODELS_DIR" in refused()


def test_a_failed_merge_keeps_the_old_one() -> None:
    hand_made()
    merge.main(WORDS)
    before = files(MERGED, "")
    hand_made(lambda tensors, _: tensors[f"{LAYER}v_proj.lora_B.weight"].fill_(float("inf")))
    with pytest.raises(UserError):
        merge.main(WORDS)
    assert files(MERGED, "") == before
    assert artifacts.payload(MERGED).keys() <= before.keys()
