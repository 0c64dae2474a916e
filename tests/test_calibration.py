"""The fixtures that a judge must get right first: those of the examples, and files that are broken."""

import shutil
from pathlib import Path

import pytest

from core import rules
from core.errors import UserError
from core.rules import Rule
from dataset_builder.documents.skills import OURS
from eval import calibration, judging
from eval.calibration import Fixture
from eval.live.world import ANSWERS

EXAMPLES = Path(__file__).parents[1] / "examples/skills"
HISTORY, REVIEW = "informe-historial", "revisar-cambios"


def rules_of(skill: Path) -> list[Rule]:
    return rules.load(skill / "rules.yaml", (skill / "SKILL.md").read_text(encoding="utf-8"))


def fixtures_of(skill: Path) -> dict[str, list[Fixture]]:
    return calibration.load(skill / "calibration.yaml", rules_of(skill))


FIXTURES = [
    (skill.name, one)
    for skill in (EXAMPLES / HISTORY, EXAMPLES / REVIEW)
    for own in fixtures_of(skill).values()
    for one in own
]


@pytest.mark.parametrize("skill", sorted(EXAMPLES.iterdir()), ids=lambda skill: skill.name)
def test_every_rule_that_takes_a_reader_has_fixtures_that_keep_all_others(skill: Path) -> None:
    own, found = rules_of(skill), fixtures_of(skill)
    assert set(found) == {rule.id for rule in own if rule.kind == "judge"}
    for name, fixtures in found.items():
        assert [one.holds for one in fixtures] == [True] * 3 + [False] * 3
        asked = [
            judging.question(one.rule, one.trace, one.request).messages[1]["content"] for one in fixtures
        ]
        assert len(set(asked)) == len(asked), name
        for one in fixtures:
            broken = {f.rule for f in rules.check(own, one.trace, one.request) if f.verdict == rules.BROKEN}
            # A closing text alone breaks the rules on the calls before it.
            assert (broken if len(one.trace) > 1 else broken & {"informe"}) == set(), f"{name}: {one.name}"


def test_what_helps_to_judge_a_skill_is_not_shown_to_those_who_follow_it() -> None:
    beside = {file.name for file in EXAMPLES.glob("*/*.yaml")}
    assert "calibration.yaml" in beside
    assert beside <= set(ANSWERS)
    assert beside <= set(OURS)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "solo-lo-leido:",
            "solo-lo-leida:",
            r"solo-lo-leida: no rule of kind judge \(did you mean solo-lo-leido\?\)",
        ),
        ("solo-lo-leido:", "informe:", "informe: no rule of kind judge; have solo-lo-leido"),
        ("  keeps:", "  keps:", r"solo-lo-leido: unknown key 'keps' \(did you mean keeps\?\)"),
        ("  request: ", "  request: [x] #", r"solo-lo-leido: request: expected a text, got \['x'\]"),
        ("      say: |\n", "      sya: |\n", r"keeps 1: unknown key 'sya' \(did you mean say\?\)"),
        ("          result: ", "          results: ", r"keeps 1: step 1: unknown key 'results'"),
        (
            "          args: {repo_path: tienda/api}\n",
            "          args: tienda\n",
            "keeps 1: step 1: args: expected",
        ),
    ],
)
def test_a_broken_calibration_names_file_and_key(tmp_path: Path, old: str, new: str, message: str):
    skill = tmp_path / REVIEW
    shutil.copytree(EXAMPLES / REVIEW, skill)
    path = skill / "calibration.yaml"
    content = path.read_text(encoding="utf-8")
    assert old in content
    path.write_text(content.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        fixtures_of(skill)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("solo-lo-leido: {request: x, keeps: [a]}", "breaks is missing"),
        ("solo-lo-leido: {request: x, keeps: [a], breaks: []}", "breaks: expected a list of at least one"),
        ("solo-lo-leido: {request: x, keeps: a, breaks: [b]}", "keeps: expected a list of at least one"),
        ("solo-lo-leido: {request: x, keeps: [' '], breaks: [b]}", "keeps 1: expected a text"),
        (
            "solo-lo-leido: {request: x, keeps: [{say: a, steps: []}], breaks: [b]}",
            "keeps 1: steps: expected a list",
        ),
        ("[]", "expected `name: value` lines"),
    ],
)
def test_a_calibration_lacks_nothing(tmp_path: Path, content: str, message: str):
    path = tmp_path / "calibration.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        calibration.load(path, rules_of(EXAMPLES / REVIEW))
