"""Takes an HTML document apart, for tests of pages."""

from html.parser import HTMLParser

CELLS = ("td", "th", "dt", "dd")
"""Their texts stand apart."""
VOID = ("meta", "hr", "br", "img", "input")


class Reader(HTMLParser):
    """The tags and the text of a document; every tag must be closed by its own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in CELLS:
            self.text += "\n"

    def handle_data(self, data: str) -> None:
        self.text += data
