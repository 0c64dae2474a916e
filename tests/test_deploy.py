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
    BACKUP,
    CONFIG,
    NVFP4,
    PLACE,
    PRODUCTION,
    SERVED,
    TENSORS,
    WORDS,
    artifact,
    checkpoint,
    judge,
    on_disk,
    payload,
    payloads,
    quantize,
    refusal,
    run_deploy,
    run_rollback,
)

from core import artifacts, shards, verdicts
from quant import deploy

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
    served = on_disk(SERVED)
    ours, runs = (json.loads(files.pop(artifacts.MANIFEST)) for files in (served, new))
    assert served == new
    assert ours == runs | {"deployed": ours["deployed"]}
    assert on_disk(BACKUP) == old
    assert payloads().keys() == {"model", "model.bak"}


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
        assert (on_disk(SERVED), on_disk(BACKUP)) == (served, backup)
        assert payloads().keys() == {"model", "model.bak"}


def test_one_backup_is_kept_the_one_before(kernel: str) -> None:
    run_deploy()
    second = on_disk(SERVED)
    quantize(3)
    run_deploy()
    assert payload(SERVED) == payload(NVFP4)
    assert on_disk(BACKUP) == second
    assert payloads().keys() == {"model", "model.bak"}


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
    assert BACKUP.is_dir() and not Path("link.bak").exists()


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


def more_served() -> None:
    (SERVED / "processor_config.json").write_text("{}")


def someones_backup() -> None:
    checkpoint(BACKUP, 9)


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
        (
            more_served,
            r"no image processor \(preprocessor_config\.json or processor_config\.json\), which .*has",
        ),
        (lambda: quantize(2, TENSORS[:1]), r"no mtp\.layers\.0\.\* although config\.json declares it"),
        (never_judged, r"judges another checkpoint"),
        (someones_backup, r"model\.bak: in the way, and no backup of an earlier deploy: move it away"),
        (damaged_in_service, r"model: files are missing or cut short: make rollback"),
    ],
)
def test_what_cannot_replace_production_is_refused(prepare: Callable[[], Any], message: str) -> None:
    prepare()
    assert re.search(message, refusal(run_deploy))


def test_the_processors_may_stand_in_one_file_or_in_two() -> None:
    more_served()
    with artifact(NVFP4) as draft:
        checkpoint(draft.path, 2)
        for name in ("preprocessor_config.json", "video_preprocessor_config.json"):
            (draft.path / name).write_text("{}")
    judge(verdicts.IMPROVES)
    assert run_deploy() == 0


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
    assert re.search(r"0 MB free, the copy takes 0: free some, or remove .*model\.bak", refusal(run_deploy))


def test_two_deploys_never_run_side_by_side() -> None:
    with artifacts.locked(SERVED.parent):
        assert "another process" in refusal(run_deploy)
        assert "another process" in refusal(run_rollback)


def test_rollback_without_a_whole_backup_is_refused() -> None:
    assert "no backup to go back to" in refusal(run_rollback)
    run_deploy()
    (BACKUP / shards.SINGLE).write_bytes(b"half")
    assert "truncated shard" in refusal(run_rollback)


def test_as_a_process_a_mistake_is_one_line_and_exit_code_2() -> None:
    command = [sys.executable, "-m", "quant.rollback", *WORDS]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
