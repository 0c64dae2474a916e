"""A build that was interrupted goes on from the files that it had finished, and only then."""

from pathlib import Path
from typing import Any

import pytest

from core import artifacts
from core.errors import UserError
from tests.test_artifacts import contents, on_disk

FACTS: dict[str, Any] = {"kind": "dataset", "profile": "tiny", "run": "r", "settings": {}, "inputs": {}}


def interrupted(path: Path, error: BaseException, **changed: Any) -> None:
    """Start a build that can be resumed, finish one of two files, and end by `error`."""
    with pytest.raises(type(error)), artifacts.create(path, **FACTS | changed, resume=True) as draft:
        (draft.path / "one").write_bytes(b"one")
        draft.finish("one", artifacts.file_sha256(draft.path / "one"), rows=1)
        (draft.path / "two").write_bytes(b"half of t")
        raise error


def test_an_interrupted_build_goes_on_from_its_finished_files(tmp_path: Path) -> None:
    interrupted(tmp_path / "x", KeyboardInterrupt())
    with artifacts.create(tmp_path / "x", **FACTS, resume=True) as draft:
        assert on_disk(draft.path).keys() == {"one", artifacts.JOURNAL}
        assert draft.finished["one"]["rows"] == 1
        (draft.path / "two").write_bytes(b"two")
    assert contents(tmp_path / "x") == {"one": b"one", "two": b"two"}
    files = artifacts.require(tmp_path / "x", "dataset")["files"]
    assert all(e["sha256"] == artifacts.file_sha256(tmp_path / "x" / name) for name, e in files.items())
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_journal_survives_a_second_interruption(tmp_path: Path) -> None:
    interrupted(tmp_path / "x", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), artifacts.create(tmp_path / "x", **FACTS, resume=True):
        raise KeyboardInterrupt
    with artifacts.create(tmp_path / "x", **FACTS, resume=True) as draft:
        assert set(draft.finished) == {"one"}


@pytest.mark.parametrize(
    "changed", [{"settings": {"A": 1}}, {"inputs": {"base": {"path": "", "sha256": "1"}}}, {"run": "other"}]
)
def test_an_interrupted_build_of_other_facts_starts_anew(changed: dict[str, Any], tmp_path: Path) -> None:
    interrupted(tmp_path / "x", KeyboardInterrupt(), **changed)
    with artifacts.create(tmp_path / "x", **FACTS, resume=True) as draft:
        assert (draft.finished, on_disk(draft.path)) == ({}, {})


def test_a_build_that_does_not_resume_takes_nothing_over(tmp_path: Path) -> None:
    interrupted(tmp_path / "x", KeyboardInterrupt())
    with artifacts.create(tmp_path / "x", **FACTS) as draft:
        assert (draft.finished, on_disk(draft.path)) == ({}, {})


def test_an_error_leaves_nothing_to_resume(tmp_path: Path) -> None:
    interrupted(tmp_path / "x", UserError("wrong"))
    assert list(tmp_path.iterdir()) == []
