"""The gate: a planted secret fails it by row and rule, never by value; what was reviewed passes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.errors import UserError
from dataset_builder import secrets_gate
from dataset_builder.sanitize import Sanitizer
from dataset_builder.sanitizing import libraries

ROOT = Path(__file__).parents[1]
TOKEN = "ghp_1zYx7e42Fq92c6912E7710c838347Ae178B4"
KNOWN = {"GITEA_TOKEN": "Zafiro-99-verde"}
ROW = "<|im_start|>user\nHola, ¿qué ramas hay?<|im_end|>\n<|im_start|>assistant\n<think>\nMiro.\n</think>\n"


def rows(**texts: str) -> list[tuple[str, str]]:
    return [("train.jsonl:1", ROW), *((f"train.jsonl:{name}", ROW + text) for name, text in texts.items())]


def test_a_clean_row_passes() -> None:
    assert secrets_gate.scan(rows(b="commit 3f2a9c8e1b7d4f603f2a9c8e1b7d4f603f2a9c8e"), None, KNOWN) == []


@pytest.mark.parametrize(
    "comment", ["", "  # gitleaks:allow", "  # betterleaks:allow", "  # pragma: allowlist secret"]
)
def test_a_token_fails_and_no_comment_saves_it(comment: str) -> None:
    hits = secrets_gate.scan(rows(bad=f"export GITHUB_TOKEN={TOKEN}{comment}"), None, {})
    assert hits and {hit.row for hit in hits} == {"train.jsonl:bad"}
    shown = secrets_gate.report(hits, None) + repr(hits)
    assert "train.jsonl:bad" in shown and "hub" in shown.lower() and TOKEN[4:] not in shown


@pytest.mark.parametrize(
    "text", ["Zafiro-99-verde", "WmFmaXJvLTk5LXZlcmRl", "Zafiro\\u002d99-verde", "Zafiro-99-\n  verde"]
)
def test_a_known_value_fails_in_any_spelling(text: str) -> None:
    hits = secrets_gate.scan(rows(bad=f"«{text}» ñ\0"), None, KNOWN)
    assert [(hit.row, hit.rule) for hit in hits] == [("train.jsonl:bad", "known value GITEA_TOKEN")]


def test_what_was_scrubbed_passes() -> None:
    text = f"export GITHUB_TOKEN={TOKEN} y password: 'Zafiro-99-verde'"
    clean = Sanitizer(b"k" * 32, known=KNOWN, libraries=False).scrub(text)
    assert secrets_gate.scan(rows(clean=clean), None, KNOWN) == []


def test_a_reviewed_fingerprint_passes_and_only_it(tmp_path: Path) -> None:
    bad = rows(bad=f"token {TOKEN}")
    hits = secrets_gate.scan(bad, None, {})
    allowed = tmp_path / "allowed.txt"
    allowed.write_text(
        "# revisado\n" + "".join(f"{h.fingerprint}  ejemplo de la documentación\n" for h in hits)
    )
    assert secrets_gate.scan(bad, allowed, {}) == []
    assert secrets_gate.scan(rows(bad=f"token {TOKEN[:-1]}x"), allowed, {}) != []
    allowed.write_text(f"{hits[0].fingerprint}\n")
    with pytest.raises(UserError, match=r"allowed.txt:1.*reason"):
        secrets_gate.scan(bad, allowed, {})
    with pytest.raises(UserError, match="no such file"):
        secrets_gate.scan(bad, tmp_path / "none.txt", {})


def test_without_a_detector_the_gate_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "installed", lambda name: False)
    with pytest.raises(UserError, match="needs detect-secrets"):
        secrets_gate.scan(rows(), None, {})


def test_three_thousand_rows_take_less_than_two_minutes() -> None:
    start = time.process_time()
    many = [(f"train.jsonl:{i}", ROW * 8 + f"fila {i}") for i in range(300)]
    assert secrets_gate.scan(many, None, KNOWN) == []
    assert (time.process_time() - start) * 10 < 120


def test_the_hook_refuses_a_staged_secret(tmp_path: Path) -> None:
    def git(*words: str) -> subprocess.CompletedProcess[str]:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        return subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    def hook(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dataset_builder.secrets_hook", *words]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin:/usr/local/bin"}
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False
        )

    assert hook("check").returncode == 2
    git("init", "-q")
    secrets_file = tmp_path / ".secrets"
    secrets_file.write_text("GITEA_TOKEN=Zafiro-99-verde\n")
    done = hook("install", f"SECRETS_FILE={secrets_file}")
    assert done.returncode == 0 and (tmp_path / ".git/hooks/pre-commit").stat().st_mode & 0o111, done.stderr
    (tmp_path / "plan.md").write_text("usa Zafiro-99-verde\n")
    git("add", "plan.md")
    refused = hook("check", f"SECRETS_FILE={secrets_file}")
    assert refused.returncode == 1 and "plan.md" in refused.stderr and "Zafiro" not in refused.stderr
    (tmp_path / "plan.md").write_text("usa la variable\n")
    git("add", "plan.md")
    assert hook("check", f"SECRETS_FILE={secrets_file}").returncode == 0
    (tmp_path / ".git/hooks/pre-commit").write_text("#!/bin/sh\nother\n")
    assert hook("install").returncode == 2 and "other" in (tmp_path / ".git/hooks/pre-commit").read_text()
