"""make validate: what is wrong on the disk is named by row and check, whoever put it there."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, chat
from core.chat import Row
from core.errors import UserError
from dataset_builder import raw, validate
from dataset_builder.rules_stage import load_rules
from dataset_builder.verifying import checks, rendering
from tests import demonstrations
from tests.rows import asked, row

WORDS = [
    "PROFILE=tiny",
    "RUN=tiny",
    "MODELS_DIR=models",
    f"MCP_CONFIG={demonstrations.ROOT}/examples/mcp.json",
]
SKILLS = demonstrations.ROOT / "examples/skills"
RESULT = chat.result("x")
Entry = dict


def made(
    path: Path, kind: str, settings: dict[str, Any], inputs: dict[str, Any]
) -> AbstractContextManager[artifacts.Draft]:
    """An artefact of the tiny profile to fill."""
    return artifacts.create(path, kind=kind, profile="tiny", run="tiny", settings=settings, inputs=inputs)


@pytest.fixture(scope="module")
def built(base_dir: Path, tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with a small dataset as `make dataset` leaves it."""
    place = tmp_path_factory.mktemp("built")
    (place / "models").symlink_to(base_dir.parent)
    gold = [one for one in demonstrations.rows("train") if one.skill != "informe-historial"][:4]
    train = [row(), row(asked("Quiero el historial de «api/dema»", repo_path="api/dema"), id="b"), *gold]
    held_out = [
        row(asked("Saca 300 commits", max_count=300, repo_path="x/y"), id="c", split="eval", group="h")
    ]
    book = load_rules(demonstrations.SKILLS, place / "none")
    sides = []
    for rows in (train, held_out):
        kept, dropped = checks.keep(rows, sha256={}, rules_of=book)
        kept, unfit = rendering.keep(kept, tokenizer, 4096)
        assert [*dropped, *unfit] == []
        sides.append(kept)
    named = {kind: {"path": "", "sha256": ""} for kind in raw.KINDS}
    named["skills"]["path"] = "examples/skills"
    with made(place / "data/tiny/raw", "sources", {}, named) as draft:
        shutil.copytree(SKILLS, draft.path / "skills/0")
    with made(place / "data/tiny/schemas", "schemas", {}, {}):
        pass
    with made(place / "data/tiny/dataset", "dataset", {"MAX_LENGTH": 4096}, {}) as draft:
        chat.write_rows(draft.path / "train.jsonl", sides[0])
        chat.write_rows(draft.path / "eval.jsonl", sides[1])
    return place


def validated(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[list[Entry]], object],
    side: str = "train",
) -> tuple[int, str]:
    """Exit code and output after `change` of the rows that lie on the disk; they are put back."""
    path, here = place / f"data/tiny/dataset/{side}.jsonl", Path.cwd()
    before = path.read_text(encoding="utf-8")
    entries = [json.loads(line) for line in before.splitlines()]
    change(entries)
    path.write_text(
        "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries), encoding="utf-8"
    )
    os.chdir(place)
    try:
        return validate.main(WORDS), capsys.readouterr().out
    finally:
        os.chdir(here)
        path.write_text(before, encoding="utf-8")


def call(entry: Entry) -> dict:
    """The arguments of a row's first call."""
    return next(m for m in entry["messages"] if m.get("tool_calls"))["tool_calls"][0]["function"]["arguments"]


def test_an_untouched_dataset_holds(built, capsys):
    code, said = validated(built, capsys, lambda entries: None)
    assert (code, said) == (0, "validate: 7 rows, each holds every check\n")


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("mcp-train-00000: schema: mcp__git__git_log.max_count", lambda e: call(e[0]).update(max_count="x")),
        ("mcp-train-00000: schema: mcp__git__git_log: ", lambda e: call(e[0]).update(nuevo=1)),
        ("mcp-train-00000: schema: mcp__git__git_log.since: null", lambda e: call(e[0]).update(since=None)),
        ("mcp-train-00000: render: a call that the text", lambda e: call(e[0]).update(since="</function>")),
        ("mcp-train-00000: render: no assistant turn is trained", lambda e: e[0].update(train_turns=[])),
        ("mcp-train-00000: render: has ", lambda e: e[0]["messages"][0].update(content="otra cosa distinta")),
        ("mcp-train-00000: format: train_turns", lambda e: e[0].update(train_turns=[4])),
        ("mcp-train-00000: format: messages[1]: a result", lambda e: e[0]["messages"].insert(1, RESULT)),
        ("mcp-train-00000: id: is there twice", lambda e: e[1].update(id="mcp-train-00000")),
        ("c: duplicates: near-duplicate of mcp-train-00000", lambda e: e.append(e[0] | {"id": "c"})),
        ("both sides: leak: group on both sides: 'h'", lambda e: e[0].update(group="h")),
        ("both sides: leak: argument value on both", lambda e: call(e[1]).update(repo_path="x/y")),
        ("held-out skill: held-out skill informe-h", lambda e: e[0].update(skill="informe-historial")),
        ("train.jsonl: manifest: changed since it was built", lambda e: e[0].update(source="x")),
    ],
)  # fmt: skip
def test_a_fault_planted_on_the_disk_is_named(built, capsys, line, change):
    code, said = validated(built, capsys, change)
    assert code == 1
    assert line in said


def test_a_sentence_of_a_held_out_skill_in_training_is_named(built, capsys):
    skill = next(one for one in demonstrations.SKILLS if one.name == "informe-historial")
    sentence = skill.description.split(". ")[0]
    code, said = validated(
        built, capsys, lambda e: e[1]["messages"].insert(0, *chat.system(f"Ojo: {sentence}.")) or 0
    )
    assert code == 1
    assert "training: held-out skill: a sentence of informe-historial in row b" in said


def test_a_dropped_step_on_the_disk_breaks_a_rule(built, capsys):
    code, said = validated(built, capsys, lambda e: e[2]["messages"].__delitem__(slice(2, 4)))
    assert code == 1
    assert ": rules: " in said


def test_a_secret_on_the_disk_is_named_and_not_repeated(built, capsys):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    code, said = validated(built, capsys, lambda e: e[0]["messages"][0].update(content=f"usa {secret}"))
    assert code == 1
    assert "train.jsonl: mcp-train-00000: secret: " in said
    assert secret not in said


def test_rows_over_the_length_are_named(built, capsys):
    path = built / "data/tiny/dataset" / artifacts.MANIFEST
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace('"MAX_LENGTH": 4096', '"MAX_LENGTH": 100'), encoding="utf-8")
    try:
        code, said = validated(built, capsys, lambda entries: None)
    finally:
        path.write_text(whole, encoding="utf-8")
    assert code == 1
    assert "mcp-train-00000: render: over MAX_LENGTH=100" in said


def test_a_broken_line_is_named_with_its_file_and_number(built, capsys):
    def change(entries: list[Entry]) -> None:
        entries[1].pop("group")

    with pytest.raises(UserError, match=r"train\.jsonl:2: not a dataset row"):
        validated(built, capsys, change)


def test_nulls_that_arrow_injects_are_caught():
    from datasets import Dataset

    rows = [row(), row([chat.user("x"), chat.call("mcp__notes__save", {"text": "y"}, think="t")], id="b")]
    assert validate.faults_of_loading(rows, validate.arrow_rows(rows)) == []
    naive = Dataset.from_list([{"messages": asdict(one)["messages"]} for one in rows])
    loaded = [asdict(one) | {"messages": got} for one, got in zip(rows, naive["messages"], strict=True)]
    assert loaded[0]["messages"] != rows[0].messages
    assert [(fault.row, fault.check) for fault in validate.faults_of_loading(rows, loaded)] == [
        ("mcp-train-00000", "arrow"), ("b", "arrow"),
    ]  # fmt: skip


def test_every_value_survives_arrow_in_chunks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(validate, "CHUNK", 2)
    odd = [{"a": 1}, {"a": 1.5}, {"a": "x"}, {"a": None}, {"a": [1, "x", None]}, {"b": {}}, {}]
    rows = [Row(**asdict(replace(row(), meta=meta))) for meta in odd]
    assert [got["meta"] for got in validate.arrow_rows(rows)] == odd
    assert validate.faults_of_loading(rows, validate.arrow_rows(rows)) == []
