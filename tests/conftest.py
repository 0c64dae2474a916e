"""Shared parts of the tests: the tiny base, and a copy of the project that a test may run make in."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core import artifacts
from tests import no_network

if TYPE_CHECKING:
    from tests.deploying import StandIn

# A shell's background job starts with SIGINT ignored, nohup's with SIGHUP: so would all that the tests stop.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)
# The tests share the cores among processes; threads of torch in each would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).parent.parent
CODE = (
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
    "core",
    "dataset_builder",
    "trainer",
    "quant",
    "eval",
    "examples",
)

MINI_PROFILE = '''"""The tiny profile with few rows and steps, for tests of the chain."""

from dataclasses import replace

from core.profiles import tiny

DATA = replace(
    tiny.PROFILE.data,
    rows={"mcp_calls": 24, "skills": 6, "near_miss": 4, "no_tool": 4, "recovery": 4, "replay": 8},
    eval_rows={
        "mcp_calls": 6, "synonyms": 2, "skills": 2, "near_miss": 2, "no_tool": 2, "recovery": 2, "replay": 4,
    },
)
PROFILE = replace(tiny.PROFILE, name="mini", data=DATA, train=replace(tiny.PROFILE.train, epochs=1))
'''


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests stay together, and so do all that use the project in which make has run."""
    for item in items:
        group = "project" if "project" in getattr(item, "fixturenames", ()) else item.path.name
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny base as `make base` writes it."""
    from trainer import base

    models = tmp_path_factory.mktemp("models")
    assert base.main(["PROFILE=tiny", "RUN=tiny", f"MODELS_DIR={models}"]) == 0
    return models / "tiny"


@pytest.fixture(scope="session")
def tokenizer(base_dir: Path):
    """The tiny base's tokenizer."""
    from core.generate import load_tokenizer

    return load_tokenizer(base_dir)


Make = Callable[..., subprocess.CompletedProcess[str]]


def copy_project(into: Path) -> Path:
    """The project's files with a `mini` profile more; environments are the real ones."""
    into.mkdir(exist_ok=True)
    for name in CODE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, into / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, into / name)
    for name in (".venv", ".venv-mcp"):
        (into / name).symlink_to(ROOT / name)
    (into / "core/profiles/mini.py").write_text(MINI_PROFILE, encoding="utf-8")
    return into


def run_make(project: Path, *words: str, minutes: int = 15) -> subprocess.CompletedProcess[str]:
    """`make <words>` in a copy of the project, output captured; an error where it takes longer than that."""
    return subprocess.run(
        ["make", *words], cwd=project, capture_output=True, text=True, timeout=60 * minutes, check=False
    )


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in which `make merge PROFILE=mini` has run, the network cut (test_offline.py)."""
    made = copy_project(tmp_path_factory.mktemp("project"))
    done = subprocess.run(
        [*no_network.prefix(), "make", "merge", "PROFILE=mini"],
        cwd=made,
        env=no_network.environment(made / "network-asked"),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture(scope="session")
def mission_schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A schemas artefact of the mission's five servers, from tests/data/schemas."""
    path = tmp_path_factory.mktemp("mission") / "schemas"
    facts = {"profile": "tiny", "run": "tiny", "settings": {}, "inputs": {}}
    with artifacts.create(path, kind="schemas", **facts) as draft:
        shutil.copytree(ROOT / "tests/data/schemas", draft.path, dirs_exist_ok=True)
    return path


@pytest.fixture(scope="session")
def quantized_run(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which quantize and dequantize have run (tests/quantizing.py); not to be changed."""
    from tests import quantizing

    place = tmp_path_factory.mktemp("quantized")
    quantizing.make(place, base_dir)
    return place


@pytest.fixture(scope="session")
def little_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the base of PROFILE=little is kept."""
    return tmp_path_factory.mktemp("little-models")


@pytest.fixture
def little_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little_models: Path) -> Path:
    """A directory to work in, with the examples, the packages fetched so far, and PROFILE=little."""
    from tests import little_llama

    for name in ("examples", ".cache", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    little_llama.install(monkeypatch, little_models)
    return tmp_path


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place to deploy to; the test runs in it."""
    from tests import deploying

    deploying.set_up(tmp_path, monkeypatch)


@pytest.fixture
def stand_in(desk: None) -> Iterator["StandIn"]:
    """The stand-in server of that place, serving checkpoint 1."""
    from tests.deploying import StandIn

    server = StandIn()
    server.up()
    yield server
    server.down()


@pytest.fixture(params=["renameat2", "renames"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the kernel's exchange, and without."""
    from tests import deploying

    if request.param == "renames":
        deploying.without_exchange(monkeypatch)
    return request.param
