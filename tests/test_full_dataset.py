"""Production's dataset in small, stage by stage: seven servers, five skills, a served model, a teacher."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from core import artifacts, chat, profile
from core.chat import Row
from core.errors import Refused
from dataset_builder import build, raw, replay, rules_stage, schemas, validate
from tests.claude_code import Transcript
from tests.conftest import ROOT
from tests.model_server import JSON, completion, echo, serve

QWEN = profile.load("qwen3_6_35b_a3b")
ROWS = {"penpot": 6, "mcp": 24, "adherence": 20, "delegation": 8, "negatives": 10, "errors": 8, "replay": 12}
EVAL_ROWS = {"penpot": 2, "mcp": 8, "adherence": 8, "delegation": 3, "negatives": 4, "errors": 3, "replay": 4}
HELD_OUT = "informe-historial"
TOKEN = "sk-" + "live-7f3a9c1e5b2d"


@pytest.fixture(scope="module")
def place(tmp_path_factory, base_dir: Path, mission_schemas: Path) -> Path:
    """A user's directory: the base, the servers' dumps, skills, agents, plans, a transcript, a secret."""
    made = tmp_path_factory.mktemp("full")
    (made / "models").symlink_to(base_dir.parent)
    shutil.copytree(ROOT / "examples", made / "examples")
    answers = schemas.ask_all(schemas.read_config(ROOT / "examples/mcp.json"))
    facts = {"profile": "full", "run": "full", "settings": {}, "inputs": {}}
    with artifacts.create(made / "data/full/schemas", kind="schemas", **facts) as draft:
        for name, answer in answers.items():
            (draft.path / f"{name}.json").write_text(json.dumps(answer), encoding="utf-8")
        for file in mission_schemas.glob("*.json"):
            if file.name != artifacts.MANIFEST:
                shutil.copy(file, draft.path)
    transcript = Transcript("s1")
    transcript.conversation(
        [
            chat.user(f"Mira el estado de «web/api», el token es {TOKEN}"),
            chat.call("mcp__git__git_status", {"repo_path": "web/api"}, think="Miro el estado."),
            chat.result("On branch main"),
            chat.say("Está en main y sin cambios.", think="Nada pendiente."),
        ]
    )
    (made / "transcripts").mkdir()
    lines = "".join(json.dumps(line) + "\n" for line in transcript.lines)
    (made / "transcripts/s1.jsonl").write_text(lines, encoding="utf-8")
    (made / "secrets.env").write_text(f"SERVICE_TOKEN={TOKEN}\n", encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def words(place: Path) -> dict[str, str]:
    return {
        "PROFILE": "full",
        "RUN": "full",
        "MODELS_DIR": "models",
        "MCP_CONFIG": "examples/mcp.json",
        "SKILLS_DIRS": "examples/skills",
        "AGENTS_DIRS": "examples/agents",
        "PLANS_DIRS": "examples/plans",
        "TRANSCRIPTS_DIRS": "transcripts",
        "SECRETS_FILE": "secrets.env",
        "REPLAY": "examples/replay_prompts.yaml",
        "DATA_SEED": "100",
        "EVAL_SEED": "100",
    }


@pytest.fixture
def run(place: Path, words: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    """Runs a stage in the user's directory, with the settings that it reads."""
    monkeypatch.chdir(place)
    assert QWEN.data is not None
    rows = ROWS | {"transcripts": 4}
    data = replace(QWEN.data, rows=rows, eval_rows=EVAL_ROWS, tools_shown=5, answer_tokens=400)
    train = replace(QWEN.train, max_length=24_000)  # the tiny tokenizer makes three tokens of one
    full = replace(QWEN, name="full", base="tiny", data=data, train=train, held_out_skills=(HELD_OUT,))
    monkeypatch.setattr("core.config.profiles.load", lambda name: full)

    def stage(module, **more: str) -> int:
        from core import config, settings

        names = {
            raw: "sources", rules_stage: "rules", replay: "replay", build: "dataset", validate: "validate",
        }  # fmt: skip
        known = config.setting_names(settings.STAGES[names[module]])
        return module.main([f"{name}={value}" for name, value in (words | more).items() if name in known])

    return stage


@pytest.fixture
def built(run, place: Path) -> Path:
    """The dataset, with a served model's answers."""
    with serve(echo) as server:
        assert run(raw) == run(rules_stage) == 0
        if not (place / "data/full/replay").exists():
            assert run(replay, ENDPOINT=server.url) == 0
    assert run(build) == 0
    return place / "data/full/dataset"


def rows(dataset: Path, side: str) -> list[Row]:
    return chat.read_rows(dataset / f"{side}.jsonl")


def test_every_bucket_is_filled_and_the_dataset_is_valid(run, built: Path) -> None:
    train, held_out = rows(built, "train"), rows(built, "eval")
    counted = Counter(row.bucket for row in train)
    assert {bucket for bucket in ROWS if counted[bucket] < 0.8 * ROWS[bucket]} == set(), counted
    assert {row.bucket for row in held_out} == {*EVAL_ROWS, "general"}
    assert {row.server for row in train} >= {"github", "gitea", "atlassian", "docmost", "penpot"}
    assert HELD_OUT in {row.skill for row in held_out} - {row.skill for row in train}
    assert run(validate) == 0


def test_the_rules_that_the_servers_state_are_written_down_with_their_sentence(
    built: Path, place: Path
) -> None:
    file = place / "data/full/rules/servers/penpot.yaml"
    stated = yaml.safe_load(file.read_text(encoding="utf-8"))
    dump = (place / "data/full/schemas/penpot.json").read_text(encoding="utf-8")
    assert len(stated["rules"]) > 3
    for rule in stated["rules"]:
        assert json.dumps(rule["quote"], ensure_ascii=False)[1:-1] in dump
    taught = {
        name for row in rows(built, "train") for name in row.meta["rules"] if name.startswith("penpot/")
    }
    assert taught <= {f"penpot/{rule['id']}" for rule in stated["rules"]}
    assert taught


def test_a_known_secret_of_a_transcript_is_a_placeholder_everywhere(built: Path, place: Path) -> None:
    files = [file for file in (place / "data").rglob("*") if file.is_file()]
    assert [file for file in files if TOKEN.encode() in file.read_bytes()] == []
    said = [row.messages[0]["content"] for row in rows(built, "train") if row.bucket == "transcripts"]
    assert len(said) == 1
    assert "<SECRET:service_token:" in said[0]


def test_the_page_shows_the_buckets_and_needs_nothing_else(built: Path, place: Path) -> None:
    page = (place / "data/full/dataset.html").read_text(encoding="utf-8")
    assert all(bucket in page for bucket in ROWS)
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_same_sources_give_the_same_bytes(run, built: Path) -> None:
    before = artifacts.digest(artifacts.require(built, "dataset"))
    (built / "manifest.json").unlink()
    assert run(build) == 0
    assert artifacts.digest(artifacts.require(built, "dataset")) == before


def test_a_teacher_words_the_rows_and_its_judgement_drops_some(run, built: Path, place: Path) -> None:
    def reply(body, before):
        system, asked = (message["content"] for message in body["messages"])
        if system.startswith("You check"):
            bad = "mcp__penpot__" in asked
            return 200, JSON, completion(json.dumps({"good": not bad, "reason": "inventa un dato"}))
        texts = json.loads(asked)["texts"]
        return (
            200,
            JSON,
            completion(json.dumps({k: v + " Gracias." if "user" in k else v for k, v in texts.items()})),
        )

    try:
        with serve(reply) as server:
            assert run(build, TEACHER=server.url, JUDGE="1") == 0
        train = rows(built, "train")
        worded = [row for row in train if row.meta.get("worded_by") == "teacher"]
        assert len(worded) > 0.8 * len(train)
        assert all(row.messages[-1]["role"] == "assistant" for row in worded)
        dropped = artifacts.require(built, "dataset")["counts"]["dropped"]
        assert any("judge: inventa un dato" in reason for reason in dropped), dropped
    finally:
        assert run(build) == 0


def test_a_secret_that_no_rule_of_the_scrubber_saw_stops_the_build(run, built: Path, place: Path) -> None:
    before = (built / "train.jsonl").read_bytes()
    file = place / "data/full/replay/train.jsonl"
    text = file.read_text(encoding="utf-8")
    leaked = "AKIA" + "Q3EGT7KZMW5P2VXN"
    file.write_text(
        text.replace("You said:", f"aws_access_key_id = {leaked}\\n\\nYou said:", 1), encoding="utf-8"
    )
    try:
        with pytest.raises(Refused) as refused:
            run(build, DATA_SEED="101")
    finally:
        file.write_text(text, encoding="utf-8")
    assert "train.jsonl: replay-" in str(refused.value)
    assert leaked not in str(refused.value)
    assert (built / "train.jsonl").read_bytes() == before
