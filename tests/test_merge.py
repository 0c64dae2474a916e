"""What a merge leaves on disk, and when it does nothing."""

import os
import shutil
from pathlib import Path

import pytest

from core import artifacts, shards
from core.errors import UserError
from quant import merge
from quant.merging import rows, stream
from tests.merging import (
    ADAPTER,
    ATTENTION,
    BASE,
    LAYER,
    MERGED,
    WORDS,
    files,
    hand_made,
    headers,
    make_base,
    process,
    raw,
    refused,
    work_in,
)

pytest.importorskip("peft")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("bf16"), "bf16")


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> None:
    """A working directory that holds the bf16 base."""
    work_in(tmp_path, monkeypatch, made)


def test_only_the_adapted_tensors_differ(capsys: pytest.CaptureFixture[str]) -> None:
    hand_made()
    merge.main(WORDS)
    assert "merge: 4 tensors merged, relative change 0." in capsys.readouterr().out
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
    monkeypatch.setattr(stream, "READ", 1000)
    monkeypatch.setattr(stream, "WINDOW", 4096)
    monkeypatch.setattr(rows, "BLOCK", 200)
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
    assert "merge: 4 tensors merged" in capsys.readouterr().out


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


def test_a_failed_merge_keeps_the_old_one() -> None:
    hand_made()
    merge.main(WORDS)
    before = files(MERGED, "")
    hand_made(lambda tensors, _: tensors[f"{LAYER}v_proj.lora_B.weight"].fill_(float("inf")))
    with pytest.raises(UserError):
        merge.main(WORDS)
    assert files(MERGED, "") == before
    assert artifacts.payload(MERGED).keys() <= before.keys()
