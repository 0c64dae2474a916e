"""The example skills' rules: gold demonstrations keep them, planted faults break those they should."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from core import chat, rules
from core.chat import Message
from core.rules import Rule
from dataset_builder.documents.normative import normative_lines
from tests.demonstrations import SKILLS, gold, request, rows

Trace = list[Message]
Fault = Callable[[Trace], None]
"""Changes a demonstration: call and result of each step, then the report."""

RULES = {
    skill.name: rules.load(skill.path.with_name("rules.yaml"), skill.path.read_text(encoding="utf-8"))
    for skill in SKILLS
}
each_skill = pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)


def broken(found: list[Rule], trace: Trace, asked: str) -> set[str]:
    return {one.rule for one in rules.check(found, trace, asked) if one.verdict == rules.BROKEN}


def arguments(trace: Trace, step: int) -> dict[str, Any]:
    return trace[2 * step]["tool_calls"][0]["function"]["arguments"]


def drop(step: int) -> Fault:
    return lambda trace: trace.__delitem__(slice(2 * step, 2 * step + 2))


def swap(one: int, other: int) -> Fault:
    def fault(trace: Trace) -> None:
        first, second = slice(2 * one, 2 * one + 2), slice(2 * other, 2 * other + 2)
        trace[first], trace[second] = trace[second], trace[first]

    return fault


def repeat(step: int) -> Fault:
    def fault(trace: Trace) -> None:
        trace[2 * step : 2 * step] = copy.deepcopy(trace[2 * step : 2 * step + 2])

    return fault


def result(step: int, text: str) -> Fault:
    return lambda trace: trace[2 * step + 1].update(content=text)


def fail(step: int) -> Fault:
    return result(step, "Error: not found")


def argument(step: int, name: str, change: Callable[[Any], Any]) -> Fault:
    def fault(trace: Trace) -> None:
        own = arguments(trace, step)
        own[name] = change(own[name])

    return fault


def forget(step: int, name: str) -> Fault:
    return lambda trace: arguments(trace, step).__delitem__(name)


def report(pattern: str, replacement: str) -> Fault:
    def fault(trace: Trace) -> None:
        changed, count = re.subn(pattern, replacement, trace[-1]["content"])
        assert count == 1
        trace[-1]["content"] = changed

    return fault


def call(step: int, name: str) -> Fault:
    def fault(trace: Trace) -> None:
        one = chat.call(name, {"repo_path": "x"}, think="")
        trace[2 * step : 2 * step] = [one, chat.result("Done")]

    return fault


def both(*faults: Fault) -> Fault:
    def fault(trace: Trace) -> None:
        for one in faults:
            one(trace)

    return fault


def nothing(trace: Trace) -> None:
    trace[:] = [chat.say("Hecho.", think="")]


def no_report(trace: Trace) -> None:
    del trace[-1]


def all_at_once(trace: Trace) -> None:
    calls = [call for message in trace for call in message.get("tool_calls") or []]
    results = [message for message in trace if message["role"] == "tool"]
    trace[:] = [{**trace[0], "tool_calls": calls}, *results, trace[-1]]


def other_base(trace: Trace) -> None:
    made = arguments(trace, 1)
    made["branch_name"], made["base_branch"] = made["base_branch"], made["branch_name"]


def other_file(trace: Trace) -> None:
    trace[1]["content"] += "\nmodified: otro.py"
    arguments(trace, 1)["files"] = ["otro.py"]


FAULTS: dict[str, dict[str, tuple[Fault, set[str]]]] = {
    "convocar-reunion": {
        "does nothing": (nothing, {"pasos", "no-de-memoria", "informe"}),
        "no current time": (drop(0), {"pasos", "hora-actual-primero"}),
        "no conversion": (drop(1), {"pasos", "no-de-memoria"}),
        "steps swapped": (swap(0, 1), {"pasos", "hora-actual-primero"}),
        "hour from memory": (report('(## Hora local\n)"[^"]+"', r'\1"99:59"'), {"no-de-memoria"}),
        "abbreviated zone": (argument(1, "target_timezone", lambda _: "CET"), {"zonas-completas"}),
        "rounded hour": (argument(1, "time", lambda time: time[:3] + "60"), {"hora-intacta"}),
        "goes on after an error": (both(repeat(0), fail(0)), {"zona-inexistente"}),
        "section missing": (report("## Aviso\n.*", ""), {"informe"}),
        "chat around the report": (report(r"\Z", "\n## Nota\nListo."), {"informe"}),
    },
    "crear-rama": {
        "does nothing": (nothing, {"pasos", "informe"}),
        "no status": (drop(0), {"pasos"}),
        "no branch": (drop(1), {"pasos", "rama-nueva", "informe-veraz"}),
        "no checkout": (drop(2), {"pasos"}),
        "steps swapped": (swap(1, 2), {"pasos", "rama-nueva"}),
        "all calls at once": (all_at_once, {"pasos", "rama-nueva"}),
        "no base": (forget(1, "base_branch"), {"base-indicada", "informe-veraz"}),
        "base and branch exchanged": (other_base, {"rama-nueva"}),
        "shortened name": (
            argument(1, "branch_name", lambda name: name[:-1]),
            {"nombre-intacto", "rama-nueva", "informe-veraz"},
        ),
        "another branch": (argument(2, "branch_name", lambda _: "main"), {"rama-nueva"}),
        "dirty tree": (result(0, "On branch main\nmodified: a.py"), {"arbol-limpio"}),
        "created twice": (repeat(1), {"una-sola-vez"}),
        "goes on after an error": (fail(1), {"pasos"}),
        "sections swapped": (
            report(r"(## Repositorio\n.*)\n(## Estado\n.*)", r"\2\n\1"),
            {"informe", "informe-veraz"},
        ),
        "another base in the report": (report(' desde "[^"]+"', ' desde "main"'), {"informe-veraz"}),
    },
    "informe-historial": {
        "does nothing": (nothing, {"pasos", "informe"}),
        "no list": (drop(0), {"pasos", "lista-primero"}),
        "no detail": (drop(1), {"pasos"}),
        "steps swapped": (swap(0, 1), {"pasos", "lista-primero"}),
        "no number": (forget(0, "max_count"), {"numero-pedido"}),
        "another number": (argument(0, "max_count", lambda count: count + 1000), {"numero-pedido"}),
        "shortened id": (
            argument(1, "revision", lambda sha: sha[:-1]),
            {"identificador-entero", "detalle-veraz"},
        ),
        "another id in the report": (report('Commit "[^"]+"', 'Commit "0"'), {"detalle-veraz"}),
        "section renamed": (report("## Conclusión", "## Final"), {"informe"}),
        "no report": (no_report, {"informe", "detalle-veraz"}),
    },
    "preparar-commit": {
        "does nothing": (nothing, {"pasos", "informe"}),
        "no status": (drop(0), {"pasos", "fichero-en-el-estado"}),
        "no commit": (drop(2), {"pasos"}),
        "steps swapped": (swap(1, 2), {"pasos"}),
        "a dot": (
            argument(1, "files", lambda _: ["."]),
            {"fichero-pedido", "ningun-otro", "fichero-en-el-estado", "informe-veraz"},
        ),
        "one file more": (
            argument(1, "files", lambda files: [*files, "otro.py"]),
            {"fichero-pedido", "ningun-otro", "fichero-en-el-estado"},
        ),
        "another file of the status": (other_file, {"fichero-pedido", "informe-veraz"}),
        "file not in the status": (result(0, "nothing to commit"), {"fichero-en-el-estado"}),
        "shortened message": (
            argument(2, "message", lambda text: text.rsplit(" ", 1)[0]),
            {"mensaje-literal", "informe-veraz"},
        ),
        "call after an error": (both(repeat(2), fail(2)), {"un-solo-commit"}),
        "a second commit": (repeat(2), {"un-solo-commit"}),
        "goes on after an error": (fail(0), {"pasos", "fichero-en-el-estado"}),
        "section renamed": (report("## Ficheros", "## Archivos"), {"informe", "informe-veraz"}),
        "section empty": (report("Nada.", ""), {"informe"}),
        "another file in the report": (report('(## Ficheros\n")', r"\1x"), {"informe-veraz"}),
    },
    "revisar-cambios": {
        "does nothing": (nothing, {"tres-lecturas", "en-orden", "informe", "veredicto"}),
        "a reading less": (drop(1), {"tres-lecturas", "en-orden"}),
        "steps swapped": (swap(0, 1), {"en-orden"}),
        "a reading twice": (repeat(0), {"tres-lecturas"}),
        "another branch": (argument(2, "target", lambda _: "main"), {"rama-indicada", "alcance-veraz"}),
        "extra call": (call(3, "mcp__git__git_add"), {"solo-mirar"}),
        "a failure kept quiet": (fail(1), {"incompleta"}),
        "a failure told": (both(fail(1), report("Apta", "Incompleta")), set()),
        "another verdict": (report("Apta", "Regular"), {"veredicto"}),
        "section missing": (report("## Hallazgos\n.*\n", ""), {"informe"}),
        "another branch in the report": (report(' frente a "[^"]+"', ' frente a "main"'), {"alcance-veraz"}),
    },
}
PLANTED = [(skill, name) for skill, faults in FAULTS.items() for name in faults]


@each_skill
def test_a_skill_has_few_rules_and_something_for_every_line_that_binds(skill) -> None:
    found = RULES[skill.name]
    assert 4 <= sum(rule.kind in rules.DECIDED for rule in found) <= 8
    lines = normative_lines(skill.path.read_text(encoding="utf-8"))
    assert len(lines) >= 12
    assert rules.coverage(found, lines) == []


@pytest.mark.parametrize("split", ["train", "dev", "eval"])
def test_gold_demonstrations_keep_every_rule(split: str) -> None:
    assert {row.skill for row in rows(split)} == RULES.keys()
    for row in rows(split):
        assert row.skill
        assert broken(RULES[row.skill], gold(row), request(row)) == set(), row.id


@pytest.mark.parametrize(("skill", "name"), PLANTED)
def test_a_planted_fault_breaks_the_rules_that_it_should_and_no_other(skill: str, name: str) -> None:
    fault, expected = FAULTS[skill][name]
    for row in [row for row in rows("eval") if row.skill == skill]:
        trace = copy.deepcopy(gold(row))
        fault(trace)
        found = [one for one in rules.check(RULES[skill], trace, request(row)) if one.verdict == rules.BROKEN]
        assert {one.rule for one in found} == expected
        for one in found:
            assert one.reason
            assert "\n" not in one.reason
            assert one.position is None or 0 <= one.position < len(trace)


@each_skill
def test_every_rule_that_a_program_decides_is_broken_by_a_planted_fault(skill) -> None:
    seen = set().union(*(ids for _, ids in FAULTS[skill.name].values()))
    assert seen == {rule.id for rule in RULES[skill.name] if rule.kind in rules.DECIDED}
