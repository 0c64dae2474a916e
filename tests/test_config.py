"""Settings: NAME=value words in, one typed object or one line of complaint out."""

import dataclasses
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from core import config, profile
from core.config import setting
from core.errors import UserError
from core.profile import Data, Profile
from core.settings import STAGES, DatasetSettings, TrainSettings, all_names, show

ROOT = Path(__file__).parents[1]
QWEN = profile.load("qwen3_6_35b_a3b")


@dataclass(frozen=True, kw_only=True)
class Example:
    profile: Profile
    models_dir: Path = setting(recorded=False)
    skills_dirs: tuple[Path, ...] = setting(recorded=False)
    lora_rank: int = setting(profile="lora.rank", positive=True)
    learning_rate: float = setting(profile="train.lr")
    seed: int = setting()
    backend: str = setting("")
    rebuild: bool = setting(False, recorded=False)


NEEDED = ["PROFILE=tiny", "MODELS_DIR=models", "SKILLS_DIRS=a b", "SEED=100"]


def parsed(*words: str) -> Example:
    return config.parse(Example, [*NEEDED, *words])


def test_every_kind_of_value_takes_its_type() -> None:
    got = parsed("LORA_RANK=8", "LEARNING_RATE=1e-4", "BACKEND=plain", "REBUILD=1")
    assert got == Example(
        profile=profile.load("tiny"),
        models_dir=Path("models"),
        skills_dirs=(Path("a"), Path("b")),
        lora_rank=8,
        learning_rate=1e-4,
        seed=100,
        backend="plain",
        rebuild=True,
    )
    assert type(got.learning_rate) is float


def test_a_blank_takes_the_profiles_value_and_else_the_default() -> None:
    tiny = profile.load("tiny")
    got = parsed("LORA_RANK=", "LEARNING_RATE= ", "BACKEND=", "REBUILD=")
    assert got == parsed()
    assert (got.lora_rank, got.learning_rate) == (tiny.lora.rank, tiny.train.lr)
    assert (got.backend, got.rebuild) == ("", False)


def test_a_value_may_hold_an_equals_sign() -> None:
    assert parsed("BACKEND=a=b").backend == "a=b"


def test_a_whole_number_will_do_for_a_number() -> None:
    assert parsed("LEARNING_RATE=1").learning_rate == 1.0


def test_a_path_may_start_at_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ["PROFILE=tiny", "SEED=1", "MODELS_DIR=~/models", "SKILLS_DIRS=~/a b"]
    got = config.parse(Example, words)
    assert got.models_dir == tmp_path / "models"
    assert got.skills_dirs == (tmp_path / "a", Path("b"))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("LORA_RNAK=8", "LORA_RNAK: no such setting (did you mean LORA_RANK?); have BACKEND, "),
        ("lora_rank=8", "lora_rank: no such setting (did you mean LORA_RANK?); have BACKEND, "),
        ("LORA_RANK=eight", "LORA_RANK=eight: expected a whole number"),
        ("LORA_RANK=8.5", "LORA_RANK=8.5: expected a whole number"),
        ("LORA_RANK=-8", "LORA_RANK=-8: must not be negative"),
        ("LORA_RANK=0", "LORA_RANK=0: must be more than 0"),
        ("LEARNING_RATE=fast", "LEARNING_RATE=fast: expected a number"),
        ("LEARNING_RATE=nan", "LEARNING_RATE=nan: expected a number"),
        ("LEARNING_RATE=inf", "LEARNING_RATE=inf: expected a number"),
        ("LEARNING_RATE=-1e-4", "LEARNING_RATE=-1e-4: must not be negative"),
        ("REBUILD=yes", "REBUILD=yes: expected 1 or blank"),
        ("SEED=101", "SEED: given twice"),
        ("LORA_RANK", "'LORA_RANK': expected NAME=value"),
    ],
)
def test_a_mistake_is_told_with_the_value_and_what_is_allowed(word: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed(word)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_switches_are_on_by_one_and_off_by_nought_or_blank() -> None:
    assert parsed("REBUILD=1").rebuild is True
    assert parsed("REBUILD=0").rebuild is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (NEEDED[1:], f"PROFILE is blank; have {', '.join(profile.names())}"),
        (["PROFILE=", *NEEDED[1:]], f"PROFILE is blank; have {', '.join(profile.names())}"),
        (["PROFILE=tini"], "PROFILE=tini: no such profile (did you mean tiny?); have "),
        (NEEDED[:3], "SEED is blank: expected a whole number"),
        (["PROFILE=tiny", "SKILLS_DIRS=a", "SEED=1"], "MODELS_DIR is blank: expected a path"),
    ],
)
def test_what_has_no_value_anywhere_is_asked_for(words: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        config.parse(Example, words)
    assert str(caught.value).startswith(message)


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parsed().lora_rank = 4  # pyright: ignore[reportAttributeAccessIssue]


def test_only_what_shapes_the_result_is_recorded_as_json_types() -> None:
    assert config.recorded(parsed("LORA_RANK=8")) == {
        "PROFILE": "tiny",
        "LORA_RANK": 8,
        "LEARNING_RATE": profile.load("tiny").train.lr,
        "SEED": 100,
        "BACKEND": "",
    }


# ---- the real stages ----------------------------------------------------------------------------

MAKEFILE = [
    "RUN=r",
    "MODELS_DIR=models",
    "MCP_CONFIG=mcp.json",
    "SKILLS_DIRS=skills",
    "REQUESTS=requests.jsonl",
    "REPLAY=replay.jsonl",
    "DATA_SEED=100",
    "EVAL_SEED=0",
    "TRAIN_SEED=100",
    "DEPLOY_DIR=deployed/x",
]
ORIGINS = ("command line", "Makefile", "profile", "default")


def own(stage: type) -> list[str]:
    """The words that the Makefile gives a stage, PROFILE apart."""
    return [word for word in MAKEFILE if word.split("=")[0] in config.setting_names(stage)]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[str, str]]:
    """What `make settings` prints: value and origin by name."""
    assert show([*MAKEFILE, *words]) == 0
    rows = {}
    for line in capsys.readouterr().out.splitlines():
        name, rest = line.split(maxsplit=1)
        origin = next(o for o in ORIGINS if rest.endswith(o))
        rows[name] = (rest.removesuffix(origin).strip(), origin)
    return rows


def test_settings_are_shown_with_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["PROFILE=tiny", "LORA_RANK=8", "EPOCHS=1", "COMMAND_LINE=LORA_RANK PROFILE"]
    got = shown(capsys, *words)
    assert got["PROFILE"] == ("tiny", "command line")
    assert got["LORA_RANK"] == ("8", "command line")
    assert got["EPOCHS"] == ("1.0", "Makefile")
    assert got["MODELS_DIR"] == ("models", "Makefile")
    assert got["LORA_ALPHA"] == ("32", "profile")
    assert got["EVAL_LIMIT"] == ("0", "default")


def test_a_name_left_blank_on_the_command_line_is_the_profiles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    got = shown(capsys, "PROFILE=tiny", "LORA_RANK=", "COMMAND_LINE=LORA_RANK")
    assert got["LORA_RANK"] == ("16", "profile")


@pytest.mark.parametrize("name", profile.names())
def test_every_setting_is_shown_for_every_profile(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(shown(capsys, f"PROFILE={name}")) == all_names()


def test_a_stage_that_the_profile_lacks_is_refused_and_shown_as_a_dash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_data = dataclasses.replace(QWEN, data=None)
    monkeypatch.setattr(config.profiles, "load", lambda name: without_data)
    with pytest.raises(UserError, match="ROWS: PROFILE=qwen3_6_35b_a3b has none"):
        config.parse(DatasetSettings, ["PROFILE=x", *own(DatasetSettings)])
    assert shown(capsys, "PROFILE=x")["TOOLS_SHOWN"] == ("-", "profile")


def test_numbers_by_name_take_the_place_of_the_profiles() -> None:
    words = [f"PROFILE={QWEN.name}", *own(DatasetSettings)]
    assert isinstance(QWEN.data, Data)
    got = config.parse(DatasetSettings, [*words, "ROWS=mcp=5 replay=0"])
    assert got.rows == QWEN.data.rows | {"mcp": 5, "replay": 0}
    assert list(got.rows) == list(QWEN.data.rows)
    assert config.recorded(got)["ROWS"] == got.rows


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mpc=5", "ROWS: mpc: unknown (did you mean mcp?); have penpot, mcp,"),
        ("mcp=five", "ROWS: mcp=five: expected a whole number"),
        ("mcp=-1", "ROWS: mcp=-1: must not be negative"),
        ("mcp", "'mcp': expected NAME=value"),
    ],
)
def test_numbers_by_name_that_are_none_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        config.parse(DatasetSettings, [f"PROFILE={QWEN.name}", *own(DatasetSettings), f"ROWS={text}"])
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize("stage", STAGES)
def test_every_profile_value_that_a_stage_reads_exists(stage: str) -> None:
    words = [f"PROFILE={QWEN.name}", *own(STAGES[stage])]
    found = config.resolve(STAGES[stage], words)
    assert [name for name, one in found.items() if one.value is None] == []


def test_the_places_of_a_run_follow_from_its_settings() -> None:
    got = config.parse(TrainSettings, [f"PROFILE={QWEN.name}", *own(TrainSettings)])
    assert got.base_dir == Path("models/Qwen3.6-35B-A3B")
    assert got.data_dir == Path("data/qwen3_6_35b_a3b")
    assert got.out_dir == Path("out/r")
    assert got.merged_dir == Path("models/r/merged")


def test_a_misspelt_setting_ends_the_process_with_2_and_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "core.settings", "refuse", "LORA_RNAK"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: LORA_RNAK: no such setting (did you mean LORA_RANK?); have ")
