"""inspect: every module is counted once, planted faults are named, headers suffice."""

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core import shards
from core.errors import DONE, NEGATIVE, UserError
from quant import inspect
from quant.inspecting.ignored import Ignored
from quant.inspecting.modules import family
from tests.nvfp4_stand_in import (
    BESIDE,
    LAYERS,
    Change,
    Q,
    Tensors,
    altered,
    look,
    make_base,
    make_nvfp4,
    plain,
)

torch = pytest.importorskip("torch")

EXPERT = f"{LAYERS}.1.mlp.experts.2"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BF16 checkpoint."""
    return make_base(tmp_path_factory.mktemp("inspect") / "base")


@pytest.fixture(scope="module")
def nvfp4(base: Path) -> Path:
    """The stand-in for its NVFP4."""
    return make_nvfp4(base)


# ---- what a checkpoint holds --------------------------------------------------------------------


@pytest.mark.parametrize("which", ["base", "nvfp4"])
def test_a_sound_checkpoint_is_counted_whole(
    which: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    path = request.getfixturevalue(which)
    assert look(path) == DONE
    lines = capsys.readouterr().out.splitlines()
    tensors = shards.read_checkpoint(path)
    assert f"{len(tensors)} tensors in" in lines[0]
    rows = [re.split(r"  +", line) for line in lines[3 : lines.index("", 3)]]
    modules = inspect.read(path).modules
    assert {row[0] for row in rows} == {family(name) for name in modules}
    assert sum(int(row[2]) for row in rows) == len(modules)
    assert sum(len(module.tensors) for module in modules.values()) == len(tensors)
    assert (
        abs(sum(float(row[3]) for row in rows) - sum(t.stop - t.start for t in tensors.values()) / 1e6) < 0.3
    )
    assert lines[-1] == "vLLM: nothing found that it would refuse"


def test_schemes_shared_scales_mtp_and_ignore_list_are_shown(
    nvfp4: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    look(nvfp4)
    shown = capsys.readouterr().out
    n = rf"{LAYERS}.N"
    assert re.search(
        rf"^{n}.self_attn.q_proj +NVFP4 +1 .* with k_proj, v_proj; input: 1 a layer$", shown, re.M
    )
    assert re.search(
        rf"^{n}.mlp.experts.N.up_proj +NVFP4 +16 .* with gate_proj; input: 1 a layer$", shown, re.M
    )
    assert re.search(rf"^{n}.mlp.shared_expert.down_proj +NVFP4 +4 .* own; input: 1 a layer$", shown, re.M)
    assert re.search(r"^mtp.fc +BF16 ", shown, re.M)
    assert re.search(
        r"^MTP: 1 layer declared, (\d+) modules in BF16, .* \1 of \1 modules on the", shown, re.M
    )


@pytest.mark.parametrize(
    ("change", "scheme"),
    [
        (lambda t, _: t.pop(f"{Q}.input_global_scale"), "NVFP4A16"),
        (lambda t, _: t.update({f"{Q}.weight_packed": torch.zeros(8, 8, dtype=torch.int32)}), "INT4"),
        (lambda t, _: t.update({f"{Q}.weight_scale": torch.zeros(8, 8, dtype=torch.uint8)}), "MXFP4"),
        (lambda t, _: plain(t, Q, torch.float8_e4m3fn), "FP8"),
        (lambda t, _: plain(t, Q, torch.float32), "F32"),
    ],
)
def test_the_scheme_is_read_from_the_dtypes(nvfp4: Path, tmp_path: Path, change: Change, scheme: str) -> None:
    path = altered(nvfp4, tmp_path / "one", change)
    assert inspect.read(path).modules[Q].scheme == scheme


def test_headers_suffice_for_72_gb(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "large"
    shutil.copytree(base, path)
    name, rows = "model.language_model.embed_tokens.weight", 18_000_000
    header = {name: {"dtype": "BF16", "shape": [rows, 2000], "data_offsets": [0, 4000 * rows]}}
    text = json.dumps(header).encode()
    (path / shards.INDEX).unlink()
    with (path / shards.SINGLE).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + 4000 * rows)  # a hole: it takes no room
    start = time.process_time()
    assert inspect.read(path).modules["model.language_model.embed_tokens"].size == 72_000_000_000
    assert time.process_time() - start < 1


# ---- what would be refused ----------------------------------------------------------------------


def drop(*endings: str) -> Change:
    def change(tensors: Tensors, config: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.endswith(endings)]:
            del tensors[name]

    return change


def ignoring(*names: str) -> Change:
    return lambda _, config: config["quantization_config"]["ignore"].extend(names)


def listing(change: Callable[[list[str]], list[str]]) -> Change:
    def rewrite(_: Tensors, config: dict[str, Any]) -> None:
        config["quantization_config"]["ignore"] = change(config["quantization_config"]["ignore"])

    return rewrite


def setting(name: str, value: Any) -> Change:
    return lambda tensors, _: tensors.update({name: value})


PLANTED: list[tuple[Change, str]] = [
    (
        lambda t, c: drop(*[n for n in t if n.startswith("mtp.")])(t, c),
        r"refused: config\.json declares an MTP head .*quant\.mtp",
    ),
    (
        lambda t, _: [t.pop(n) for n in list(t) if f"{LAYERS}.2." in n],
        r"refused: no tensors of layer 2 of 4;",
    ),
    (
        lambda t, _: [t.pop(n) for n in list(t) if f"{EXPERT}.up_proj" in n],
        r"refused: .*experts\.2\.up_proj missing",
    ),
    (drop("lm_head.weight"), r"refused: lm_head missing"),
    (drop(f"{Q}.weight_scale"), r"refused: .*3\.self_attn\.q_proj\.weight_scale missing;"),
    (drop(f"{EXPERT}.down_proj.input_global_scale"), r"refused: .*2\.down_proj\.input_global_scale missing;"),
    (drop("weight_global_scale"), r"refused: .*weight_global_scale and 63 more missing;"),
    (
        setting(f"{Q}.weight_scale", torch.zeros(64, 2).to(torch.float8_e4m3fn)),
        r"refused: .*\[64, 2\], not one a 16",
    ),
    (
        setting(f"{Q}.weight_packed", torch.zeros(64, 20, dtype=torch.uint8)),
        r"refused: .*40 wide, which 16 does not",
    ),
    (
        setting(f"{Q}.weight_global_scale", torch.tensor([1344.0])),
        r"wrong: .*fused group, .*3\.self_attn: q_proj 1344, k_proj 2688",
    ),
    (
        setting(f"{EXPERT}.up_proj.weight_global_scale", torch.tensor([1.0])),
        r"wrong: .*experts\.2: gate_proj 2688, up_proj 1;",
    ),
    (
        setting(f"{Q}.input_global_scale", torch.tensor([0.0])),
        r"wrong: .*q_proj\.input_global_scale is 0\.0, expected a div",
    ),
    (
        setting(f"{Q}.input_global_scale", torch.tensor([float("nan")])),
        r"wrong: .*q_proj\.input_global_scale is nan",
    ),
    (ignoring(Q), r"refused: .*q_proj quantised although on the ignore list; take"),
    (
        ignoring(Q),
        r"refused: half a fused group, .*self_attn: q_proj NVFP4 \(on the ignore list\), k_proj NVFP4,",
    ),
    (
        lambda t, _: plain(t, Q, torch.bfloat16),
        r"refused: half a fused group, .*self_attn: q_proj BF16, k_proj NVFP4",
    ),
    (
        lambda t, _: plain(t, Q, torch.bfloat16),
        r"refused: .*q_proj not quantised, but not on the ignore list either; add",
    ),
    (
        lambda t, _: plain(t, f"{EXPERT}.up_proj", torch.bfloat16),
        r"refused: .*experts in more than one scheme: .*up_proj BF16",
    ),
    (lambda t, _: plain(t, Q, torch.float8_e4m3fn), r"refused: .*q_proj in FP8 without weight_scale"),
    (
        listing(lambda ignore: ignore[1:]),
        r"refused: mtp\.fc and \d+ more not quantised, but not on the ignore list",
    ),
    (
        listing(lambda ignore: [*ignore[1:], "re:^mtp\\.(?!.*experts).*"]),
        r"refused: mtp\.layers\.0\.mlp\.experts\..* and 1 more not",
    ),
    (
        listing(lambda ignore: [n for n in ignore if "in_proj_z" not in n]),
        r"half a fused group, .*linear_attn: in_proj_qkv BF16 \(on",
    ),
    (
        lambda _, c: c.pop("quantization_config"),
        r"refused: .* quantised, but config\.json has no quantization_config",
    ),
    (
        lambda _, c: c["quantization_config"].update(kv_cache_scheme={"num_bits": 8}),
        r"wrong: .*kv_cache_scheme \(8 bits\)",
    ),
    (
        setting("model.language_model.language_model.norm.weight", torch.zeros(64)),
        r"prefix language_model twice",
    ),
]


@pytest.mark.parametrize(("change", "line"), PLANTED)
def test_a_planted_fault_is_named_with_its_mend(
    nvfp4: Path, tmp_path: Path, change: Change, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = altered(nvfp4, tmp_path / "one", change)
    assert look(path) == NEGATIVE
    found = [one for one in capsys.readouterr().out.splitlines() if one.startswith(("refused: ", "wrong: "))]
    assert any(re.search(line, one) for one in found), found
    assert all("; " in one for one in found)


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja", *BESIDE[1:]])
def test_a_missing_file_beside_the_weights_is_refused(nvfp4: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "one"
    shutil.copytree(nvfp4, path)
    (path / name).unlink()
    (fault,) = inspect.faults(path)
    assert re.match(rf"refused: no .* \({re.escape(name)}( or .*)?\); copy it from the base", str(fault))


@pytest.mark.parametrize("keep", [("self_attn",), ("self_attn", "shared_expert")])
def test_whole_groups_kept_in_bf16_are_sound(nvfp4: Path, tmp_path: Path, keep: tuple[str, ...]) -> None:
    def change(tensors: Tensors, config: dict[str, Any]) -> None:
        kept = {n.rpartition(".")[0] for n in tensors if n.endswith("_packed") and any(k in n for k in keep)}
        for module in kept:
            plain(tensors, module, torch.bfloat16)
        config["quantization_config"]["ignore"] += sorted(kept)

    assert inspect.faults(altered(nvfp4, tmp_path / "one", change)) == []


def test_patterns_match_the_server_s_names_and_names_the_checkpoint_s() -> None:
    module = f"{LAYERS}.0.linear_attn.out_proj"
    for entry, matches in {
        module: True,
        "re:.*linear_attn.*": True,
        "re:language_model.model.layers.0.*": True,
        f"re:{LAYERS}.*": False,
        "linear_attn": False,
        "re:linear_attn.*": False,
    }.items():
        assert (module in Ignored({"ignore": [entry]})) is matches, entry


# ---- what cannot be read ------------------------------------------------------------------------


def test_what_is_no_checkpoint_is_one_line(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such directory; name a checkpoint's"):
        look(tmp_path / "nowhere")
    with pytest.raises(
        UserError, match=r"CHECKPOINT is blank: make inspect CHECKPOINT=models/tiny-production"
    ):
        look("")
    with pytest.raises(UserError, match=r"no model\.safetensors\.index\.json"):
        look(tmp_path)
    path = tmp_path / "one"
    shutil.copytree(base, path)
    (path / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"config\.json: missing or broken"):
        look(path)
    with pytest.raises(UserError, match=r"config\.json: missing or broken"):
        look(base, path)
    shard = shards.shard_files(path)[0]
    shard.write_bytes(shard.read_bytes()[:-8])
    with pytest.raises(UserError, match="truncated shard"):
        look(path)
