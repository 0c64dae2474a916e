"""HTML that cannot be broken by what it shows: text is escaped unless it is already markup."""

import html


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
