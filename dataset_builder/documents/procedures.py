"""What a SKILL.md tells one to do, read from its Markdown: steps with their tools, report template, limits.

A tool is named in backticks (`git_status`, `git_status(path)`, `git.git_status`, `mcp__git__git_status`), or
bare where its name has an underscore.
"""

import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dataset_builder.documents import markdown
from dataset_builder.documents.markdown import Block
from dataset_builder.documents.normative import (
    HEADING,
    NOT_WHEN_TITLE,
    RULES_TITLE,
    STEP_TITLE,
    force_of,
    normative_lines,
    template_of,
    when_not,
)
from dataset_builder.documents.skills import Skill
from dataset_builder.schemas import ToolSchema

STEPS_TITLE = re.compile(
    r"\b(?:pasos|procedimiento|proceso|flujo|instrucciones|c[oó]mo|steps|procedure|process|workflow|instructions"
    r"|how to)\b",
    re.IGNORECASE,
)
NAME = re.compile(r"`([A-Za-z_][\w./:-]*)(?:\([^`\n]*\))?`|\b(mcp__\w[\w-]*|[A-Za-z]\w*_\w+)\b")
DENIED = re.compile(
    r"\b(?:nunca|jam[aá]s|prohibido|never|must not|do not|don['’]t"
    r"|instead of|rather than|en vez de|en lugar de|no (?:(?:l[aeo]s?|se|te) )?\w+[ae]s)\b[^`]*$"
    r"|\b(?:no|ni|not|nor|sin|without)\s+(?:con\s+|with\s+|usar\s+|llamar a\s+|using\s+|calling\s+)?`?$",
    re.IGNORECASE,
)
"""Before a tool in its clause: it is named as what is not to be called."""
MENTIONED = re.compile(
    r"\b(?:antes de|despu[eé]s de|tras|una vez|si|cuando|before|after|once|if|when|unless|until)\b[^`]*$",
    re.IGNORECASE,
)
"""Before a tool in its clause: it is named as what happens at another time."""


@dataclass(frozen=True, kw_only=True)
class SkillStep:
    """One step of a procedure."""

    number: int
    """From 1."""
    text: str
    """Word for word, without its list mark."""
    tools: tuple[str, ...]
    """`<server>.<tool>` of each tool that it says to call, in its order."""
    line: int
    """Of the file, from 1."""


@dataclass(frozen=True, kw_only=True)
class Procedure:
    """What a skill asks for."""

    steps: tuple[SkillStep, ...]
    sections: tuple[str, ...]
    """The headings of the report template, `## Resumen`."""
    template: str | None
    """The report template, as Markdown."""
    not_when: tuple[str, ...]
    """When not to use the skill, a sentence or entry each."""


@dataclass(frozen=True)
class Mention:
    """A tool's name in a text, its backticks included."""

    tool: str
    """`<server>.<tool>`"""
    start: int
    stop: int


def procedure(skill: Skill, tools: Mapping[str, ToolSchema]) -> Procedure:
    """The procedure of a skill; `tools` by `<server>.<tool>`.

    Its steps are the titles `Step 1`, `Paso 1`, ... where there are two, else the numbered list under a
    title such as Pasos or Workflow, else any numbered list that is not one of rules.
    """
    blocks = list(markdown.blocks(skill.body))
    template = template_of(blocks)
    found = _titled(blocks) or _listed(blocks, _is_titled_steps) or _listed(blocks, _may_be_steps)
    steps = [
        SkillStep(
            number=number,
            text=block.text,
            tools=called_tools(content, tools, skill.body),
            line=block.line + skill.body_line - 1,
        )
        for number, (block, content) in enumerate(found, 1)
    ]
    limits = [line.text for line in normative_lines(skill.body) if line.force == "not_when"]
    return Procedure(
        steps=tuple(steps),
        sections=tuple(HEADING.findall(template.text)) if template else (),
        template=template.text.rstrip() if template else None,
        not_when=(*when_not(skill.description), *limits),
    )


def named_tools(text: str, tools: Mapping[str, ToolSchema], context: str = "") -> list[Mention]:
    """Each mention of a tool in a text, in order.

    A name that several servers share goes to one whose name stands in the text, else in `context`, else to
    the first by name.
    """
    by_name = _keys_by_name(tuple(tools))
    found = []
    for match in NAME.finditer(text):
        candidates = by_name.get(match[1] or match[2], [])
        for words in (text, context):
            told = [
                key for key in candidates if re.search(rf"\b{re.escape(tools[key].server)}\b", words, re.I)
            ]
            if told:
                candidates = told
                break
        if candidates:
            found.append(Mention(candidates[0], *match.span()))
    return found


def called_tools(text: str, tools: Mapping[str, ToolSchema], context: str = "") -> tuple[str, ...]:
    """The tools that a text says to call, each once: neither what it forbids nor what it only mentions."""
    found = []
    for mention in named_tools(text, tools, context):
        clause = re.split(r"[,.;:\n]\s", text[: mention.start])[-1]
        if not DENIED.search(clause) and not MENTIONED.search(clause):
            found.append(mention.tool)
    return tuple(dict.fromkeys(found))


def _titled(blocks: Sequence[Block]) -> list[tuple[Block, str]]:
    """The titles that are steps, of the outermost level that has two, each with the text under it."""
    titles = [b for b in blocks if b.kind == "heading" and STEP_TITLE.match(b.text)]
    level = min((b.level for b in titles if sum(b.level == t.level for t in titles) > 1), default=0)
    found = []
    for number, block in enumerate(blocks):
        if block in titles and block.level == level:
            under = itertools.takewhile(
                lambda b: b.kind != "heading" or b.level > level, blocks[number + 1 :]
            )
            found.append((block, "\n".join(b.text for b in (block, *under) if b.kind != "fence")))
    return found


def _listed(blocks: Sequence[Block], fits: Callable[[Block], bool]) -> list[tuple[Block, str]]:
    """The entries of the first numbered list of two or more that fits, each with the text that it holds."""
    found: list[tuple[Block, str]] = []
    for number, block in enumerate(blocks):
        if block.kind != "item" or block.level != 1 or not block.number or not fits(block):
            continue
        if found and (block.headings, block.lead) != (found[0][0].headings, found[0][0].lead):
            if len(found) > 1:
                break
            found = []
        held = itertools.takewhile(
            lambda b: b.level > 1 or (b.level == 1 and b.kind != "item"), blocks[number + 1 :]
        )
        found.append((block, "\n".join(b.text for b in (block, *held) if b.kind != "fence")))
    return found if len(found) > 1 else []


def _is_titled_steps(block: Block) -> bool:
    return bool(block.headings and STEPS_TITLE.search(block.headings[-1]))


def _may_be_steps(block: Block) -> bool:
    title = " ".join(block.headings[-1:])
    return (
        not RULES_TITLE.search(title) and not NOT_WHEN_TITLE.search(title) and not force_of(title, "heading")
    )


@functools.lru_cache(maxsize=4)
def _keys_by_name(keys: tuple[str, ...]) -> dict[str, list[str]]:
    """The tools by each way to write their names."""
    found: dict[str, list[str]] = defaultdict(list)
    for key in sorted(keys):
        server, _, name = key.partition(".")
        for written in (name, key, f"{server}:{name}", f"{server}/{name}", f"mcp__{server}__{name}"):
            found[written].append(key)
    return dict(found)
