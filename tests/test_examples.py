"""The examples that ship with the project keep the laws that the dataset relies on."""

import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from dataset_builder.documents.skills import Scenario, Skill, load_scenario, load_skills
from dataset_builder.schemas import ToolSchema, load_tools
from dataset_builder.talking.requests import SLOT, SPLITS, examples, expanded, fill, load_requests, slots_in

ROOT = Path(__file__).parents[1]
REQUESTS = ROOT / "examples/requests.yaml"
SKILLS = load_skills([ROOT / "examples/skills"])
ENTRIES = {
    server: {
        tool: {split: [text for wording in entry[split] for text in expanded(wording)] for split in SPLITS}
        for tool, entry in tools.items()
    }
    for server, tools in yaml.safe_load(REQUESTS.read_text(encoding="utf-8")).items()
}
TOOLS_ASKED = [(server, tool) for server, tools in ENTRIES.items() for tool in tools]
NOT_ASKED = {"git.git_branch"}

STOP_WORDS = re.compile(
    r"\b(a|al|con|cual|de|del|desde|el|en|es|hay|la|las|lo|los|me|no|para|por|que|se|si|solo|son|todo|un|una|y|ya"
    r"|an|and|are|as|but|can|did|do|does|for|from|give|has|how|i|in|into|is|it|let|my|not|of|on|only|please|that"
    r"|the|there|to|was|what|when|where|which|with|would|you)\b"
)
STEP = re.compile(r"^\d+\. (.+)$", re.MULTILINE)
NAMED_TOOL = re.compile(r"`((?:git|get|convert)_\w+)`")
TEMPLATE = re.compile(r"^## Informe final$.*?^```markdown\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^## .+$", re.MULTILINE)
EMPHASIS = re.compile(r"\b(NUNCA|SIEMPRE|OBLIGATORIO)\b")

each_skill = pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
each_tool = pytest.mark.parametrize(("server", "tool"), TOOLS_ASKED, ids=lambda name: name)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ToolSchema]:
    """The tools of examples/mcp.json, dumped from the real servers that `make env` installs."""
    if not (ROOT / ".venv-mcp").is_dir():
        pytest.fail("the example servers are not installed: make env")
    place = tmp_path_factory.mktemp("schemas")
    (place / ".venv-mcp").symlink_to(ROOT / ".venv-mcp")
    settings = ["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models", f"MCP_CONFIG={ROOT / 'examples/mcp.json'}"]
    subprocess.run(
        [sys.executable, "-m", "dataset_builder.schemas", *settings],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    return load_tools(place / "data/tiny/schemas")


def content_words(wordings: Iterable[str]) -> set[str]:
    """Words without slots, accents, stop words and the plural's s."""
    text = unicodedata.normalize("NFD", SLOT.sub(" ", " ".join(wordings)).lower())
    plain = STOP_WORDS.sub(" ", re.sub(r"[\u0300-\u036f]", "", text))
    return {word.rstrip("s") for word in re.findall(r"[a-z]+", plain)}


def scenario_of(skill: Skill, tools: dict[str, ToolSchema]) -> Scenario:
    scenario = load_scenario(skill, tools)
    assert scenario
    return scenario


def template_of(skill: Skill) -> str:
    match = TEMPLATE.search(skill.body)
    assert match
    return match[1].strip()


def test_there_are_five_skills() -> None:
    assert [skill.name for skill in SKILLS] == [
        "convocar-reunion",
        "crear-rama",
        "informe-historial",
        "preparar-commit",
        "revisar-cambios",
    ]


@each_skill
def test_a_skill_has_steps_rules_and_a_report(skill: Skill) -> None:
    assert 150 <= len(skill.body.split()) <= 300
    assert len(STEP.findall(skill.body)) >= 3
    assert len(EMPHASIS.findall(skill.body)) >= 2
    assert len(HEADING.findall(template_of(skill))) == 3
    assert re.search(r"\bÚsala cuando\b", skill.description)
    assert re.search(r"\bNo la uses\b", skill.description)


@each_skill
def test_a_scenario_follows_the_steps_of_its_skill(skill: Skill, tools: dict[str, ToolSchema]) -> None:
    scenario = scenario_of(skill, tools)
    steps = STEP.findall(skill.body)
    named = [tool for step in steps for tool in NAMED_TOOL.findall(step)]
    assert [step.call.partition(".")[2] for step in scenario.steps] == named
    thoughts = [step.think for step in scenario.steps] + [scenario.think]
    assert len(thoughts) == len(steps)
    for number, thought in enumerate(thoughts, 1):
        assert thought.startswith(f"Paso {number} de {len(steps)}: ")


@each_skill
def test_a_report_fills_the_template_of_its_skill(skill: Skill, tools: dict[str, ToolSchema]) -> None:
    report, template = scenario_of(skill, tools).report, template_of(skill)
    assert HEADING.findall(report) == HEADING.findall(template)
    pattern = "".join(
        ".+" if part.startswith("<") else re.escape(part) for part in re.split(r"(<[^>]+>)", template)
    )
    assert re.fullmatch(pattern, report)


@each_skill
def test_a_scenario_is_short_enough_for_a_small_model(skill: Skill, tools: dict[str, ToolSchema]) -> None:
    scenario = scenario_of(skill, tools)
    assert 2 <= len(scenario.steps) <= 3
    assert 6 <= len(scenario.requests["train"]) <= 8
    assert [len(scenario.requests[split]) for split in ("dev", "eval")] == [2, 3]
    assert all(len(step.result.split()) <= 15 for step in scenario.steps)
    assert all(len(think.split()) <= 12 for think in [scenario.think, *(s.think for s in scenario.steps)])
    assert len(scenario.report.split()) <= 45


def test_every_tool_is_asked_for_and_a_call_of_any_wording_is_valid(tools: dict[str, ToolSchema]) -> None:
    requests = load_requests(REQUESTS, tools)
    assert {f"{one.server}.{one.tool}" for one in requests} == tools.keys() - NOT_ASKED
    for request in requests:
        tool = tools[f"{request.server}.{request.tool}"]
        values = examples(request.values)
        for wordings in request.wordings.values():
            for wording in wordings:
                arguments = {slot: values[slot] for slot in slots_in(wording)}
                assert tool.fault_in(arguments) is None
                assert "{" not in fill(wording, values)


@each_tool
def test_wordings_are_many_and_short(server: str, tool: str) -> None:
    entry = ENTRIES[server][tool]
    assert len(entry["train"]) >= 36
    assert [len(entry[split]) for split in SPLITS[1:]] == [2, 3, 2]
    for split in SPLITS:
        for wording in entry[split]:
            assert 4 <= len(wording.split()) <= 13, wording


@each_tool
def test_dev_and_eval_share_key_words_with_train_and_synonyms_share_none(server: str, tool: str) -> None:
    entry = ENTRIES[server][tool]
    trained = content_words(entry["train"])
    for wording in entry["dev"] + entry["eval"]:
        assert content_words([wording]) & trained, wording
    for wording in entry["synonyms"]:
        words = content_words([wording])
        assert words, wording
        assert not words & (trained | content_words(entry["dev"])), wording


def test_no_two_tools_are_asked_for_with_the_same_key_words_and_slots() -> None:
    owners: dict[tuple[frozenset[str], frozenset[str]], str] = {}
    for server, tools in ENTRIES.items():
        for tool, entry in tools.items():
            for wording in [one for split in SPLITS for one in entry[split]]:
                key = frozenset(content_words([wording])), frozenset(slots_in(wording))
                assert owners.setdefault(key, f"{server}.{tool}") == f"{server}.{tool}", wording
