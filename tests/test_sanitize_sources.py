"""What the scrubber reads and writes: secrets files, `.mcp.json`, its key, whole trees of sources."""

import errno
import json
from pathlib import Path

import pytest

from core.errors import UserError
from dataset_builder.sanitize import Sanitizer
from dataset_builder.sanitizing.inputs import read_hosts, read_key, read_known
from dataset_builder.sanitizing.trees import scrub_tree

VALUE = "Zafiro-99-verde"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_secrets_file_has_names_and_bare_values(tmp_path: Path) -> None:
    lines = f'# mías\n\nGITEA_TOKEN={VALUE}\nexport DB="con espacio 9"\nabcDEF0123==\nsuelto-sin-nombre\n'
    known = read_known(write(tmp_path / "secrets", lines), None)
    assert known["GITEA_TOKEN"] == VALUE and known["DB"] == "con espacio 9"
    assert set(known.values()) == {VALUE, "con espacio 9", "abcDEF0123==", "suelto-sin-nombre"}


@pytest.mark.parametrize(
    ("text", "message"), [("A=ab1\n", ":1: a value of 3"), ("ok-larga\nX=12345\n", ":2: a value of 5")]
)
def test_a_value_too_short_is_refused_without_showing_it(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_known(write(tmp_path / "secrets", text), None)
    assert "ab1" not in str(caught.value) and "12345" not in str(caught.value)


def test_missing_and_broken_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"SECRETS_FILE.*no such file"):
        read_known(tmp_path / "none", None)
    (tmp_path / "latin").write_bytes(b"A=contrase\xf1a99\n")
    with pytest.raises(UserError, match="UTF-8"):
        read_known(tmp_path / "latin", None)
    assert read_hosts(None) == ()
    assert read_hosts(write(tmp_path / "hosts", "# casa\nGit.Forja.LAN\n\n")) == ("git.forja.lan",)


def test_the_secrets_that_mcp_json_names_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITEA_PAT", VALUE)
    monkeypatch.setenv("ZONE", "Europe/Madrid")
    servers = {
        "gitea": {
            "command": "g",
            "env": {"GITEA_TOKEN": "${GITEA_PAT}", "TZ": "${ZONE}", "HOST": "http://g:3000"},
        },
        "docmost": {"url": "https://d/mcp", "headers": {"Authorization": "Bearer ${GITEA_PAT}"}},
        "penpot": {
            "url": "https://u:clave-Larga7@p/mcp?api_key=consulta-7",
            "headers": {"X-Api-Key": "literal-77-largo"},
        },
        "time": {"command": "t", "args": ["--token", "arg-Secreto-8", "--zone", "UTC-or-other"]},
    }
    known = read_known(None, write(tmp_path / "mcp.json", json.dumps({"mcpServers": servers})))
    assert known == {
        "gitea.GITEA_PAT": VALUE,
        "docmost.GITEA_PAT": VALUE,
        "penpot.url_password": "clave-Larga7",
        "penpot.api_key": "consulta-7",
        "penpot.X-Api-Key": "literal-77-largo",
        "time.--token": "arg-Secreto-8",
    }
    reused = Sanitizer(b"k" * 32, known=known, libraries=False).report.reused
    assert list(reused.values()) == [["docmost.GITEA_PAT", "gitea.GITEA_PAT"]]


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "data" / ".sanitize-key"
    key = read_key(path)
    assert len(key) == 32 and read_key(path) == key and path.stat().st_mode & 0o777 == 0o600
    path.write_text("corto")
    with pytest.raises(UserError, match="64 hex digits"):
        read_key(path)


def test_a_tree_is_scrubbed_whole_and_nothing_else_is_written(tmp_path: Path) -> None:
    source, target = tmp_path / "src", tmp_path / "raw"
    (source / "a/.git").mkdir(parents=True)
    write(source / "a/.git/config", f"token={VALUE}")
    write(source / "a/SKILL.md", f"usa {VALUE}\r\nfin sin salto")
    write(source / "a/clean.md", "nada\n")
    write(
        source / "t.jsonl",
        json.dumps({"k": f'dice "{VALUE}"', "n": 1}) + "\n{broken " + VALUE + '\n\n{"a":  1}\n',
    )
    write(source / "t.json", json.dumps({"password": "gatito77", "id": 7}, indent=2))
    (source / "broken.txt").write_bytes(b"\xff\xfa " + VALUE.encode() + b" \xc3\x28")
    (source / "utf16.txt").write_bytes(f"clave {VALUE}".encode("utf-16"))
    (source / "image.png").write_bytes(b"\x89PNG\0" + VALUE.encode())
    (source / "link").symlink_to(source / "a/SKILL.md")
    one = Sanitizer(b"k" * 32, known={"V": VALUE}, libraries=False)
    counts = scrub_tree(source, target, one)
    assert counts == {"written": 6, "skipped: binary": 1, "skipped: no plain file": 1}
    written = sorted(p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file())
    assert written == ["a/SKILL.md", "a/clean.md", "broken.txt", "t.json", "t.jsonl", "utf16.txt"]
    assert not any(VALUE.encode() in p.read_bytes() for p in target.rglob("*") if p.is_file())
    assert (target / "a/clean.md").read_bytes() == b"nada\n"
    assert (target / "a/SKILL.md").read_bytes().endswith(b">\r\nfin sin salto")
    assert (target / "broken.txt").read_bytes().startswith(b"\xff\xfa <SECRET:v:")
    assert "SECRET:v" in (target / "utf16.txt").read_bytes().decode("utf-16")
    lines = (target / "t.jsonl").read_text().split("\n")
    assert json.loads(lines[0])["n"] == 1 and lines[3] == '{"a":  1}'
    assert (
        json.loads((target / "t.json").read_text())["id"] == 7
        and "gatito" not in (target / "t.json").read_text()
    )
    again = scrub_tree(target, tmp_path / "raw2", one)
    assert again == {"written": 6}
    assert all((tmp_path / "raw2" / name).read_bytes() == (target / name).read_bytes() for name in written)


def test_a_full_disk_leaves_no_half_file_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "src", tmp_path / "raw"
    source.mkdir()
    write(source / "a.md", "hola, esto es largo")
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        real(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "stands for a full disk")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="full disk"):
        scrub_tree(source, target, Sanitizer(b"k" * 32, libraries=False))
    assert not (target / "a.md").exists()
