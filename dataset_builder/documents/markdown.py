"""A Markdown text as the blocks that a reader sees: headings, list items, paragraphs, rows, fences.

Parsed by markdown-it-py; a block's `text` is the literal source without the marks before it, so that it can
be quoted word for word.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from markdown_it import MarkdownIt
from markdown_it.token import Token

MARKS = re.compile(r"(?:[ \t]*(?:>|[-*+](?=\s)|\d{1,9}[.)](?=\s)|#{1,6}(?=\s)|\[[ xX]\](?=\s)))*[ \t]*")
"""Quotation, list, heading and check-box marks at the start of a line."""
UNDERLINE = re.compile(r"\n[ \t]*(=+|-+)[ \t]*\Z")
CHECK_BOX = re.compile(r"[\s>]*(?:[-*+]|\d{1,9}[.)])\s+\[[ xX]\]\s")
_KINDS = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "tr_open": "row",
    "fence": "fence",
    "code_block": "fence",
    "html_block": "html",
}
_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block of a Markdown text."""

    kind: str
    """heading | item | paragraph | row | fence | html; an item is a list entry's first paragraph."""
    line: int
    """Where it starts, from 1; of a fence's content, its first line."""
    text: str
    headings: tuple[str, ...]
    """The titles above it, outermost first."""
    level: int = 0
    """Of a heading, 1 to 6; of another block, how many lists it stands in."""
    number: str = ""
    """Of an item in a numbered list."""
    box: bool = False
    """Whether the item has a check box."""
    lead: str = ""
    """Of an item or a fence, the paragraph just before its list or itself."""
    language: str = ""
    """Of a fence."""


def blocks(markdown: str) -> Iterator[Block]:
    """The blocks of a text without front matter, in order."""
    lines = markdown.split("\n")
    titles: list[tuple[int, str]] = []
    lists: list[tuple[bool, str]] = []  # numbered or not, lead
    entry: Token | None = None
    lead = ""
    for token in _PARSER.parse(markdown):
        if token.type in ("bullet_list_open", "ordered_list_open"):
            lists.append((token.type == "ordered_list_open", lead))
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            lists.pop()
            lead = ""
        elif token.type == "list_item_open":
            entry = token
        if token.type not in _KINDS or token.map is None:
            continue
        kind, first = _KINDS[token.type], token.map[0]
        block = Block(
            kind=kind,
            line=first + 1,
            text=_source(lines, *token.map),
            headings=tuple(title for _, title in titles),
            level=len(lists),
        )
        if kind == "heading":
            level = int(token.tag[1])
            titles = [title for title in titles if title[0] < level]
            block = replace(block, level=level, headings=tuple(title for _, title in titles))
            titles.append((level, block.text))
        elif kind == "paragraph" and entry and entry.map and entry.map[0] == first:
            numbered, above = lists[-1]
            block = replace(
                block,
                kind="item",
                number=entry.info if numbered else "",
                box=CHECK_BOX.match(lines[first]) is not None,
                lead=above,
            )
        elif kind == "fence":
            language = (token.info.split() or [""])[0].lower()
            opening = 1 if token.type == "fence" else 0
            block = replace(block, line=first + 1 + opening, text=token.content, language=language, lead=lead)
        elif kind == "html":
            block = replace(block, text=token.content)
        lead = block.text if kind == "paragraph" else ""
        yield block


def _source(lines: list[str], start: int, stop: int) -> str:
    """The literal lines without the marks before the first; a heading's underline is left out."""
    text = MARKS.sub("", "\n".join(lines[start:stop]), count=1).strip()
    return UNDERLINE.sub("", text)
