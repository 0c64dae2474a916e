"""The chain of a small Llama by conversations: verified, merged, judged, written as GGUF, talked with."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from core import artifacts, config, generate, gguf_model, packages, shards
from core.errors import UserError
from core.settings import TrainSettings
from dataset_builder import build
from eval import chat, suite
from quant import converter, gguf, gguf_check, merge
from tests import little_llama
from tests.conftest import ROOT, run_make
from tests.test_conversations import words
from trainer import verify
from trainer.planning import plan

FETCHED = pytest.mark.skipif(
    not packages.LLAMA_CPP.path.exists(), reason="make env PROFILE=formal_smollm fetches the converter"
)


def place(models: Path) -> list[str]:
    return [f"PROFILE={little_llama.NAME}", "RUN=r", f"MODELS_DIR={models}"]


@pytest.fixture
def merged(little_desk: Path, little_models: Path, tmp_path: Path) -> list[str]:
    """The words of a run whose adapter, that of the plan with random values, is merged."""
    models = tmp_path / "models"
    shutil.copytree(little_models, models)
    build.main(words(models))
    make_adapter(models)
    assert merge.main([*place(models), "BASE=", "ADAPTER=", "MERGED=", "CHECK_BASE="]) == 0
    return place(models)


def make_adapter(models: Path) -> None:
    """What `make train` leaves: an adapter on the planned modules."""
    import torch
    from peft import LoraConfig, get_peft_model

    base = models / little_llama.NAME
    profile = config.profiles.load(little_llama.NAME)
    planned = plan.make_plan(profile, shards.read_checkpoint(base), 2)
    torch.manual_seed(0)
    lora = LoraConfig(
        r=2, lora_alpha=4, target_modules=planned.pattern, task_type="CAUSAL_LM", init_lora_weights=False
    )
    model = get_peft_model(generate.load_model(base, "float32"), lora)
    inputs = {"base": artifacts.as_input(base, artifacts.require(base, "base"))}
    with artifacts.create(
        Path("out/r/adapter"), kind="adapter", profile=little_llama.NAME, run="r", settings={}, inputs=inputs
    ) as draft:
        model.save_pretrained(str(draft.path))
        (draft.path / "loss.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
        draft.backend = {"name": "plain", "reasons": {}}
        draft.counts = {
            "modules": len(planned.modules), "trainable_parameters": planned.parameters, "samples": 1,
            "tokens": {"labelled": 1}, "steps": 1, "first_loss": 2.0, "last_loss": 2.0,
        }  # fmt: skip


def test_verify_takes_a_profile_without_vision_mtp_and_production(
    little_desk: Path, little_models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main([*place(little_models), "BACKEND="]) == 0
    shown = capsys.readouterr().out
    assert "family attention" in shown
    assert f"{little_llama.LAYERS} of {little_llama.LAYERS} layers, 4 modules each" in shown
    assert "vision" not in shown
    assert "MTP" not in shown


def test_more_layers_than_the_model_has_are_all_of_them(little_desk: Path, little_models: Path) -> None:
    profile = config.profiles.load(little_llama.NAME)
    tensors = shards.read_checkpoint(little_models / little_llama.NAME)
    assert len(plan.make_plan(profile, tensors, 2, layers="last 1").modules) == 4
    assert plan.make_plan(profile, tensors, 2, layers="last 16") == plan.make_plan(profile, tensors, 2)


def test_the_seeds_recipe_is_the_mistral_profiles() -> None:
    words = ["PROFILE=formal_mistral", "RUN=x", "MODELS_DIR=m", "TRAIN_SEED=0"]
    settings = config.parse(TrainSettings, words)
    assert (settings.max_steps, settings.batch_size, settings.lora_layers) == (100, 1, "last 4")
    assert settings.profile.gguf_type == "f16"
    assert settings.profile.base == "mistralai/Mistral-7B-v0.1"


@FETCHED
def test_the_file_is_the_checkpoint_and_is_made_once(
    merged: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert gguf.main([*merged, "GGUF_TYPE=f16"]) == 0
    file = Path("out/r/gguf-f16/r-f16.gguf")
    manifest = artifacts.require(file.parent, "gguf")
    assert manifest["counts"]["architecture"] == "llama"
    assert manifest["counts"]["types"]["F16"] == 7 * little_llama.LAYERS + 2
    before = file.stat().st_mtime_ns
    capsys.readouterr()
    gguf.main([*merged, "GGUF_TYPE=f16"])
    assert "gguf: up to date" in capsys.readouterr().out
    assert file.stat().st_mtime_ns == before

    checkpoint = Path(merged[2].partition("=")[2]) / "r/merged"
    template = checkpoint / "chat_template.jinja"
    template.write_text(template.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(UserError, match="the chat template differs"):
        gguf_check.by_reading(file, checkpoint)
    with pytest.raises(UserError, match="not a GGUF file"):
        gguf_check.by_reading(template, checkpoint)


@FETCHED
def test_a_checkpoint_that_cannot_be_converted_is_named_with_the_converters_reason(
    merged: list[str], base_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"its tokenizer splits text by a rule that llama\.cpp does not know"):
        converter.convert(base_dir, tmp_path / "a.gguf", "f16", has_mtp=True)
    assert converter.has_mtp(base_dir)
    assert not converter.has_mtp(Path(merged[2].partition("=")[2]) / "r/merged")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("f61", r"GGUF_TYPE=f61: no such type \(did you mean f16\?\); have f16, bf16, q8_0, q4_k_m"),
        ("f16", "merged is not there yet: make merge"),
    ],
)
def test_what_gguf_cannot_do_is_one_line(
    little_desk: Path, little_models: Path, kind: str, reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        gguf.main([*place(little_models), f"GGUF_TYPE={kind}"])


def test_q4_k_m_without_llama_cpp_names_what_builds_it(
    little_desk: Path, little_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_model, "installed", lambda: False)
    with pytest.raises(UserError, match=r"GGUF_TYPE=q4_k_m needs llama\.cpp.*make llama-cpp"):
        gguf.main([*place(little_models), "GGUF_TYPE=q4_k_m"])


def test_eval_judges_formality_and_chat_answers(
    merged: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["EVAL_LIMIT=4", "HELD_OUT_SKILLS=", "MCP_CONFIG=examples/mcp.json", "FORCE="]
    code = suite.main([*merged, *asked, "CHECKPOINT=merged"])
    verdict = json.loads(Path("out/r/verdict/merged/verdict.json").read_text(encoding="utf-8"))
    assert set(verdict["gates"]) == {"formality", "general", "loss"}
    assert verdict["gates"]["formality"]["merged"]["formal"]["n"] == 4
    assert verdict["verdict"] != "improves"
    assert code == 1
    assert "answers with usted" in Path("out/r/report.html").read_text(encoding="utf-8")

    ask = [*merged, "GGUF_TYPE=", "CHECKPOINT=merged"]
    capsys.readouterr()
    assert chat.main([*ask, "PROMPT=Hola, ¿quién eres?"]) == 0
    first = capsys.readouterr().out
    lines = iter(["Hola, ¿quién eres?", "", "Hola, ¿quién eres?"])

    def typed(_: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)
    assert chat.main([*ask, "PROMPT="]) == 0
    assert capsys.readouterr().out == first * 2 + "\n"
    with pytest.raises(UserError, match=r"CHECKPOINT=mergd: no such checkpoint \(did you mean merged\?\)"):
        chat.main([*merged, "GGUF_TYPE=", "CHECKPOINT=mergd", "PROMPT=a"])
    with pytest.raises(UserError, match="is not there yet: make gguf"):
        chat.main([*merged, "GGUF_TYPE=", "CHECKPOINT=gguf", "PROMPT=a"])


def test_ctrl_c_ends_an_answer_and_then_the_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []

    def speak(messages: list[dict[str, str]]) -> str:
        heard.append([m["content"] for m in messages])
        if messages[-1]["content"] == "largo":
            raise KeyboardInterrupt
        return "sí"

    lines = iter(["uno", "largo", "dos", "", "tres"])

    def typed(_: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("builtins.input", typed)
    chat.talk(speak)
    assert heard == [["uno"], ["uno", "sí", "largo"], ["uno", "sí", "dos"], ["tres"]]


def test_the_chain_by_conversations_asks_no_servers_and_ends_in_gguf() -> None:
    lines = run_make(ROOT, "-n", "-o", ".venv/.complete", "all", "PROFILE=formal_smollm").stdout.splitlines()
    stages = [line.split(" -m ")[1].split()[0] for line in lines if line.startswith(".venv/bin/python -m ")]
    assert stages == [
        "trainer.base", "quant.production", "trainer.verify", "dataset_builder.build", "trainer.train",
        "quant.merge", "quant.gguf", "eval.report",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "home"),
    [((), str(ROOT / ".cache/huggingface")), (("HF_HOME=",), "unset"), (("HF_HOME=/a",), "/a")],
)
def test_the_hubs_cache_is_in_the_project_unless_told_otherwise(words: tuple[str, ...], home: str) -> None:
    show = "include Makefile\nshow:\n\t@echo $${HF_HOME-unset} $${HF_TOKEN_PATH-}\n"
    outside = {name: value for name, value in os.environ.items() if name != "HF_TOKEN_PATH"}  # make test's
    done = subprocess.run(
        ["make", "-f", "-", "show", *words], cwd=ROOT, input=show, capture_output=True, text=True, check=True,
        env=outside | {"HF_HOME": "/elsewhere", "HOME": "/home/me", "XDG_CACHE_HOME": ""},
    )  # fmt: skip
    token = "" if home == "unset" else " /home/me/.cache/huggingface/token"
    assert done.stdout.strip() == home + token
