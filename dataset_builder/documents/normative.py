"""The lines of a SKILL.md that bind whoever follows it, in Spanish and English.

What binds: a word of command (NUNCA, MUST, ANTES DE: in capitals anywhere, in any case where a clause
begins), a numbered step, a check box, an entry of a list whose title or lead-in commands or says "rules", a
heading of the report template, when the skill is not to be used.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dataset_builder.documents import front_matter, markdown
from dataset_builder.documents.markdown import Block

WORDS = {
    force: re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    for force, words in {
        "never": r"nunca|jam[aá]s|prohibid[oa]s?|en ning[uú]n caso|bajo ning[uú]n concepto|never|must not"
        r"|mustn['’]t|do not|don['’]t|no (?:(?:l[aeo]s?|se|te) )?(?!todas|menos|antes|puedes|tienes)\w+[ae]s"
        r"|forbidden|prohibited|under no circumstances",
        "only_if": r"s[oó]lo (?:si|cuando)|[uú]nicamente si|only (?:if|when|after)",
        "before": r"antes de|before",
        "after": r"despu[eé]s de|after",
        "always": r"siempre|sin excepci[oó]n|always|without exception",
        "must": r"obligatori[oa]s?|debes|deber[aá]s|imprescindible|hay que|must|required|mandatory",
    }.items()
}
"""Words of command by force."""
SHOUTED = {
    "never": re.compile(r"\bNO (?=\w)"),
    "must": re.compile(r"\b(?:CRITICAL|IMPORTANT|CR[IÍ]TICO|IMPORTANTE)\b"),
}
"""Those that command in capitals alone."""
ANYWHERE = re.compile(r"must|debes|deber.s|only if|s.lo si", re.IGNORECASE)
"""Those that command in any case wherever they stand."""
CLAUSE = re.compile(r"(?:^|[.;:!?,—–(*_>]\s*(?:(?:y|pero|and|but|then|please)\s+)?)\W*$")
SENTENCE = re.compile(r"(?:^|[.;:!?]\s+)\W*$")
NOT_USE = (
    r"no (?:l[ao]s? )?(?:uses|utilices|usar(?:l[ao])?|emplees|apliques)"
    r"|do not (?:use|trigger|invoke|activate)|don['’]t use"
)
NOT_WHEN = re.compile(
    rf"\b(?:{NOT_USE}) (?:this|the|esta|este) (?:skill|gu[ií]a|habilidad)\b|\bskip this skill\b"
    r"|\bno (?:la|lo) (?:uses|utilices|emplees|apliques) (?:para|si|cuando|con)\b",
    re.IGNORECASE,
)
NOT_WHEN_HEAD = re.compile(rf"\b(?:{NOT_USE}|not for|not when)\b", re.IGNORECASE)
"""In a description, which speaks of the skill itself."""
HEAD_KEY = re.compile(r"^[\w-]+:\s+[\"']?")
NOT_WHEN_TITLE = re.compile(rf"cu[aá]ndo no\b|when not\b|not to use|out of scope|{NOT_USE}", re.IGNORECASE)
RULES_TITLE = re.compile(
    r"\b(?:reglas|normas|restricciones|obligaciones|rules|constraints|guardrails)\b", re.IGNORECASE
)
STEP_TITLE = re.compile(r"\W*(?:(?:step|paso|fase|phase|etapa)\s*\d+\b|\d+[.)]\s)", re.IGNORECASE)
REPORT = re.compile(
    r"informe|reporte|plantilla|formato de (?:la )?(?:salida|respuesta)|report|template"
    r"|(?:output|response) format|final (?:answer|summary|message)",
    re.IGNORECASE,
)
PROSE = ("", "markdown", "md", "text", "txt")
"""Languages of a fence that people read."""
HEADING = re.compile(r"^#{1,6} .*\S", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class NormativeLine:
    """A line that binds; `text` stands word for word in the file, without its list marks."""

    line: int
    """Of the file, from 1."""
    text: str
    force: str
    """never | always | must | before | after | only_if | step | section | not_when"""


def normative_lines(text: str) -> list[NormativeLine]:
    """The lines that bind in a SKILL.md, in order. Its front matter, if any, says when not to use it."""
    head, body = front_matter.split(text)
    found = [
        NormativeLine(line=number, text=sentence, force="not_when")
        for number, line in enumerate(head.split("\n"), 2)
        for sentence in when_not(HEAD_KEY.sub("", line))
    ]
    offset = text[: len(text) - len(body)].count("\n")
    blocks = list(markdown.blocks(body))
    template = template_of(blocks)
    for block in blocks:
        for line, passage, force in _of_block(block, is_template=block is template):
            found.append(NormativeLine(line=line + offset, text=passage, force=force))
    return found


def when_not(description: str) -> list[str]:
    """The sentences of a skill's description that say when not to use it."""
    sentences = re.split(r"(?<=[.;!])\s+", description.strip())
    return [sentence for sentence in sentences if NOT_WHEN_HEAD.search(sentence)]


def force_of(text: str, kind: str = "item") -> str | None:
    """What the first word of command in a block of this kind commands; None where there is none.

    Only capitals count in titles, tables and code.
    """
    if kind in ("item", "paragraph") and NOT_WHEN.search(text):
        return "not_when"
    found = []
    for force, words in WORDS.items():
        for match in words.finditer(text):
            if match[0].isupper() or _commands(match, force, text, kind):
                found.append((match.start(), force))
                break
    found += [(match.start(), f) for f, words in SHOUTED.items() if (match := words.search(text))]
    return min(found, key=lambda one: one[0], default=(0, None))[1]


def _commands(match: re.Match[str], force: str, text: str, kind: str) -> bool:
    """Whether a word that is not in capitals commands where it stands."""
    late = force in ("before", "after", "always")
    if kind not in ("item", "paragraph") or (kind == "paragraph" and late):
        return False
    start = SENTENCE if force in ("before", "after") else CLAUSE
    return bool(ANYWHERE.fullmatch(match[0]) or start.search(text[: match.start()]))


def template_of(blocks: list[Block]) -> Block | None:
    """The report template: the last fence of prose that begins with a heading and is introduced as one."""
    fences = [
        b for b in blocks if b.kind == "fence" and b.language in PROSE and HEADING.match(b.text.strip())
    ]
    introduced = [b for b in fences if REPORT.search(" ".join((*b.headings[-1:], b.lead)))]
    return introduced[-1] if introduced else None


def _of_block(block: Block, *, is_template: bool) -> Iterator[tuple[int, str, str]]:
    """Line, passage and force of what binds in a block."""
    if block.kind in ("fence", "html"):
        for number, line in enumerate(block.text.split("\n"), block.line):
            if is_template and HEADING.fullmatch(line.rstrip()):
                yield number, line.rstrip(), "section"
            elif block.language in PROSE and not is_template and (force := force_of(line, "code")):
                yield number, line.strip(), force
        return
    force = force_of(block.text, block.kind)
    if block.kind == "heading" and STEP_TITLE.match(block.text):
        force = force or "step"
    elif block.kind == "item":
        force = force or _inherited(block)
    if force and not _is_bare(block.text):
        yield block.line, block.text, force


def _is_bare(text: str) -> bool:
    """Whether a text is a word of command and no more, such as the lead-in `NEVER:`."""
    for words in WORDS.values():
        text = words.sub("", text)
    return not re.search(r"\w", text)


def _inherited(item: Block) -> str | None:
    """What an entry without a word of command takes from its lead-in or title, or from its own marks."""
    title = item.headings[-1] if item.headings else ""
    if NOT_WHEN_TITLE.search(item.lead if item.lead.endswith(":") else title):
        return "not_when"
    lead = item.lead.lstrip("*_ ✅❌") if item.lead.rstrip("*_ ").endswith(":") else ""
    opening = next((force for force, words in WORDS.items() if words.match(lead)), None)
    if force := force_of(lead, "heading") or opening or force_of(title, "heading"):
        return force
    if item.box or RULES_TITLE.search(title):
        return "must"
    return "step" if item.number else None
