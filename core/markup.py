"""HTML that cannot be broken by what it shows: text is escaped unless it is already markup.

And the parts that every page of the project is made of: one file, nothing fetched, readable on a phone and in
the dark (page.css).
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

STYLE = Path(__file__).with_name("page.css")


class Markup(str):
    """Text that is HTML. Only `tag` and `join` make it; any other text is escaped on its way in."""


def tag(name: str, *children: str, **attributes: str | float) -> Markup:
    """`<name attributes>children</name>`; `class_` is class, `stroke_width` is stroke-width."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: str) -> Markup:
    """Children one after the other, those escaped that are not markup."""
    return Markup("".join(c if isinstance(c, Markup) else html.escape(c) for c in children))


def document(title: str, style: str, *body: str) -> str:
    """A whole page; `style` is CSS that comes after the common one."""
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        tag("style", Markup(STYLE.read_text(encoding="utf-8") + style)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def section(title: str, *content: str) -> Markup:
    """A titled part of a page, to which `contents` leads."""
    return tag("section", tag("h2", title), *content, id=_anchor(title))


def contents(titles: Iterable[str]) -> Markup:
    """Links to the sections of these titles, on the same page."""
    return tag(
        "nav", *(tag("a", title, href=f"#{_anchor(title)}") for title in titles), aria_label="contents"
    )


def _anchor(title: str) -> str:
    return "-".join(title.lower().replace(",", "").split())


def details(summary: Sequence[str], *content: str, opened: bool = False) -> Markup:
    """Content to unfold below a line, by mouse or keyboard."""
    return tag("details", tag("summary", *summary), *content, **({"open": ""} if opened else {}))


def table(header: list[str], rows: list[Markup]) -> Markup:
    """A table of `row`s; on a phone each row is a card, so its cells carry their header's text."""
    head = tag("thead", tag("tr", *(tag("th", one, scope="col") for one in header)))
    return tag("table", head, tag("tbody", *rows))


def plain_table(header: list[str], rows: list[list[str]]) -> Markup:
    """A table of texts; the first of each row is its title."""
    return table(header, [row(one[0], *map(cell, header[1:], one[1:])) for one in rows])


def row(title: str, *cells: Markup) -> Markup:
    """A table's row."""
    return tag("tr", tag("th", title, scope="row"), *cells)


def cell(label: str, *content: str, class_: str = "") -> Markup:
    """A table's cell; `label` is its column's header."""
    attributes = {"data_label": label} | ({"class_": class_} if class_ else {})
    return tag("td", *content, **attributes)


def facts(found: Mapping[str, Any]) -> Markup:
    """Names and values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", str(value))) for name, value in found.items()))
