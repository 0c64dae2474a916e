"""Stage `rules`: every skill gets rules; what nobody has written is drafted for people to edit.

`rules.yaml` beside a SKILL.md is used as it is. Otherwise `data/<PROFILE>/rules/<skill>.yaml` is drafted, and
drafted anew when the skill or its tools change, until somebody edits it: then it is theirs.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from core import artifacts, config, errors, rules, selectors
from core.errors import UserError
from core.rules import Rule
from core.settings import RulesSettings
from core.yaml_files import read_text
from dataset_builder import raw
from dataset_builder.documents import rule_drafts
from dataset_builder.documents.normative import normative_lines
from dataset_builder.documents.procedures import procedure
from dataset_builder.documents.skills import Skill, load_skills
from dataset_builder.schemas import ServerInfo, ToolSchema, load_servers, load_tools
from dataset_builder.servers import server_rules

BODY = "\nrules:"


def main(words: list[str]) -> int:
    """The stage; exit code 0. UserError after the table where a passage is gone or a line has no rule."""
    settings = config.parse(RulesSettings, words)
    schemas, drafts = settings.data_dir / "schemas", settings.data_dir / "rules"
    tools, servers = load_tools(schemas), load_servers(schemas)
    sources = settings.data_dir / "raw"
    skills = load_skills(raw.directories(sources, "skills"))
    width = max(len("skill"), *(len(skill.name) for skill in skills))
    lines = [f"{'skill':<{width}}  lines  checked  judged  waived  open  rules"]
    faults: list[str] = []
    for skill in skills:
        path, state = settle(skill, drafts, tools)
        found = rules.read(path)
        lines.append(f"{skill.name:<{width}}  {_counts(skill, found)}  {path} ({state})")
        lines += [f"{'':<{width}}  note: {skill.path}: {deviation}" for deviation in skill.deviations]
        if not rules.can_be_broken(found):
            lines.append(f"{'':<{width}}  note: {path}: the gate cannot judge by it; add a must or an order")
        faults += faults_in(skill, path, found)
    print("\n".join(raw.of_originals(line, sources) for line in lines))
    print("\n".join(write_stated(tools, servers, drafts / "servers")))
    print("".join(raw.of_originals(f"{fault}\n", sources) for fault in faults), end="")
    if faults:
        raise UserError(f"{len(faults)} passages of skills and rules that do not match; mend them as said")
    return errors.DONE


def load_rules(skills: Sequence[Skill], drafts: Path) -> dict[str, list[Rule]]:
    """The rules of every skill by its name, from beside it or from `drafts`.

    Raises UserError on a missing or broken file, on a quote that is not in SKILL.md, on a normative line that
    neither a rule nor a waiver speaks of, with file and line.
    """
    found = {}
    for skill in skills:
        path = rules.location(skill.path, skill.name, drafts)
        found[skill.name] = rules.read(path)
        faults = faults_in(skill, path, found[skill.name])
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise UserError(faults[0] + more)
    return found


def write_stated(
    tools: Mapping[str, ToolSchema], servers: Mapping[str, ServerInfo], directory: Path
) -> list[str]:
    """Write `<server>.yaml`: the rules that each server states today, and what else it demands.

    Returns a line a server. The files are for people: rows are made from the dump itself, and a rule that it
    no longer states is never taught.
    """
    import yaml

    directory.mkdir(parents=True, exist_ok=True)
    stated = server_rules.deployed(tools.values(), servers)
    demands = server_rules.passages(tools.values(), servers)
    width = max([len("server"), *map(len, servers)])
    lines = [f"{'server':<{width}}  rules  other demands  version"]
    for name, info in servers.items():
        own = stated.get(name, [])
        others = [one for one in demands if one.server == name and not server_rules.is_covered(one, own)]
        content = {
            "server": name,
            "version": info.version,
            "rules": [server_rules.described(rule) for rule in own],
            "without_a_rule": [{"place": one.place, "quote": one.quote} for one in others],
        }
        text = yaml.safe_dump(content, allow_unicode=True, sort_keys=False, width=100)
        _write(
            directory / f"{name}.yaml", f"# Written by make rules, and again when the server changes.\n{text}"
        )
        lines.append(f"{name:<{width}}  {len(own):>5}  {len(others):>13}  {info.version}")
    return lines


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        artifacts.write_atomically(path, text)


def faults_in(skill: Skill, path: Path, found: Sequence[Rule]) -> list[str]:
    """What of a skill and its rules does not match: passages that are gone, lines without a rule."""
    text = read_text(skill.path)
    gone = [
        f"{path}: rule {rule.id}: {skill.path} no longer says {passage!r}; quote what it says now"
        for rule in found
        for passage in rules.gone(rule, text)
    ]
    return gone + [
        f"{skill.path}:{line.line}: no rule for {selectors.one_line(line.text)!r}; add one, or waived: <why>,"
        f" to {path}"
        for line in rules.coverage(found, normative_lines(text))
    ]


def settle(skill: Skill, drafts: Path, tools: Mapping[str, ToolSchema]) -> tuple[Path, str]:
    """The file of a skill's rules, drafted where it is due, and what became of it."""
    path = rules.location(skill.path, skill.name, drafts)
    if path.parent != drafts:
        return path, "yours"
    old = read_text(path) if path.exists() else None
    if old is not None and not is_untouched(old):
        return path, "yours, edited"
    new = draft_text(skill, tools)
    if new == old:
        return path, "draft, up to date"
    drafts.mkdir(parents=True, exist_ok=True)
    artifacts.write_atomically(path, new)
    return path, "drafted" if old is None else "drafted anew"


def draft_text(skill: Skill, tools: Mapping[str, ToolSchema]) -> str:
    """The content of a drafted file: a header that dates it, and the rules."""
    import yaml

    text = read_text(skill.path)
    entries = rule_drafts.draft(normative_lines(text), procedure(skill, tools), tools, context=skill.body)
    body = yaml.safe_dump({"rules": entries}, allow_unicode=True, sort_keys=False, width=100)
    return (
        "# Drafted by make rules; core/rules.py says what each key means. Edit it, and it is yours.\n"
        f"skill: {skill.name}\nsource_sha256: {_sha256(text)}\ndraft_sha256: {_sha256(body)}\n{body}"
    )


def is_untouched(content: str) -> bool:
    """Whether the rules of a drafted file are those that were written."""
    head, rules_key, body = content.partition(BODY)
    return f"\ndraft_sha256: {_sha256(rules_key.strip() + body)}" in head


def _counts(skill: Skill, found: Sequence[Rule]) -> str:
    """Of its lines: all, those that a program checks, a reader judges, are waived, are left open."""
    lines = normative_lines(read_text(skill.path))
    left, counts = lines, []
    for kinds in (rules.DECIDED, ("judge",), (rules.WAIVED,)):
        rest = rules.coverage([rule for rule in found if rule.kind in kinds], left)
        counts.append(len(left) - len(rest))
        left = rest
    return f"{len(lines):>5}  {counts[0]:>7}  {counts[1]:>6}  {counts[2]:>6}  {len(left):>4}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    errors.run(main)
