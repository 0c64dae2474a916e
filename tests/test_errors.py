"""How a stage ends: exit codes, one line for a user's mistake, a traceback for a defect of ours."""

import errno
import sys
from collections.abc import Callable

import pytest

from core import errors
from core.errors import Refused, UserError, did_you_mean


def ended(stage: Callable[[list[str]], int | None]) -> int:
    """The exit code of a stage."""
    with pytest.raises(SystemExit) as caught:
        errors.run(stage)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def raising(error: BaseException) -> Callable[[list[str]], int]:
    def stage(words: list[str]) -> int:
        raise error

    return stage


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (1, 1), (2, 2)])
def test_the_exit_code_is_what_the_stage_returns(returned: int | None, code: int) -> None:
    assert ended(lambda words: returned) == code


def test_a_stage_gets_the_words_after_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["stage", "A=1", "B="])
    seen: list[str] = []
    assert ended(seen.extend) == 0
    assert seen == ["A=1", "B="]


def test_a_users_mistake_is_one_line_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(raising(UserError("LORA_RANK=x: expected a whole number"))) == 2
    assert capsys.readouterr() == ("", "error: LORA_RANK=x: expected a whole number\n")


def test_a_refusal_is_its_findings_and_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(raising(Refused("row 3: a token\nmend its source"))) == 1
    assert capsys.readouterr() == ("", "row 3: a token\nmend its source\n")


def test_an_interrupt_is_one_line_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(raising(KeyboardInterrupt())) == 2
    assert capsys.readouterr().err.startswith("interrupted: ")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "error: no space left on the disk of /models/x: free some, or point "),
        (errno.EDQUOT, "error: no space left on the disk of /models/x: free some, or point "),
        (errno.EACCES, "error: /models/x: Permission denied; check its owner and mode"),
        (errno.EROFS, "error: /models/x: Read-only file system; check its owner and mode"),
    ],
)
def test_a_full_or_closed_disk_is_one_line_and_2(
    number: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {errno.EACCES: "Permission denied", errno.EROFS: "Read-only file system"}
    assert ended(raising(OSError(number, texts.get(number, ""), "/models/x"))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(message)


@pytest.mark.parametrize("error", [ValueError("ours"), FileNotFoundError(errno.ENOENT, "", "x")])
def test_a_defect_of_ours_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        errors.run(raising(error))


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("LORA_RNAK", " (did you mean LORA_RANK?)"),
        ("lora_rank", " (did you mean LORA_RANK?)"),
        ("epoch", " (did you mean EPOCHS?)"),
        ("xyzzy", ""),
        ("", ""),
    ],
)
def test_the_nearest_known_word_is_offered(word: str, hint: str) -> None:
    assert did_you_mean(word, ["LORA_RANK", "LORA_ALPHA", "EPOCHS"]) == hint


def test_a_full_disk_under_safetensors_is_one_line_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors import SafetensorError

    # What save_file raises on a full file system (safetensors 0.8.0, seen on a tmpfs of 64 kB).
    error = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert ended(raising(error)) == 2
    assert capsys.readouterr().err.startswith("error: no space left on the disk of ")
    with pytest.raises(SafetensorError):
        errors.run(raising(SafetensorError("Error while deserializing header: invalid UTF-8")))
