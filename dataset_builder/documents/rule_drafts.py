"""First rules of a skill, drafted from its procedure and its normative lines: a start for people to edit.

A line becomes a rule that a program decides only where its words leave no doubt about it; any other becomes a
`judge` with the line as its rubric. So every normative line is covered, and none by a guess.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dataset_builder.documents.normative import REPORT, NormativeLine
from dataset_builder.documents.procedures import Mention, Procedure, SkillStep, called_tools, named_tools
from dataset_builder.schemas import ToolSchema

Entry = dict[str, Any]
"""A rule as rules.yaml has it; see core/rules.py."""

IF = re.compile(
    r"\b(?:si|cuando|siempre que|cada vez|salvo|excepto|a menos que|opcional(?:mente)?|en caso"
    r"|if|when|whenever|unless|except|optional(?:ly)?)\b",
    re.IGNORECASE,
)
OR = re.compile(r"[^`]{0,20}\b(?:o|u|or)\b[^`]{0,12}")
BEFORE = re.compile(
    r"\b(?:antes de|before|hasta|until|sin(?! excepci)|without(?! exception))\b", re.IGNORECASE
)
ONLY_DENIED = re.compile(r"\b(?:hasta|until|sin|without)\b", re.IGNORECASE)
"""Connections that order two tools only where the first is forbidden: `never A without B`."""
AFTER = re.compile(r"\b(?:despu[eé]s de|tras|after|una vez|once)\b", re.IGNORECASE)
FIRST = re.compile(r"\bantes (?:de|que) (?:nada|todo|cualquier)|\bbefore any", re.IGNORECASE)
ONCE = re.compile(
    r"\brepit[ae]s\b|\brepeat\b|\bm[aá]s de una vez\b|\bdos veces\b|\bmore than once\b|\btwice\b"
    r"|\buna sola vez\b|\b(?:only|exactly) once\b",
    re.IGNORECASE,
)
DENIES = re.compile(r"\b(?:nunca|jam[aá]s|prohibido|never|must not|do not|don['’]t|no)\b", re.IGNORECASE)
CALLS = r"(?:us|llam|ejecut|invo[cq]|utili[cz]|emple|call|us|run|invok|execut)\w*"
ARTICLE = r"(?:a\s+|la herramienta\s+|the\s+)?"
DENIED_CALL = re.compile(rf"{DENIES.pattern}\s+(?:debes\s+)?(?:{CALLS}\s+)?{ARTICLE}$", re.IGNORECASE)
CALL = re.compile(
    rf"\b(?:{CALLS}|con|mediante|with|by|via|le[ea]r?|read|consult\w+)\s+{ARTICLE}$", re.IGNORECASE
)
JOINT = re.compile(r"(?:\s|,|\b(?:ni|o|y|nor|or|and)\b)+")
REST = re.compile(r"\s*(?:\b(?:tool|herramienta)\b)?\s*(?:[.;:,!)—–*]|\Z|\b(?:ni|nor|or|o|y|and)\b)")
"""After a forbidden tool: nothing that narrows what is forbidden about it."""
FILLED_IN = re.compile(r"[<>\[\]{}()…]")
"""In a heading: its words are not those of the report."""
TRIGGER = "it says when to use the skill; prompts that must not trigger it measure that, not a trace"


def draft(
    lines: Sequence[NormativeLine], procedure: Procedure, tools: Mapping[str, ToolSchema], context: str = ""
) -> list[Entry]:
    """Rules and waivers that cover every line; the same input gives the same rules.

    `context` is the skill's text: it tells which server a tool's name is of, where several have it.
    """
    rules = _of_steps(procedure.steps)
    covered = {passage for rule in rules for passage in (rule["quote"], *rule.get("covers", ()))}
    report = _of_report(procedure.sections)
    if report:
        rules.append(report)
        reported = [step.text for step in procedure.steps if not step.tools and REPORT.search(step.text)]
        report["covers"] = [*report["covers"], *reported]
        covered |= {*procedure.sections, *reported}
    for line in lines:
        found = [] if line.force == "section" else _of_line(line, procedure, tools, context)
        rules += [{"quote": line.text, **one} for one in found]
        if found or line.text in covered:
            continue
        if line.force == "not_when":
            rules.append({"quote": line.text, "waived": TRIGGER})
        else:
            rules.append({"quote": line.text, "kind": "judge", "rubric": " ".join(line.text.split())})
    return _named([{k: v for k, v in rule.items() if v != []} for rule in rules])


def _of_steps(steps: Sequence[SkillStep]) -> list[Entry]:
    """The order of the steps that name tools and have no condition; their further tools are a must each."""
    sure = [step for step in steps if step.tools and not IF.search(step.text)]
    alternatives = {
        step.number: list(step.tools) if OR.search(step.text) else [step.tools[0]] for step in sure
    }
    calls = [{"call": _one_or_list(alternatives[step.number])} for step in sure]
    rules: list[Entry] = []
    if len(sure) > 1:
        covers = [step.text for step in sure[1:]]
        rules.append(
            {"id": "steps", "quote": sure[0].text, "covers": covers, "kind": "order", "steps": calls}
        )
    elif sure:
        rules.append({"id": "step", "quote": sure[0].text, "kind": "must", "what": calls[0]})
    for step in sure:
        others = [tool for tool in step.tools if tool not in alternatives[step.number]]
        rules += [{"quote": step.text, "kind": "must", "what": {"call": tool}} for tool in others]
    return rules


def _of_report(sections: Sequence[str]) -> Entry | None:
    """The report's headings; where some are to be filled in, that the others are there in their order."""
    firm = [section for section in sections if not FILLED_IN.search(section)]
    if not firm:
        return None
    rule: Entry = {"id": "report", "quote": sections[0], "covers": list(sections[1:])}
    if len(firm) == len(sections):
        return {**rule, "kind": "final_sections", "sections": firm}
    headings = ".*".join(f"^{_literal(section)}$" for section in firm)
    return {**rule, "kind": "must", "what": {"say": f"(?s){headings}"}}


def _of_line(
    line: NormativeLine, procedure: Procedure, tools: Mapping[str, ToolSchema], context: str
) -> list[Entry]:
    """The rules that a line's words leave no doubt about."""
    text, named = line.text, named_tools(line.text, tools, context)
    keys = list(dict.fromkeys(mention.tool for mention in named))
    own = list(dict.fromkeys(tool for step in procedure.steps for tool in step.tools))
    if line.force in ("not_when", "only_if", "step") or IF.search(text):
        return []
    arguments = _of_arguments(text, keys or own, tools) if line.force in ("always", "must") else []
    if arguments:
        return arguments
    if len(keys) == 1 and ONCE.search(text):
        return [{"kind": "count", "what": {"call": keys[0]}, "max": 1}]
    if len(keys) == 1 and FIRST.search(text):
        others = [tool for tool in own if tool not in keys]
        rule = {"kind": "before", "first": {"call": keys[0]}, "then": {"call": _one_or_list(others)}}
        return [rule] if others else []
    if BEFORE.search(text) or AFTER.search(text):
        return _of_pair(text, named) if len(keys) == 2 else []
    denied = _denied(text, named)
    if denied:
        is_meant = not set(denied) & set(own)  # a step calls it: some other use of it is forbidden
        return [{"kind": "never", "what": {"call": _one_or_list(denied)}}] if is_meant else []
    if line.force not in ("always", "must"):
        return []
    told = {mention.tool for mention in named if CALL.search(text[: mention.start])}
    called = [tool for tool in called_tools(text, tools, context) if tool in told]
    return [{"kind": "must", "what": {"call": tool}} for tool in called]


def _of_pair(text: str, named: Sequence[Mention]) -> list[Entry]:
    """Which of two tools comes first, by the words before and between them."""
    one, other = named[0], next(mention for mention in named if mention.tool != named[0].tool)
    lead, between = text[: one.start], text[one.stop : other.start]
    straight = {"first": {"call": one.tool}, "then": {"call": other.tool}}
    reverse = {"first": {"call": other.tool}, "then": {"call": one.tool}}
    denies = DENIES.search(lead) is not None
    if BEFORE.search(between) and (denies or not ONLY_DENIED.search(between)):
        return [{"kind": "before", **(reverse if denies else straight)}]
    if denies:
        return []
    if AFTER.search(between):
        return [{"kind": "after", **reverse}]
    if AFTER.search(lead):
        return [{"kind": "after", **straight}]
    return [{"kind": "before", **reverse}] if BEFORE.search(lead) and not ONLY_DENIED.search(lead) else []


def _denied(text: str, named: Sequence[Mention]) -> list[str]:
    """The tools that a line forbids outright: `never use A, B or C`."""
    found: list[Mention] = []
    for mention in named:
        joined = found and JOINT.fullmatch(text, found[-1].stop, mention.start)
        if joined or DENIED_CALL.search(text[: mention.start]):
            if not REST.match(text, mention.stop):
                return []
            found.append(mention)
    return list(dict.fromkeys(mention.tool for mention in found))


def _of_arguments(text: str, keys: Sequence[str], tools: Mapping[str, ToolSchema]) -> list[Entry]:
    """That calls carry the arguments which a line names in backticks."""
    names = re.findall(r"`(\w+)`", text)
    found = []
    for key in keys:
        own = {name: r"\S" for name in names if name in tools[key].properties}
        if own:
            found.append({"kind": "never", "what": {"call": key, "args_not": own}})
    return found


def _literal(text: str) -> str:
    """A regular expression for a text, with the escapes alone that it needs."""
    return re.escape(text).replace("\\ ", " ").replace("\\#", "#").replace("\\-", "-")


def _one_or_list(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


def _named(rules: list[Entry]) -> list[Entry]:
    """The rules with an id each, made of the first words of the quote."""
    taken: set[str] = set()
    named = []
    for rule in rules:
        words = re.findall(r"\w+", rule["quote"].lower())
        base = rule.get("id") or "-".join(words[:4]) or "rule"
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        named.append({"id": name, **{key: value for key, value in rule.items() if key != "id"}})
    return named
