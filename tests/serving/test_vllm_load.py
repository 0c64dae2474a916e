"""NVFP4 checkpoints through vLLM's own loader: what it takes, and that quant.inspect names what it refuses.

On a CPU they load through our stand-in, stand_ins.py; all else is vLLM's own.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core import shards
from core.errors import DONE, NEGATIVE
from quant import inspect, production, quantize
from tests import deltas
from tests.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.serve]

Loaded = dict[str, tuple[Path, dict[str, Any]]]
LAYERS = "model.language_model.layers."


def edit_config(checkpoint: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = checkpoint / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    edit(config["quantization_config"])
    path.write_text(json.dumps(config), encoding="utf-8")


def without(checkpoint: Path, prefix: str) -> None:
    """Take the tensors of this prefix away."""
    from safetensors.torch import load_file, save_file

    for file in checkpoint.glob("*.safetensors"):
        kept = {name: t for name, t in load_file(file).items() if not name.startswith(prefix)}
        save_file(kept, file)
    index = checkpoint / shards.INDEX
    found = json.loads(index.read_text(encoding="utf-8"))
    found["weight_map"] = {n: f for n, f in found["weight_map"].items() if not n.startswith(prefix)}
    index.write_text(json.dumps(found), encoding="utf-8")


def ignore(name: str) -> Callable[[Path], None]:
    return lambda checkpoint: edit_config(checkpoint, lambda quant: quant["ignore"].append(name))


def draft_not_ignored(checkpoint: Path) -> None:
    def edit(quant: dict[str, Any]) -> None:
        quant["ignore"] = [name for name in quant["ignore"] if "mtp" not in name]

    edit_config(checkpoint, edit)


FAULTS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "half of q/k/v ignored": (
        ignore(f"{LAYERS}1.self_attn.q_proj"), "different quantization schemes", "half a fused group",
    ),
    "half of gate/up ignored": (
        ignore(f"{LAYERS}0.mlp.shared_expert.gate_proj"),
        "different quantization schemes", "half a fused group",
    ),
    "ignored although quantised": (
        ignore(f"{LAYERS}1.self_attn.o_proj"),
        "no module or parameter named", "quantised although on the ignore list",
    ),
    "a draft that is not ignored": (
        draft_not_ignored, "no module or parameter named 'fc.weight'", "not on the ignore list",
    ),
    "a scale is missing": (
        lambda path: without(path, f"{LAYERS}1.self_attn.o_proj.weight_scale"),
        "not initialized from checkpoint", "o_proj.weight_scale missing",
    ),
    "a global scale is missing": (
        lambda path: without(path, f"{LAYERS}1.self_attn.o_proj.weight_global_scale"),
        "not initialized from checkpoint", "o_proj.weight_global_scale missing",
    ),
    "the draft is missing": (
        lambda path: without(path, "mtp."),
        "not initialized from checkpoint", "no tensor is under mtp.layers.0",
    ),
}  # fmt: skip
"""What is done to a checkpoint, what vLLM says of it, what quant.inspect says."""


def quantised(base_dir: Path, place: Path) -> dict[str, Path]:
    """A run in NVFP4 by delta, and with what it tuned kept in BF16."""
    deltas.make(place, base_dir)
    paths = {"delta": place / "delta", "KEEP_TUNED=bf16": place / "kept"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        deltas.adapt()
        for word, path in paths.items():
            assert quantize.main([*deltas.WORDS, *(w for w in [word] if "=" in w)]) == DONE
            shutil.copytree(deltas.NVFP4, path)
    return paths


@pytest.fixture(scope="module")
def loaded(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Production's NVFP4 checkpoint of the tiny profile, whole and with each fault, quantised runs, and what
    vLLM says of them."""
    words = ["PROFILE=tiny", "RUN=tiny", f"MODELS_DIR={base_dir.parent}"]
    assert production.main(words) == DONE
    whole, folder = base_dir.parent / "tiny-production", tmp_path_factory.mktemp("faults")
    paths = {"whole": whole, **quantised(base_dir, tmp_path_factory.mktemp("runs"))}
    for number, (name, (spoil, _, _)) in enumerate(FAULTS.items()):
        paths[name] = folder / str(number)
        shutil.copytree(whole, paths[name])
        spoil(paths[name])
    script = Path(__file__).with_name("load.py")
    done = subprocess.run(
        [ROOT / ".venv-serve/bin/python", script, *paths.values()],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0 and len(lines) == len(paths), done.stderr[-3000:]
    return {name: (path, line) for (name, path), line in zip(paths.items(), lines, strict=True)}


DENSE = {f"{layer}.mlp.shared_expert.{name}" for layer in range(4) for name in ("gate_up_proj", "down_proj")}
DENSE |= {f"{layer}.self_attn.{name}" for layer in (1, 3) for name in ("qkv_proj", "o_proj")}
ROUTED = {f"{layer}.mlp.experts.routed_experts" for layer in range(4)}
"""By layer, vLLM's fused names: what the recipe quantises, all but the routed experts tuned in our runs."""


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("whole", DENSE | ROUTED), ("delta", DENSE | ROUTED), ("KEEP_TUNED=bf16", ROUTED)],
)
def test_vllm_quantises_what_we_did_and_leaves_the_draft_alone(
    loaded: Loaded, name: str, wanted: set[str]
) -> None:
    path, found = loaded[name]
    assert "refused" not in found, found
    assert set(found["quantised"]) == {f"language_model.model.layers.{module}" for module in wanted}
    plain = {name.removeprefix("language_model.model.layers.") for name in found["plain"]}
    assert plain >= {"language_model.lm_head", "0.linear_attn.out_proj", "0.mlp.gate"} | (DENSE - wanted)
    assert any(name.startswith("visual.") for name in plain)
    assert found["draft"] == ["torch.bfloat16"]
    assert inspect.main(["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models", f"CHECKPOINT={path}"]) == DONE


@pytest.mark.parametrize("name", FAULTS)
def test_what_vllm_refuses_is_named_before_it_is_served(
    loaded: Loaded, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, found = loaded[name]
    _, says, ours = FAULTS[name]
    assert says in found["refused"]
    words = ["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models", f"CHECKPOINT={path}"]
    assert inspect.main(words) == NEGATIVE
    assert ours in capsys.readouterr().out
