"""Deploy and rollback: the new payload in, the very bytes back, and every checkpoint that it must refuse."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deploying import (
    CONFIG,
    NVFP4,
    PLACE,
    PRODUCTION,
    SERVED,
    TENSORS,
    WORDS,
    artifact,
    backups,
    checkpoint,
    judge,
    on_disk,
    payload,
    payloads,
    quantize,
    refusal,
    run_deploy,
    run_deployments,
    run_rollback,
)

from core import artifacts, shards, verdicts
from core.errors import UserError
from quant import deploy
from quant.deploying import preflight, swap

ROOT = Path(__file__).parents[1]


pytestmark = pytest.mark.usefixtures("desk")


# ---- there and back ----------------------------------------------------------------------------


def test_deploy_serves_the_new_payload_and_says_the_way_back(
    kernel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = on_disk(SERVED), on_disk(NVFP4)
    assert run_deploy() == 0
    said = capsys.readouterr().out
    assert "run one, payload " in said and "verdict improves (skills improves), deployed 2" in said
    assert f"make rollback PROFILE=tiny DEPLOY_DIR={SERVED}" in said
    assert "restart the server to load it; its health was not checked" in said
    assert on_disk(SERVED) == new
    assert [on_disk(path) for path in swap.backups(SERVED)] == [old]
    assert payloads().keys() == {"model", "backups", "history"}


def test_rollback_restores_the_very_bytes_and_a_second_one_goes_forward(
    kernel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = on_disk(SERVED)
    run_deploy()
    new = on_disk(SERVED)
    for served, backup, said in [(old, new, "from before the first deploy"), (new, old, "run one, payload")]:
        capsys.readouterr()
        assert run_rollback() == 0
        assert said in capsys.readouterr().out
        assert (on_disk(SERVED), [on_disk(one) for one in swap.backups(SERVED)]) == (served, [backup])
        assert payloads().keys() == {"model", "backups", "history"}


def test_every_deploy_keeps_what_it_replaced(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = []
    for fill in (3, 4, 5):
        kept.append(payload(SERVED))
        quantize(fill)
        assert run_deploy() == 0
    assert backups() == kept
    assert payload(SERVED) == payload(NVFP4)
    capsys.readouterr()
    assert run_deployments() == 0
    *history, served, first, second, third, sizes = capsys.readouterr().out.splitlines()
    assert len(history) == 3 and all("  deploy    run one, payload " in line for line in history)
    assert re.search(r"^served now, at /.*/srv/model: run one, payload ", served)
    assert "from before the first deploy" in first and all("run one" in line for line in (second, third))
    assert re.search(r"^backups take \S+ MB, .* are free; none is ever removed for you: rm -r ", sizes)


def test_backups_of_one_second_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda *_: "20260101T000000Z")
    taken = SERVED.with_name("model.bak-20260101T000000Z")
    taken.mkdir()  # empty, so a rename would take its place silently
    (SERVED.parent / "model.bak-20260101T000000Z-2").symlink_to("nowhere")
    old = payload(SERVED)
    assert run_deploy() == 0
    assert list(taken.iterdir()) == []
    assert payload(SERVED.with_name("model.bak-20260101T000000Z-3")) == old


def test_what_is_served_already_is_not_deployed_again(capsys: pytest.CaptureFixture[str]) -> None:
    run_deploy()
    before = on_disk(Path())
    capsys.readouterr()
    assert run_deploy() == 0
    assert "up to date" in capsys.readouterr().out
    assert on_disk(Path()) == before


def test_the_served_files_are_copies_that_all_can_read() -> None:
    mask = os.umask(0o077)
    try:
        run_deploy()
    finally:
        os.umask(mask)
    for name in on_disk(NVFP4):
        assert (SERVED / name).stat().st_ino != (NVFP4 / name).stat().st_ino
        assert (SERVED / name).stat().st_mode & 0o777 == 0o644
    assert SERVED.stat().st_mode & 0o777 == 0o755


def test_a_link_to_the_served_directory_stays_one() -> None:
    Path("link").symlink_to(SERVED)
    assert deploy.main([*PLACE, "DEPLOY_DIR=link"]) == 0
    assert Path("link").is_symlink()
    assert payload(Path("link")) == payload(NVFP4)
    assert backups() and not list(Path().glob("link.*"))


def test_the_served_directory_may_lie_on_another_disk() -> None:
    memory = Path("/dev/shm")  # where there is none, it is the same disk
    folder = (memory if memory.is_dir() else Path().resolve()) / f"forja-test-{os.getpid()}"
    try:
        checkpoint(folder / "model", 1)
        assert deploy.main([*PLACE, f"DEPLOY_DIR={folder / 'model'}"]) == 0
        assert payload(folder / "model") == payload(NVFP4)
    finally:
        shutil.rmtree(folder)


def test_the_tiny_base_is_deployed_over_production_and_back(base_dir: Path) -> None:
    """As an embedded profile does at first: nothing is served yet; the new one differs in a tensor."""
    shutil.rmtree(SERVED.parent)
    shutil.copytree(base_dir, PRODUCTION)
    with artifact(NVFP4) as draft:
        shutil.copytree(base_dir, draft.path, dirs_exist_ok=True)
        changed = shards.read_checkpoint(draft.path)["lm_head.weight"]
        with changed.file.open("r+b") as file:
            file.seek(changed.start)
            file.write(bytes(changed.stop - changed.start))
    judge(verdicts.IMPROVES)
    assert payload(NVFP4) != payload(base_dir)
    assert run_deploy() == 0
    assert payload(SERVED) == payload(NVFP4)
    assert run_rollback() == 0
    assert payload(SERVED) == payload(base_dir)


# ---- refusals ----------------------------------------------------------------------------------


def test_a_verdict_that_does_not_pass_is_deployed_by_force_alone(capsys: pytest.CaptureFixture[str]) -> None:
    judge(verdicts.WORSE)
    before = on_disk(Path())
    assert run_deploy() == 1
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "worse (skills worse)" in said and "FORCE=1" in said
    assert on_disk(Path()) == before
    assert run_deploy("FORCE=1") == 0
    assert "verdict worse (skills worse), forced" in capsys.readouterr().out
    assert payload(SERVED) == payload(NVFP4)


def test_force_on_a_verdict_that_passes_is_no_forced_deploy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_deploy("FORCE=1") == 0
    assert "forced" not in capsys.readouterr().out


def cut_short() -> None:
    (NVFP4 / shards.SINGLE).write_bytes(b"")


def other_bytes() -> None:
    data = (NVFP4 / shards.SINGLE).read_bytes()
    (NVFP4 / shards.SINGLE).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def other_architecture() -> None:
    (SERVED / "config.json").write_text(json.dumps(CONFIG | {"architectures": ["Other"]}))


def no_config() -> None:
    (SERVED / "config.json").unlink()


def no_processors() -> None:
    with artifact(NVFP4) as draft:
        checkpoint(draft.path, 2)
        (draft.path / "config.json").write_text(json.dumps(CONFIG | {"vision_config": {}}))
    judge(verdicts.IMPROVES)


def no_template() -> None:
    with artifact(NVFP4) as draft:
        checkpoint(draft.path, 2)
        (draft.path / "chat_template.jinja").unlink()
    judge(verdicts.IMPROVES)


def other_scheme() -> None:
    group = {"weights": {"num_bits": 4, "type": "float"}, "input_activations": None}
    quantized = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    (SERVED / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": quantized}))


def other_dtype() -> None:
    data = (SERVED / shards.SINGLE).read_bytes()
    (SERVED / shards.SINGLE).write_bytes(data.replace(b'"U8"', b'"I8"', 1))


def other_production() -> None:
    checkpoint(PRODUCTION, 1, (*TENSORS, "more.weight"))


def never_judged() -> None:
    with artifact(NVFP4) as draft:
        checkpoint(draft.path, 7)


def damaged_in_service() -> None:
    run_deploy()
    (SERVED / shards.SINGLE).unlink()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (cut_short, r"nvfp4: files are missing or cut short; .* make quantize"),
        (other_bytes, r"model\.safetensors: not the bytes that its manifest says"),
        (
            other_architecture,
            r"config\.json says architectures \['Qwen3_5Moe.*says \['Other'\]; check PROFILE",
        ),
        (no_config, r"config\.json: no such file, .*check DEPLOY_DIR"),
        (no_processors, r"no image processor \(preprocessor_config\.json or processor_config\.json\)"),
        (no_template, r"no chat template \(chat_template\.jinja or .*remove the checkpoint, then make quant"),
        (other_scheme, r"config\.json says quantization_config \{\}, .* says .*compressed.*or .*FORCE=1"),
        (other_dtype, r"lm_head\.weight is \('U8', \(8,\)\), in .*model \('I8', \(8,\)\); check PROFILE"),
        (other_production, r"nvfp4 has no more\.weight, models/tiny-production has it"),
        (lambda: quantize(2, TENSORS[:1]), r"no mtp\.layers\.0\.\* although config\.json declares it"),
        (never_judged, r"judges another checkpoint"),
        (damaged_in_service, r"model: files are missing or cut short: make rollback"),
    ],
)
def test_what_cannot_replace_production_is_refused(prepare: Callable[[], Any], message: str) -> None:
    prepare()
    assert re.search(message, refusal(run_deploy))


def test_force_deploys_what_differs_from_production_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    other_dtype()
    assert run_deploy("FORCE=1") == 0
    assert "forced although models/one/nvfp4: lm_head.weight is" in capsys.readouterr().out


def test_a_scheme_of_another_version_is_no_other_scheme(tmp_path: Path) -> None:
    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    for name, version, more in (("one", "0.10", {}), ("two", "0.19", {"observer": "mse"})):
        scheme = {"config_groups": {name: {"weights": weights | more}}, "version": version, "ignore": [name]}
        checkpoint(tmp_path / name, 1)
        (tmp_path / name / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": scheme}))
    assert preflight.difference(tmp_path / "one", tmp_path / "two") == ""


def test_the_processors_may_stand_in_one_file_or_in_two() -> None:
    for names in (("processor_config.json",), ("preprocessor_config.json", "video_preprocessor_config.json")):
        no_processors()
        for name in names:
            (NVFP4 / name).write_text("{}")
        preflight.require_files(NVFP4, "mtp.")
        for name in names:
            (NVFP4 / name).unlink()


def test_what_the_servers_user_cannot_read_is_refused() -> None:
    (SERVED / "config.json").chmod(0o640)
    with pytest.raises(UserError, match=r"config\.json: only its owner can read it.*chmod -R a\+rX"):
        preflight.require_readable(SERVED)


@pytest.mark.parametrize(
    ("profile", "target", "message"),
    [
        (
            "qwen3_6_35b_a3b",
            "srv/gone",
            r"srv/gone: no such directory; DEPLOY_DIR is the directory that your",
        ),
        ("qwen3_6_35b_a3b", "gone/model", r"gone/model: no such directory"),
        ("tiny", NVFP4, r"nvfp4: the stages build on it; .*: serve a copy of it"),
        ("tiny", "/", r"^/: a mount point"),
        ("tiny", "srv/gone", r"tiny-production is not there yet: make base"),
    ],
)
def test_a_place_that_cannot_be_deployed_to_is_refused(profile: str, target: str, message: str) -> None:
    words = [f"PROFILE={profile}", *PLACE[1:], f"DEPLOY_DIR={target}"]
    assert re.search(message, refusal(lambda: deploy.main(words)))


def test_too_little_space_is_seen_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(".")
    run_deploy()
    quantize(3)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    message = refusal(run_deploy)
    assert re.search(r"0 MB free, the copy takes 0 MB: free some, or remove a backup .*model\.bak-2", message)


def test_two_deploys_never_run_side_by_side() -> None:
    with artifacts.locked(SERVED.parent):
        assert "another process" in refusal(run_deploy)
        assert "another process" in refusal(run_rollback)


def test_rollback_without_a_whole_backup_is_refused() -> None:
    assert "no backup to go back to" in refusal(run_rollback)
    run_deploy()
    (backup,) = swap.backups(SERVED)
    (backup / shards.SINGLE).write_bytes(b"half")
    assert "truncated shard" in refusal(run_rollback)
    shutil.rmtree(backup)
    assert "the backup to go back to is gone; make deployments" in refusal(run_rollback)


def test_a_damaged_journal_is_refused_by_every_command() -> None:
    run_deploy()
    Path("srv/model.deployments.json").write_text("[{]")
    for command in (run_deploy, run_rollback, run_deployments):
        assert "model.deployments.json: damaged; see that" in refusal(command)


def test_as_a_process_a_mistake_is_one_line_and_exit_code_2() -> None:
    command = [sys.executable, "-m", "quant.rollback", *WORDS]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
