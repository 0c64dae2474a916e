"""Drafted rules: what each kind of line becomes, what breaks them, and that no edit is ever lost."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from core import artifacts, chat, rules
from core.chat import Message
from core.errors import UserError
from core.rules import Rule
from dataset_builder import rules_stage
from dataset_builder.documents.normative import normative_lines
from dataset_builder.documents.procedures import procedure
from dataset_builder.documents.rule_drafts import draft
from dataset_builder.documents.skills import Skill, load_skill
from dataset_builder.schemas import ToolSchema
from tests.demonstrations import ROOT, SKILLS, gold, request, rows

NAMES = ("open", "fill", "weigh", "close", "burn", "drop")
TOOLS = {
    f"box.{name}": ToolSchema(
        server="box", name=name, description="", parameters={"properties": {"weight": {}}}, sha256=""
    )
    for name in NAMES
}


def skill_of(folder: Path, body: str) -> Skill:
    file = folder / "pack" / "SKILL.md"
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(
        f"---\nname: pack\ndescription: Packs. No la uses con líquidos.\n---\n{body}", encoding="utf-8"
    )
    return load_skill(file)


def drafted(folder: Path, body: str) -> list[Rule]:
    """The rules that are drafted for a skill, as they are read back."""
    skill = skill_of(folder, body)
    file = folder / "pack.yaml"
    file.write_text(rules_stage.draft_text(skill, TOOLS), encoding="utf-8")
    return rules.read(file, skill.path.read_text(encoding="utf-8"))


def trace(*names: str, sections: tuple[str, ...] = ("## A", "## B")) -> list[Message]:
    """A call of each tool with its result, then the report."""
    steps = [
        message
        for name in names
        for message in (chat.call(f"mcp__box__{name}", {"weight": 1}, think=""), chat.result("ok"))
    ]
    return [*steps, chat.say("\n".join(f"{section}\ntexto" for section in sections), think="")]


def broken(found: list[Rule], messages: list[Message], asked: str = "Empaca") -> set[str]:
    return {one.rule for one in rules.check(found, messages, asked) if one.verdict == rules.BROKEN}


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.sampled_from(NAMES), min_size=2, max_size=6, unique=True),
    st.lists(
        st.sampled_from(["Resumen", "Cambios", "Verificación", "Pendiente"]),
        min_size=1,
        max_size=4,
        unique=True,
    ),
    st.data(),
)
def test_a_dropped_step_swapped_steps_a_dropped_section_each_break_their_rule_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], titles: list[str], data: st.DataObject
) -> None:
    steps = "\n".join(f"{number}. Hazlo con `{name}`." for number, name in enumerate(names, 1))
    sections = tuple(f"## {title}" for title in titles)
    template = "\n".join(f"{section}\n<texto>" for section in sections)
    report = f"{len(names) + 1}. Escribe el informe.\n## Informe\n```markdown\n{template}\n```\n"
    body = f"## Pasos\n{steps}\n{report}"
    found = drafted(tmp_path_factory.mktemp("skill"), body)
    assert {rule.id: rule.kind for rule in found} == {
        "steps": "order",
        "report": "final_sections",
        "no-la-uses-con": "waived",
    }
    assert broken(found, trace(*names, sections=sections)) == set()
    place = data.draw(st.integers(0, len(names) - 2))
    dropped = names[:place] + names[place + 1 :]
    assert broken(found, trace(*dropped, sections=sections)) == {"steps"}
    swapped = [*names[:place], names[place + 1], names[place], *names[place + 2 :]]
    assert broken(found, trace(*swapped, sections=sections)) == {"steps"}
    section = data.draw(st.integers(0, len(sections) - 1))
    assert broken(found, trace(*names, sections=sections[:section] + sections[section + 1 :])) == {"report"}


PACK = """## Pasos
1. Abre con `open`.
2. Llena con `fill`, nunca con `drop`.
3. Cierra con `close`.

## Reglas
- OBLIGATORIO: pesar con `weigh` antes de `close`.
- NUNCA uses `burn` ni `drop`.
- NUNCA repitas `close`.
- SIEMPRE pasa el peso en `weight`.
- DESPUÉS DE `fill`, llama a `weigh`.
- Sé amable.

## Informe final
```markdown
## A
<texto>
## B
<texto>
```
"""
GOOD = ("open", "fill", "weigh", "close")
FAULTS: dict[str, tuple[list[Message], set[str]]] = {
    "nothing": ([], {"steps", "report"}),
    "no opening": (trace(*GOOD[1:]), {"steps"}),
    "no filling": (trace("open", "weigh", "close"), {"steps"}),
    "no weighing": (trace("open", "fill", "close"), {"obligatorio-pesar-con-weigh", "después-de-fill-llama"}),
    "no closing": (trace("open", "fill", "weigh"), {"steps"}),
    "opened last": (trace("fill", "weigh", "close", "open"), {"steps"}),
    "weighed late": (trace("open", "fill", "close", "weigh"), {"obligatorio-pesar-con-weigh"}),
    "weighed early": (trace("open", "weigh", "fill", "close"), {"después-de-fill-llama"}),
    "burnt": (trace(*GOOD, "burn"), {"nunca-uses-burn-ni"}),
    "dropped": (trace(*GOOD, "drop"), {"nunca-uses-burn-ni"}),
    "closed twice": (trace(*GOOD, "close"), {"nunca-repitas-close"}),
    "section missing": (trace(*GOOD, sections=("## A",)), {"report"}),
    "sections swapped": (trace(*GOOD, sections=("## B", "## A")), {"report"}),
    "section more": (trace(*GOOD, sections=("## A", "## B", "## C")), {"report"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_breaks_the_drafted_rules_that_it_should(tmp_path: Path, name: str) -> None:
    messages, expected = FAULTS[name]
    found = drafted(tmp_path, PACK)
    assert broken(found, trace(*GOOD)) == set()
    assert broken(found, messages) == expected


def test_a_call_without_the_argument_that_a_line_asks_for_breaks_it(tmp_path: Path) -> None:
    messages = trace(*GOOD)
    messages[0] = chat.call("mcp__box__open", {}, think="")
    assert broken(drafted(tmp_path, PACK), messages) == {"siempre-pasa-el-peso"}


def test_what_no_program_decides_takes_a_reader_and_limits_are_waived(tmp_path: Path) -> None:
    kinds = {rule.quote: rule.kind for rule in drafted(tmp_path, PACK)}
    assert kinds["Sé amable."] == "judge"
    assert kinds["No la uses con líquidos."] == "waived"


def pair(kind: str, first: str, then: Any) -> dict[str, Any]:
    return {"kind": kind, "first": {"call": first}, "then": {"call": then}}


WEIGHED = pair("before", "box.weigh", "box.drop")
NO_BURNING = {"kind": "never", "what": {"call": "box.burn"}}
WEIGHS = {"kind": "must", "what": {"call": "box.weigh"}}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("NUNCA uses `burn`.", NO_BURNING),
        ("Do not call the `burn` tool.", NO_BURNING),
        ("NUNCA uses `burn` con papel mojado.", None),
        ("NUNCA uses `open` dos veces.", {"kind": "count", "what": {"call": "box.open"}, "max": 1}),
        ("NUNCA uses `open`.", None),
        ("NUNCA cambies el nombre que recibe `burn`.", None),
        ("Si está mojado, NUNCA uses `burn`.", None),
        ("NUNCA uses `drop` sin `weigh`.", WEIGHED),
        ("NEVER call `drop` before `weigh`.", WEIGHED),
        ("ANTES DE `drop`, llama a `weigh`.", WEIGHED),
        ("ALWAYS call `weigh` before `drop`.", WEIGHED),
        ("ALWAYS check with `weigh` after `drop`.", pair("after", "box.drop", "box.weigh")),
        ("SIEMPRE usa `weigh` antes de nada.", pair("before", "box.weigh", ["box.open", "box.close"])),
        ("SIEMPRE comprueba con `weigh`.", WEIGHS),
        ("SIEMPRE comprueba con `weigh`, SIN EXCEPCIÓN.", WEIGHS),
        ("SIEMPRE nombra `weigh` en el informe.", None),
        ("SIEMPRE que pese mucho, usa `weigh`.", None),
        ("You MUST use `weigh` unless it is empty.", None),
        ("SIEMPRE comprueba antes de cerrar con `weigh`.", None),
        ("Usa `weigh` SOLO SI pesa.", None),
        (
            "SIEMPRE pasa `weight`.",
            {"kind": "never", "what": {"call": "box.open", "args_not": {"weight": r"\S"}}},
        ),
        ("Debes ser breve.", None),
    ],
)
def test_a_line_becomes_a_rule_only_where_its_words_leave_no_doubt(
    tmp_path: Path, line: str, expected: dict[str, Any] | None
) -> None:
    skill = skill_of(tmp_path, f"## Pasos\n1. `open`\n2. `close`\n## Reglas\n- {line}\n")
    lines = normative_lines(skill.path.read_text(encoding="utf-8"))
    found = [one for one in draft(lines, procedure(skill, TOOLS), TOOLS) if one["quote"] == line]
    wanted = expected or {"kind": "judge", "rubric": line}
    assert {key: value for key, value in found[0].items() if key not in ("id", "quote")} == wanted


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        ("Llena con `fill` o con `weigh`.", [["box.fill", "box.weigh"]]),
        ("Llena con `fill` y pesa con `weigh`.", ["box.fill", "box.weigh"]),
        ("Si está vacía, llena con `fill`.", []),
    ],
)
def test_a_step_may_offer_a_choice_ask_for_two_or_depend(tmp_path: Path, step: str, calls: list[Any]) -> None:
    skill = skill_of(tmp_path, f"## Pasos\n1. Abre con `open`.\n2. {step}\n3. Cierra con `close`.\n")
    found = draft([], procedure(skill, TOOLS), TOOLS)
    ordered = [one["call"] for one in found[0]["steps"]]
    musts = [one["what"]["call"] for one in found[1:]]
    assert [*ordered[1:-1], *musts] == calls


def test_a_report_with_titles_to_fill_in_asks_for_the_others_in_order(tmp_path: Path) -> None:
    body = "1. `open`\n2. `close`\n## Informe\n```\n# Informe de <fecha>\n## A\n## B (x)\n## C\n```\n"
    found = drafted(tmp_path, body)
    assert broken(found, trace("open", "close", sections=("# Informe de hoy", "## A", "## C"))) == set()
    assert broken(found, trace("open", "close", sections=("# Informe de hoy", "## C", "## A"))) == {"report"}
    assert broken(found, trace("open", "close", sections=("# Informe de hoy", "## A"))) == {"report"}


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
def test_gold_demonstrations_of_the_examples_keep_what_is_drafted_for_them(
    tmp_path: Path, skill: Skill
) -> None:
    from tests.demonstrations import _tools

    file = tmp_path / "draft.yaml"
    file.write_text(rules_stage.draft_text(skill, _tools()), encoding="utf-8")
    text = skill.path.read_text(encoding="utf-8")
    found = rules.load(file, text)
    assert rules.coverage(found, normative_lines(text)) == []
    for row in [row for row in rows("eval") if row.skill == skill.name][:4]:
        assert broken(found, gold(row), request(row)) == set()
        for step in range(len(gold(row)) // 2):
            short = copy.deepcopy(gold(row))
            del short[2 * step : 2 * step + 2]
            assert broken(found, short, request(row)) == {"steps"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with dumped schemas and the copy of a skill without rules; the test runs in it."""
    monkeypatch.chdir(tmp_path)
    with artifacts.create(
        Path("data/tiny/schemas"), kind="schemas", profile="tiny", run="tiny", settings={}, inputs={}
    ) as made:
        tools = [
            {"name": tool.name, "description": "", "inputSchema": tool.parameters, "sha256": ""}
            for tool in TOOLS.values()
        ]
        answer = {"server": "box", "protocol_version": "1", "instructions": "", "tools": tools}
        answer |= {"instructions": None, "protocol_version": "2025-06-18", "server_info": None}
        (made.path / "box.json").write_text(json.dumps(answer), encoding="utf-8")
    empty = {"path": "", "sha256": ""}
    inputs = {"skills": {"path": "mine", "sha256": ""}, "agents": empty, "plans": empty, "transcripts": empty}
    with artifacts.create(
        Path("data/tiny/raw"), kind="sources", profile="tiny", run="tiny", settings={}, inputs=inputs
    ) as made:
        skill_of(made.path / "skills/0", PACK)
    return tmp_path


COPY = Path("data/tiny/raw/skills/0")
DRAFT = Path("data/tiny/rules/pack.yaml")
WORDS = ["PROFILE=tiny", "RUN=tiny", "MODELS_DIR=models"]


def test_the_stage_drafts_once_and_shows_what_is_covered(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rules_stage.main(WORDS) == 0
    first, stamp = DRAFT.read_bytes(), DRAFT.stat().st_mtime_ns
    head, line, _, server = capsys.readouterr().out.splitlines()
    assert head.split() == ["skill", "lines", "checked", "judged", "waived", "open", "rules"]
    assert line.split() == ["pack", "12", "10", "1", "1", "0", str(DRAFT), "(drafted)"]
    assert server.split() == ["box", "0", "0"]
    assert rules_stage.main(WORDS) == 0
    assert "(draft, up to date)" in capsys.readouterr().out
    assert (DRAFT.read_bytes(), DRAFT.stat().st_mtime_ns) == (first, stamp)
    skill = load_skill(COPY / "pack/SKILL.md")
    assert rules_stage.load_rules([skill], DRAFT.parent)["pack"][0].id == "steps"


def test_a_draft_follows_its_skill_until_somebody_edits_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules_stage.main(WORDS)
    skill_of(COPY, PACK.replace("Sé amable.", "Sé breve."))
    rules_stage.main(WORDS)
    assert "(drafted anew)" in capsys.readouterr().out
    assert "Sé breve." in DRAFT.read_text(encoding="utf-8")
    edited = DRAFT.read_text(encoding="utf-8").replace("kind: judge", "kind: judge  # mine")
    DRAFT.write_text(edited, encoding="utf-8")
    skill_of(COPY, PACK.replace("Sé amable.", "Sé claro."))
    with pytest.raises(UserError, match="2 passages of skills and rules"):
        rules_stage.main(WORDS)
    assert DRAFT.read_text(encoding="utf-8") == edited
    said = capsys.readouterr().out
    assert "(yours, edited)" in said
    assert f"{DRAFT}: rule sé-breve: mine/pack/SKILL.md no longer says 'Sé breve.'" in said
    assert "mine/pack/SKILL.md:16: no rule for 'Sé claro.'; add one, or waived: <why>, to" in said
    with pytest.raises(UserError, match=r"rule sé-breve: .* \(and 1 more\)"):
        rules_stage.load_rules([load_skill(COPY / "pack/SKILL.md")], DRAFT.parent)


def test_rules_beside_the_skill_are_used_as_they_are(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = COPY / "pack/rules.yaml"
    own.write_text('- {id: w, quote: "Sé amable.", waived: "nadie lo mide"}\n', encoding="utf-8")
    before = own.read_bytes()
    with pytest.raises(UserError, match="11 passages"):
        rules_stage.main(WORDS)
    assert own.read_bytes() == before
    assert not DRAFT.exists()
    said = capsys.readouterr().out
    assert "note: mine/pack/rules.yaml: the gate cannot judge by it; add a must or an order" in said
    assert "mine/pack/SKILL.md:6: no rule for 'Abre con `open`.'" in said


def test_the_examples_are_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert rules_stage.load_rules(SKILLS, Path("none")).keys() == {skill.name for skill in SKILLS}


def test_a_skill_without_a_line_that_binds_has_an_empty_draft(project: Path) -> None:
    file = COPY / "pack/SKILL.md"
    file.write_text("---\nname: pack\ndescription: Packs.\n---\nPacks.\n", encoding="utf-8")
    assert rules_stage.main(WORDS) == 0
    assert yaml.safe_load(DRAFT.read_text(encoding="utf-8"))["rules"] == []
    assert rules_stage.is_untouched(DRAFT.read_text(encoding="utf-8"))
