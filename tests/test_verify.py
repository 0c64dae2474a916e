"""`make verify`: a good checkpoint passes, and each planted fault fails its own row and no other."""

import functools
import json
import math
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from core import profile as profiles
from core import shards
from core.errors import DONE, MISTAKE
from core.profile import Profile
from core.shards import TensorInfo
from trainer import verify
from trainer.checks import check, checkpoint, families, machine, packages
from trainer.checks.check import Check
from trainer.checks.machine import Gpu, Machine
from trainer.checks.tokenizer import TEMPLATE

ROOT = Path(__file__).parents[1]
TINY, QWEN = profiles.load("tiny"), profiles.load("qwen3_6_35b_a3b")
LAYERS = TINY.layers_prefix
LOOK = functools.cache(machine.look)  # once for all tests: it takes a quarter of a second
TYPES = ["linear_attention"] * 3 + ["full_attention"]
CHECKPOINT_ROWS = [
    "shards", "config", "family attention", "family gated_deltanet", "family shared_expert",
    "trainable modules", "MTP", "vision", "dtypes", "chat template", "tokenizer",
]  # fmt: skip
MARKUP = "<|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> <tool_response> </tool_response>"
Shapes = dict[str, tuple[int, ...]]


def block(prefix: str, kind: str, *, hidden: int, inner: int, query: int, key: int, value: int) -> Shapes:
    """One decoder layer: `query` (gate included), `key` and `value` (GDN's) are rows of projections."""
    modules = {
        "mlp.shared_expert.gate_proj": (inner, hidden), "mlp.shared_expert.up_proj": (inner, hidden),
        "mlp.shared_expert.down_proj": (hidden, inner), "mlp.gate": (2, hidden), "input_layernorm": (hidden,),
    }  # fmt: skip
    if kind == "full_attention":
        modules |= {
            "self_attn.q_proj": (query, hidden), "self_attn.o_proj": (hidden, query // 2),
            "self_attn.k_proj": (key, hidden), "self_attn.v_proj": (key, hidden),
        }  # fmt: skip
    else:
        modules |= {
            "linear_attn.in_proj_qkv": (2 * value, hidden), "linear_attn.in_proj_z": (value, hidden),
            "linear_attn.in_proj_b": (value // 128, hidden), "linear_attn.in_proj_a": (value // 128, hidden),
            "linear_attn.out_proj": (hidden, value), "linear_attn.norm": (128,),
        }  # fmt: skip
    shapes: Shapes = {f"{prefix}.{name}.weight": shape for name, shape in modules.items()}
    shapes[f"{prefix}.mlp.experts.gate_up_proj"] = (2, 2 * inner, hidden)
    return shapes | {f"{prefix}.mlp.experts.down_proj": (2, hidden, inner)}


def small_shapes() -> Shapes:
    """Every tensor of a small checkpoint, by the names of the hub's."""
    size = {"hidden": 8, "inner": 4, "query": 16, "key": 4, "value": 256}
    shapes: Shapes = {"model.language_model.embed_tokens.weight": (16, 8), "lm_head.weight": (16, 8)}
    for number, kind in enumerate(TYPES):
        shapes |= block(f"{LAYERS}.{number}", kind, **size)
    shapes |= block("mtp.layers.0", "full_attention", **size)
    shapes |= {"mtp.fc.weight": (8, 16), "mtp.norm.weight": (8,)}
    return shapes | {"model.visual.patch_embed.proj.weight": (4, 3, 2, 2, 2)}


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def edit_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    write_json(path, content)


def write_tensors(base: Path, shapes: Shapes, dtypes: dict[str, str] | None = None) -> None:
    """Shards of zeros in place of those that are there, BF16 unless `dtypes` says otherwise."""
    import torch

    for file in base.glob("*.safetensors"):
        file.unlink()
    dtype = {name: getattr(torch, kind) for name, kind in (dtypes or {}).items()}
    tensors = {n: torch.zeros(s, dtype=dtype.get(n, torch.bfloat16)) for n, s in shapes.items()}
    shards.write_checkpoint(base, tensors, max_shard_bytes=8_000)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good checkpoint, and the repository as working directory."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(machine, "look", LOOK)
    directory = tmp_path / "tiny"
    directory.mkdir()
    write_tensors(directory, small_shapes())
    text = {"num_hidden_layers": len(TYPES), "layer_types": TYPES, "mtp_num_hidden_layers": 1}
    config = {"model_type": "qwen3_5_moe", "architectures": ["Qwen3_5MoeForConditionalGeneration"]}
    write_json(directory / "config.json", config | {"text_config": text})
    trl = find_spec("trl")
    assert trl and trl.origin
    shutil.copyfile(Path(trl.origin).parent / "chat_templates" / TINY.template_source, directory / TEMPLATE)
    write_json(directory / "tokenizer_config.json", {"eos_token": "<|im_end|>"})
    tokens = [{"id": i, "content": token} for i, token in enumerate(MARKUP.split())]
    write_json(directory / "tokenizer.json", {"added_tokens": tokens, "model": {"vocab": {"a": 9}}})
    return directory


def words(models_dir: Path, **others: str) -> list[str]:
    given = {"PROFILE": "tiny", "RUN": "one", "MODELS_DIR": str(models_dir), "BACKEND": ""} | others
    return [f"{name}={value}" for name, value in given.items()]


def rows(base: Path, profile: Profile = TINY) -> dict[str, Check]:
    """The rows on the checkpoint, by name."""
    return {row.name: row for row in verify.checkpoint_checks(profile, checkpoint.read(base))}


def failing(base: Path) -> dict[str, str]:
    """What is found and advised in each row that fails."""
    return {n: f"{row.found} | {row.advice}" for n, row in rows(base).items() if row.verdict == "fail"}


def test_a_good_checkpoint_passes(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(base)
    assert list(found) == CHECKPOINT_ROWS
    assert [row for row in found.values() if row.verdict != "ok"] == []
    assert found["family attention"].found == "1 of 1 layers, 4 modules each"
    assert found["family gated_deltanet"].found == "3 of 3 layers, 5 modules each, in_proj_* split"
    assert found["family shared_expert"].found == "4 of 4 layers, 3 modules each"
    assert found["trainable modules"].found.startswith("31 of 31, ")
    assert found["MTP"].found == "13 tensors under mtp., experts fused"
    assert found["dtypes"].found == f"BF16 {len(small_shapes())}"

    assert verify.main(words(base.parent)) == DONE
    lines = capsys.readouterr().out.splitlines()
    values = [platform.python_version(), platform.system()]
    assert lines[0].index(values[0]) == lines[1].index(values[1])
    assert lines[-1].startswith("verify: ") and lines[-1].endswith(", 0 fail")
    assert "\x1b" not in "".join(lines)


def without(part: str) -> Callable[[Path], None]:
    """Rewrite the checkpoint without the tensors whose name has this part."""
    return lambda base: write_tensors(base, {n: s for n, s in small_shapes().items() if part not in n})


def renamed(old: str, new: str) -> Callable[[Path], None]:
    """Rewrite the checkpoint with another part in its tensors' names."""
    return lambda base: write_tensors(base, {n.replace(old, new): s for n, s in small_shapes().items()})


def updated(file: str, **fields: Any) -> Callable[[Path], None]:
    return lambda base: edit_json(base / file, lambda content: content.update(fields))


def change_template(base: Path) -> None:
    path = base / TEMPLATE
    path.write_bytes(path.read_bytes() + b"\n")


def fuse_gdn(base: Path) -> None:
    split = {n: s for n, s in small_shapes().items() if "in_proj_z." not in n and "in_proj_a." not in n}
    fused = {n.replace("_qkv.", "_qkvz.").replace("_b.", "_ba."): s for n, s in split.items()}
    write_tensors(base, fused)


def truncate(base: Path) -> None:
    path = shards.shard_files(base)[1]
    path.write_bytes(path.read_bytes()[:-2])


def name_an_absent_tensor(base: Path) -> None:
    file = shards.shard_files(base)[0].name
    edit_json(base / shards.INDEX, lambda index: index["weight_map"].update({"lm_head.bias": file}))


def split_a_token(base: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] != "</think>"]
        content["model"]["vocab"] |= {"</": 20, "think": 21, ">": 22}

    edit_json(base / "tokenizer.json", change)


def quantise(base: Path) -> None:
    write_tensors(base, small_shapes(), {f"{LAYERS}.3.self_attn.o_proj.weight": "uint8"})


ATTENTION, GDN, SHARED, TRAINABLE = CHECKPOINT_ROWS[2:6]
NO_TARGET = {TRAINABLE: "fewer than 31 | a target is missing"}
QUERY = "q_proj in 0 of 1 layers | nearest to self_attn.q_proj: "
QUERY += f"{LAYERS}.N.self_attn.query_proj.weight; correct"
FUSED = "fused: in_proj_qkvz, in_proj_ba | the profile expects split: "
FUSED += "in_proj_qkv, in_proj_z, in_proj_b, in_proj_a"
OTHER_LAYERS = {
    ATTENTION: "nearest to self_attn.q_proj: model.layers.N.self_attn.q_proj.weight",
    GDN: "nearest to linear_attn.in_proj_qkv: model.layers.N.linear_attn.in_proj_qkv.weight",
    SHARED: "model.layers.N.mlp.shared_expert.gate_proj.weight",
}
LOST = f"{LAYERS}.1.linear_attn.out_proj"
TEXT_ONLY = {"architectures": ["Qwen3_5MoeForCausalLM"]}
OTHER_EOS = {"eos_token": {"content": "<|endoftext|>"}}
FAULTS: dict[str, tuple[Callable[[Path], Any], dict[str, str]]] = {
    "no MTP": (without("mtp."), {"MTP": "0 tensors under mtp. | mtp_num_hidden_layers is 1, found 0"}),
    "no vision": (without("visual"), {"vision": "0 tensors under model.visual."}),
    "a module lost": (without(LOST), {GDN: "out_proj in 2 of 3 layers | correct", TRAINABLE: "30 of 31"}),
    "projections renamed": (renamed(".q_proj.", ".query_proj."), {ATTENTION: QUERY, **NO_TARGET}),
    "layers renamed": (renamed(LAYERS, "model.layers"), {**OTHER_LAYERS, **NO_TARGET}),
    "projections fused": (fuse_gdn, {GDN: FUSED, **NO_TARGET}),
    "quantised": (quantise, {"dtypes": f"{LAYERS}.3.self_attn.o_proj.weight is U8"}),
    "shard truncated": (truncate, {"shards": "model-00002-of-"}),
    "shard lost": (lambda base: shards.shard_files(base)[-1].unlink(), {"shards": "no such shard"}),
    "tensor absent": (name_an_absent_tensor, {"shards": "lm_head.bias in model-00001-of-"}),
    "template changed": (change_template, {"chat template": f"| expected {TINY.chat_template[:12]}"}),
    "token split": (split_a_token, {"tokenizer": "not a token: </think> |"}),
    "no tokens": (updated("tokenizer.json", added_tokens=[{}]), {"tokenizer": "no added_tokens"}),
    "another eos": (updated("tokenizer_config.json", **OTHER_EOS), {"tokenizer": "eos_token <|end"}),
    "text-only class": (updated("config.json", **TEXT_ONLY), {"config": "CausalLM | expected a"}),
    "config broken": (lambda base: (base / "config.json").write_text("[]"), {"config": "a JSON object"}),
    "no template": (lambda base: (base / TEMPLATE).unlink(), {"chat template": "no chat_template"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_its_own_rows(fault: str, base: Path) -> None:
    plant, expected = FAULTS[fault]
    plant(base)
    found = failing(base)
    assert found.keys() == expected.keys()
    assert [name for name, part in expected.items() if part not in found[name]] == []
    assert verify.main(words(base.parent)) == MISTAKE


def test_what_cannot_be_read_is_not_judged(base: Path) -> None:
    truncate(base)
    judged = {name: row for name, row in rows(base).items() if row.found != "not looked at"}
    assert list(judged) == ["shards", "config", "chat template", "tokenizer"]
    assert "rm -r" in judged["shards"].advice
    assert "hf download Qwen/Qwen3.6-35B-A3B" in rows(base, QWEN)["shards"].advice
    assert rows(base)["MTP"] == Check("MTP", "warn", "not looked at", "mend shards first")


def test_layouts_that_are_right_too(base: Path) -> None:
    norm = f"{LAYERS}.0.linear_attn.norm.weight"
    shapes = {n: s for n, s in small_shapes().items() if not n.startswith("mtp.layers.0.mlp.experts")}
    shapes |= {f"mtp.layers.0.mlp.experts.{i}.up_proj.weight": (4, 8) for i in range(2)}
    write_tensors(base, shapes, {norm: "float32"})
    template = (base / TEMPLATE).read_bytes().decode()
    (base / TEMPLATE).unlink()
    edit_json(base / "tokenizer_config.json", lambda content: content.update(chat_template=template))
    found = rows(base)
    assert {row.verdict for row in found.values()} == {"ok"}
    assert found["MTP"].found == "13 tensors under mtp., experts per expert"
    assert found["dtypes"].found == f"BF16 {len(shapes) - 1}, F32 1"


def test_what_is_odd_but_may_be_meant_is_a_warning(base: Path) -> None:
    write_tensors(base, small_shapes(), {"lm_head.weight": "float16"})
    updated("config.json", text_config={"num_hidden_layers": len(TYPES), "layer_types": TYPES})(base)
    assert [name for name, row in rows(base).items() if row.verdict == "warn"] == ["MTP", "dtypes"]


def test_without_a_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert verify.main(words(tmp_path / "models")) == DONE
    lines = [line for line in capsys.readouterr().out.splitlines() if "not yet: make base" in line]
    assert [line[:4] for line in lines] == ["warn"] * len(CHECKPOINT_ROWS)


def test_counts_of_the_real_model() -> None:
    types = (["linear_attention"] * 3 + ["full_attention"]) * 10
    shapes: Shapes = {}
    for number, kind in enumerate(types):
        sizes = {"hidden": 2048, "inner": 512, "query": 8192, "key": 512, "value": 4096}
        shapes |= block(f"{LAYERS}.{number}", kind, **sizes)
    tensors = {n: TensorInfo(n, Path("x"), "BF16", s, 0, 2 * math.prod(s)) for n, s in shapes.items()}
    config = {"text_config": {"num_hidden_layers": 40, "full_attention_interval": 4}}
    real = replace(checkpoint.read(Path("x")), config=config, tensors=tensors)
    row = families.check_trainable(QWEN, real)
    assert (row.verdict, row.found) == ("ok", "310 of 310, 42.33 M parameters at rank 32")
    # BF16 weights, and 16 bytes a parameter of the adapter.
    assert families.training_bytes(QWEN, tensors) == real.bytes + 16 * 42_332_160


GB10 = Gpu(name="NVIDIA GB10", capability=(12, 1), free=90 * 10**9, total=128 * 10**9, unified=True)
SPARK = Machine(
    python="3.12.3",
    system="Linux aarch64",
    kind="cuda",
    cores=20,
    memory=128 * 10**9,
    available=60 * 10**9,
    gpu=GB10,
    cuda="13.0",
    versions={"torch": "2.14.0", "triton": "3.8.0", "flash-linear-attention": "0.6.0", "unsloth": "2026.10"},
    unsloth=True,
)
LAPTOP = replace(SPARK, kind="cpu", gpu=None, cuda=None, versions={"torch": "2.13.0+cpu"}, unsloth=False)
OLD_TRITON = {**SPARK.versions, "triton": "3.7.1"}
CARD = Gpu(name="NVIDIA H200", capability=(9, 0), free=140 * 10**9, total=150 * 10**9, unified=False)


@pytest.mark.parametrize(
    ("row", "verdict", "text"),
    [
        (machine.check_python(SPARK, ">=3.11,<3.15"), "ok", "3.12.3"),
        (machine.check_python(replace(SPARK, python="3.15.0"), ">=3.11,<3.15"), "fail", "<3.15 is needed"),
        (machine.check_python(replace(SPARK, python="3.10.9"), ">=3.11"), "fail", "make env PYTHON="),
        (machine.check_system(replace(SPARK, system="Windows AMD64")), "warn", "Linux x86_64"),
        (machine.check_memory(SPARK, 50 * 10**9), "ok", "MemAvailable 60.0 GB of 128.0 GB, unified with"),
        (machine.check_memory(SPARK, 72 * 10**9), "warn", "stop the model server"),
        (machine.check_memory(SPARK, 150 * 10**9), "fail", "a larger machine"),
        (machine.check_memory(replace(SPARK, gpu=CARD), 72 * 10**9), "ok", "GPU free 140.0 GB of 150.0 GB"),
        (machine.check_disk(Path("models"), 10, 20, Path("absent")), "fail", "point MODELS_DIR elsewhere"),
        (machine.check_disk(Path("models"), 10, 20, ROOT), "warn", "cannot be made anew"),
        (machine.check_cuda(SPARK, QWEN), "ok", "NVIDIA GB10, sm_121 = GB10"),
        (machine.check_cuda(LAPTOP, QWEN), "warn", "meant for a GPU"),
        (machine.check_cuda(replace(SPARK, gpu=None), TINY), "warn", "torch cannot use"),
        (machine.check_torch(SPARK, ["torch==2.14.0"]), "ok", "2.14.0, CUDA 13.0 build"),
        (machine.check_torch(SPARK, ["torch==2.15.0"]), "warn", "2.15.0 is the tested one"),
        (machine.check_torch(replace(SPARK, cuda=None), ["torch==2.14.0"]), "warn", "CPU build"),
        (machine.check_torch(replace(LAPTOP, versions={}), ["torch==2.13.0"]), "fail", "make env"),
        (machine.check_triton(replace(SPARK, versions=OLD_TRITON)), "fail", "3.8 is needed"),
        (machine.check_triton(replace(SPARK, gpu=CARD, versions=OLD_TRITON)), "ok", "3.7.1"),
        (machine.check_attention(SPARK), "ok", "flash-attention has no sm_121 build"),
        (machine.check_fla(SPARK), "ok", "its backward is tried before training"),
        (machine.check_fla(replace(SPARK, versions={})), "warn", "plain torch rule"),
        (machine.check_unsloth(SPARK, QWEN), "ok", "2026.10"),
        (machine.check_unsloth(LAPTOP, QWEN), "warn", "not used: not installed"),
        (machine.check_unsloth(replace(SPARK, gpu=None), QWEN), "warn", "not used: no CUDA device"),
        (machine.check_unsloth(LAPTOP, TINY), "ok", "no backend of PROFILE=tiny"),
    ],
)
def test_machine_rows(row: Check, verdict: str, text: str) -> None:
    assert row.verdict == verdict
    assert text in f"{row.found} {row.advice}"


def test_packages_are_compared_with_the_constraints(tmp_path: Path) -> None:
    file = tmp_path / "constraints.txt"
    file.write_text("# tested\nPyYAML==6.0.4\nmcp_types==2.3.0\nabsent==1.0\n", encoding="utf-8")
    constraints = packages.read_constraints(file)
    installed = {"pyyaml": "6.0.4", "mcp-types": "2.3.0+local"}
    marked = "xformers; platform_machine == 'none'"
    good = packages.check_packages(installed, ["pyyaml", marked], constraints)
    assert (good.verdict, good.found) == ("ok", "2 as in constraints.txt")
    other = packages.check_packages({**installed, "pyyaml": "6.0.3"}, ["pyyaml"], constraints)
    assert (other.verdict, other.found) == ("warn", "pyyaml 6.0.3 (tested 6.0.4)")
    missing = packages.check_packages(installed, ["pyright[nodejs]", "PyYAML>=6"], constraints)
    assert (missing.verdict, missing.found, missing.advice) == ("fail", "not installed: pyright", "make env")


def test_a_forced_backend_that_cannot_run_fails(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(words(base.parent, BACKEND="unslot")) == MISTAKE
    assert "did you mean unsloth?" in capsys.readouterr().out
    assert verify.check_backend(TINY, "") == Check("backend", "ok", "plain")


def test_the_table_is_coloured_on_request() -> None:
    lines = check.table([Check("one", "ok", "1"), Check("longer", "fail", "2", "why")], colour=True)
    assert lines.splitlines()[1:] == [
        f"\x1b[31mfail\x1b[0m  longer  2{' ' * 41}why",
        "verify: 1 ok, 0 warn, 1 fail",
    ]


def test_as_a_process_it_exits_with_2_and_imports_neither_unsloth_nor_transformers(
    base: Path, tmp_path: Path
) -> None:
    bait = tmp_path / "bait"
    for name in ("unsloth", "unsloth_zoo"):
        (bait / name).mkdir(parents=True)
        (bait / name / "__init__.py").write_text("raise SystemExit('imported')\n")
    without("mtp.")(base)
    base.rename(tmp_path / QWEN.base_name)
    end = "print({'unsloth', 'unsloth_zoo', 'transformers', 'peft', 'trl'} & set(sys.modules))"
    program = f"import atexit, sys; atexit.register(lambda: {end})\nfrom core import errors\n"
    program += "from trainer import verify\nerrors.run(verify.main)"
    command = [sys.executable, "-c", program, *words(tmp_path, PROFILE=QWEN.name)]
    paths = {"PYTHONPATH": f"{bait}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == MISTAKE, done.stderr
    assert lines[-1] == "set()"
    assert [line.split()[1] for line in lines if line.startswith("fail")] == ["MTP"]
    assert [line for line in lines if "Unsloth" in line and "none" in line] == []
