"""The language of rules: what each kind and selector means, and what a mistake in a file is told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from core import chat, rules, selectors
from core.chat import Message
from core.errors import UserError
from core.rules import Rule

Trace = list[Message]
MUST = {"id": "m", "kind": "must", "quote": "q", "what": {"say": "."}}


def load(folder: Path, *entries: Any, skill: str | None = "q") -> list[Rule]:
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(list(entries), allow_unicode=True), encoding="utf-8")
    return rules.load(file, skill)


def verdict(folder: Path, trace: Trace, asked: str = "", **rule: Any) -> str:
    found = load(folder, {"id": "r", "quote": "q", **rule}, MUST)
    return rules.check(found, trace, asked)[0].verdict


def turn(*calls: tuple[str, dict[str, Any]], say: str = "") -> Message:
    functions = [{"type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
    return {"role": "assistant", "reasoning_content": "", "content": say, "tool_calls": functions}


A, B = ("mcp__git__a", {}), ("mcp__git__b", {})


@pytest.mark.parametrize("glob", ["a", "git.a", "mcp__git__a", "g*.a", "?", ["x", "a"]])
def test_a_call_is_named_by_tool_server_and_glob(tmp_path: Path, glob: Any) -> None:
    assert verdict(tmp_path, [turn(A)], kind="must", what={"call": glob}) == "holds"
    assert verdict(tmp_path, [turn(("mcp__git__ab", {}))], kind="must", what={"call": glob}) == "broken"


def test_calls_of_one_turn_are_simultaneous(tmp_path: Path) -> None:
    order = {"kind": "order", "steps": [{"call": "a"}, {"call": "b"}]}
    before = {"kind": "before", "first": {"call": "a"}, "then": {"call": "b"}}
    for rule in (order, before):
        assert verdict(tmp_path, [turn(A), turn(B)], **rule) == "holds"
        assert verdict(tmp_path, [turn(A, B)], **rule) == "broken"
        assert verdict(tmp_path, [turn(B), turn(A)], **rule) == "broken"
    assert verdict(tmp_path, [turn(A)], **before) == "not_applicable"


def test_a_step_is_looked_for_after_the_one_before_it(tmp_path: Path) -> None:
    steps = [{"call": "b"}, {"call": "a"}, {"call": "b"}]
    assert verdict(tmp_path, [turn(A), turn(B), turn(A)], kind="order", steps=steps) == "broken"
    assert verdict(tmp_path, [turn(A), turn(B), turn(A), turn(B)], kind="order", steps=steps) == "holds"


def test_what_is_said_of_arguments_applies_where_the_call_is_made(tmp_path: Path) -> None:
    for what in ({"call": "a", "args": {"x": 1}}, {"call": "a", "args_not": {"x": 2}}):
        assert verdict(tmp_path, [turn(B)], kind="never", what=what) == "not_applicable"
        assert verdict(tmp_path, [turn(("a", {"x": 1}))], kind="never", what=what) == "broken"
        assert verdict(tmp_path, [turn(("a", {"x": 2}))], kind="never", what=what) == "holds"
    assert verdict(tmp_path, [turn(B)], kind="never", what={"call": "a"}) == "holds"


def test_within_counts_turns(tmp_path: Path) -> None:
    rule = {"kind": "after", "first": {"call": "a"}, "then": {"call": "b"}}
    far = [turn(A), chat.result("1"), turn(("c", {})), chat.result("2"), turn(B)]
    assert verdict(tmp_path, far, **rule) == "holds"
    assert verdict(tmp_path, far, **rule, within=2) == "holds"
    assert verdict(tmp_path, far, **rule, within=1) == "broken"
    assert verdict(tmp_path, [turn(B)], **rule) == "not_applicable"


def test_results_belong_to_the_calls_of_their_turn_in_order(tmp_path: Path) -> None:
    trace = [turn(A, B), chat.result("fine"), chat.result("Error: b"), chat.result("stray")]
    assert verdict(tmp_path, trace, kind="must", what={"call": "b", "result": "^Error"}) == "holds"
    assert verdict(tmp_path, trace, kind="must", what={"call": "a", "result": "^Error"}) == "broken"
    assert verdict(tmp_path, trace, kind="must", what={"result": "stray"}) == "broken"


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        ("^web", "web/api", True),
        ("^api", "web/api", False),
        ('"b"', ["a", "b"], True),
        (3, 3, True),
        (3, 4, False),
        (True, True, True),
        (["a"], ["a"], True),
        (["a"], ["a", "b"], False),
    ],
)
def test_an_argument_is_an_expression_or_a_literal(
    tmp_path: Path, pattern: Any, value: Any, fits: bool
) -> None:
    trace = [turn(("a", {"x": value}))]
    for key, held in (("args", fits), ("args_not", not fits)):
        answer = verdict(tmp_path, trace, kind="must", what={"call": "a", key: {"x": pattern}})
        assert (answer == "holds") == held
    missing = {"call": "a", "args_not": {"y": pattern}}
    assert verdict(tmp_path, trace, kind="must", what=missing) == "holds"


@settings(deadline=None)
@given(st.from_regex(r"[a-z]{2,6}( [a-z]{2,6}){1,3}", fullmatch=True), st.data())
def test_only_the_whole_of_a_quotation_is_copied(value: str, data: st.DataObject) -> None:
    copied = selectors.parse({"call": "a", "args": {"x": {"in": "user"}}}, "here")
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(value))] * 2)))
    trace = [turn(("a", {"x": value[start:stop]}))]
    for quoted in (f"«{value}»", f'"{value}"', f"'{value}'", f"`{value}`"):
        picked = copied.pick(selectors.events(trace, f"1, {quoted}."))
        assert bool(picked) == (value[start:stop] == value)


@pytest.mark.parametrize(
    ("asked", "value", "copied"),
    [
        ("the last 12 commits", 12, True),
        ("the last 120 commits", 12, False),
        ("don't touch Bob's a.py", "a.py", True),
        ("abc1234", "abc123", False),
        ("«a», «b»", ["a", "b"], True),
        ("«a», «b»", ["a", "c"], False),
        ("a", [], False),
        ("add «a.py» , please.", ".", False),
        ("add «a.py» , please.", " ", False),
    ],
)
def test_bare_words_are_copied_whole(tmp_path: Path, asked: str, value: Any, copied: bool) -> None:
    what = {"call": "a", "args": {"x": {"in": "user"}}}
    answer = verdict(tmp_path, [turn(("a", {"x": value}))], asked, kind="must", what=what)
    assert (answer == "holds") == copied


def test_a_value_is_copied_only_from_what_came_earlier(tmp_path: Path) -> None:
    what = {"say": {"find": '"([^"]+)"', "in": ["result", "a.x"]}}
    asked = turn(("a", {"x": "k"}))
    answers = {
        "holds": [asked, chat.result("at 2026-11-30T16:30:00"), chat.say('"k" "16:30"', think="")],
        "broken": [chat.say('"k"', think=""), asked, chat.result("16:30")],
    }
    for expected, trace in answers.items():
        assert verdict(tmp_path, trace, kind="must", what=what) == expected
    invented = [*answers["holds"][:2], chat.say('"k" "17:30"', think="")]
    assert verdict(tmp_path, invented, kind="must", what=what) == "broken"


def test_when_and_since_limit_where_a_rule_applies(tmp_path: Path) -> None:
    failed = [turn(A), chat.result("Error: x"), turn(A), chat.result("ok")]
    since = {"kind": "never", "what": {"call": "*"}, "since": {"result": "^Error"}}
    assert verdict(tmp_path, failed, **since) == "broken"
    assert verdict(tmp_path, failed[:2], **since) == "holds"
    assert verdict(tmp_path, failed[2:], **since) == "not_applicable"
    when = {"kind": "must", "what": {"call": "b"}, "when": {"user": "deploy"}}
    assert verdict(tmp_path, failed, "deploy it", **when) == "broken"
    assert verdict(tmp_path, failed, "list it", **when) == "not_applicable"
    assert verdict(tmp_path, failed, kind="judge", rubric="Is it kind?") == "not_judged"


@pytest.mark.parametrize(
    ("report", "held"),
    [
        ("## A\n1\n## B\n2", True),
        ("## A\n```sh\n# a comment\n## B\n```\n## B\n2", True),
        ("## A\n~~~~\n```\n# a comment\n```\n~~~~\n## B\n2", True),
        ("```markdown\n## A\n1\n## B\n2\n```", True),
        ("## A\n```\n## B\n2\n```", False),
        ("## A\n1\n```\n## B\n2", True),
        ("## A\n1\n# a comment\n## B\n2", False),
    ],
)
def test_what_stands_in_a_block_of_code_is_no_heading_but_where_all_does(
    tmp_path: Path, report: str, held: bool
) -> None:
    trace = [chat.say(report, think="")]
    found = verdict(tmp_path, trace, kind="final_sections", sections=["## A", "## B"])
    assert found == ("holds" if held else "broken")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "expected a list of rules"),
        ([{**MUST, "kind": "mst"}], "rule 1 (m): unknown kind 'mst' (did you mean must?); have must, never"),
        ([{**MUST, "wat": {}}], "rule 1 (m): unknown key 'wat' (did you mean what?); must has id, kind"),
        ([{**MUST, "since": {"say": "x"}}], "unknown key 'since'; must has"),
        ([{"kind": "must", "quote": "q", "what": {"say": "."}}], "rule 1: id is missing; add it"),
        (
            [{"id": "m", "kind": "must", "what": {"say": "."}}],
            "quote is missing; copy the passage of SKILL.md",
        ),
        ([{**MUST, "quote": "other"}], "quote 'other' is not in SKILL.md; copy it word for word"),
        ([{"id": "m", "kind": "must", "quote": "q"}], "rule 1 (m): what is missing; add it"),
        ([{**MUST, "what": {"cal": "x"}}], "what: unknown selector 'cal' (did you mean call?); have call"),
        ([{**MUST, "what": "git_add"}], "what: 'git_add' is no selector; write {call: <tool>}"),
        ([{**MUST, "what": {"say": "x", "call": "y"}}], "call and say cannot match at once"),
        ([{**MUST, "what": {"say": "("}}], "what: say: '(' is no regular expression"),
        ([{**MUST, "what": {"say": 5}}], "what: say 5: expected a regular expression"),
        ([{**MUST, "what": {"call": 5}}], "what: call 5: expected the name of a tool"),
        ([{**MUST, "what": {"args": "x"}}], "what: args: expected {<argument>: <pattern>}"),
        ([{**MUST, "what": {"args": {"x": {"im": "user"}}}}], "expected {in: <sources>}"),
        ([{**MUST, "what": {"args": {"x": {"in": "usr"}}}}], "unknown source 'usr'; have user, result"),
        ([MUST, MUST], "rule m is there twice; rename one"),
        ([{**MUST, "covers": ["q", "other"]}], "quote 'other' is not in SKILL.md; copy it word for word"),
        ([{**MUST, "covers": "q"}], "covers: expected a list, got 'q'"),
        ([MUST, {"id": "w", "quote": "q", "waived": " "}], "rule 2 (w): waived: expected a text"),
        (
            [MUST, {"id": "w", "quote": "q", "waived": "y", "when": {"say": "x"}}],
            "unknown key 'when'; waived has",
        ),
        (
            [MUST, {"id": "w", "kind": "judge", "quote": "q", "waived": "y"}],
            "unknown key 'waived'; judge has",
        ),
        ([{**MUST, "kind": "count"}], "count needs min, max or both"),
        ([{**MUST, "kind": "count", "max": -1}], "max: expected a number from 0 up, got -1"),
        ([{**MUST, "kind": "never"}], "a model that does nothing keeps these rules; add a must"),
        (
            [{"id": "f", "kind": "final_sections", "quote": "q", "sections": ["Resumen"]}],
            "sections 1: 'Resumen' is no Markdown heading; write it as '## Title'",
        ),
        ([{"id": "o", "kind": "order", "quote": "q", "steps": {}}], "steps: expected a list, got {}"),
        (["must"], "rule 1: expected `key: value` lines, got 'must'"),
    ],
)
def test_a_broken_file_says_what_and_where(tmp_path: Path, entries: list[Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, *entries)
    assert str(caught.value).startswith(str(tmp_path / "rules.yaml"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_broken_yaml_are_one_line_each(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    with pytest.raises(UserError, match="no such file; write the skill's rules, or make rules"):
        rules.load(file)
    file.write_text("- {id: m\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"^[^\n]+rules\.yaml:2: broken YAML [^\n]+; quote or mend that line$"
    ):
        rules.load(file)
    file.write_bytes("- id: caña\n".encode("latin-1"))
    with pytest.raises(UserError, match="not UTF-8; save it"):
        rules.load(file)


@dataclass(frozen=True)
class Line:
    text: str
    force: str = "must"


def test_every_line_is_covered_by_a_passage_a_waiver_or_a_section(tmp_path: Path) -> None:
    skill = "Paso uno.\nPaso dos, con cuidado.\nNUNCA tres\n  seguidos.\n## A\nCuatro."
    found = load(
        tmp_path,
        {**MUST, "quote": "Paso uno.", "covers": ["con cuidado"]},
        {"id": "f", "kind": "final_sections", "quote": "Paso uno.", "sections": ["## A"]},
        {"id": "w", "quote": "NUNCA tres\n  seguidos.", "waived": "nobody does"},
        skill=skill,
    )
    lines = [Line("Paso uno."), Line("Paso dos, con cuidado."), Line("NUNCA tres"), Line("## A", "section")]
    assert rules.coverage(found, [*lines, Line("Cuatro."), Line("## A")]) == [Line("Cuatro."), Line("## A")]
    for left in range(3):
        rest = [rule for number, rule in enumerate(found) if number != left]
        assert rules.coverage(rest, lines) == [[lines[1]], [lines[3]], [lines[2]]][left]
    assert [rules.gone(rule, "Paso uno.") for rule in found] == [
        ["con cuidado"],
        [],
        ["NUNCA tres\n  seguidos."],
    ]
    assert [one.rule for one in rules.check(found, [], "")] == ["m", "f"]


def test_a_draft_s_header_stands_over_the_same_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    header = {"skill": "box", "source_sha256": "0", "draft_sha256": "1"}
    file.write_text(yaml.safe_dump({**header, "rules": [MUST]}), encoding="utf-8")
    assert [rule.id for rule in rules.load(file, "q")] == ["m"]
    file.write_text(yaml.safe_dump({**header, "rules": []}), encoding="utf-8")
    assert rules.read(file, "q") == []
    with pytest.raises(UserError, match="a model that does nothing keeps these rules"):
        rules.load(file, "q")
    file.write_text(yaml.safe_dump({**header, "rule": [MUST]}), encoding="utf-8")
    with pytest.raises(
        UserError, match=r"unknown key 'rule' \(did you mean rules\?\); have skill, source_sha256"
    ):
        rules.load(file, "q")


def test_rules_beside_the_skill_come_before_a_draft(tmp_path: Path) -> None:
    skill = tmp_path / "box/SKILL.md"
    skill.parent.mkdir()
    assert rules.location(skill, "box", tmp_path / "drafts") == tmp_path / "drafts/box.yaml"
    skill.with_name("rules.yaml").write_text("[]")
    assert rules.location(skill, "box", tmp_path / "drafts") == tmp_path / "box/rules.yaml"
