"""The dataset's page and figures: they say what the rows are, in one file that needs nothing else."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from core import chat, rules
from core.chat import Row
from core.render import trained_messages
from dataset_builder.verifying import page
from dataset_builder.verifying.checks import Drop
from dataset_builder.verifying.figures import figures
from tests.rows import asked, log, row

META = {"tokens": [[120, 30]], "rules": {"notes/short": rules.HOLDS}, "kind": "single"}
WRONG = [chat.user("x"), log(max_count="x"), chat.result("Error"), log()]
EVIL = "</script><img src=x onerror=alert(1)>&amp; ñ"
TRAIN = [
    row(meta=META, server="git"),
    row(WRONG, id="b", train_turns=[1], meta=META | {"tokens": [[900, 20], [400, 5]], "kind": "chain"}),
    row(
        [*chat.system(EVIL), *asked(EVIL)], id="c", bucket="errors", meta=META | {"rules": {}}, skill="notes"
    ),
]
HELD_OUT = [row(id="d", split="eval", meta=META)]
DROPPED = [
    Drop("e", "mcp", "schema", "git_log.n: 'tres' is not of type 'integer'"),
    Drop("f", "mcp", "duplicates", "near-duplicate", "b"),
]
RULES = [
    rules.Rule(id="short", kind="never", quote="q", when=None, keys={}),
    rules.Rule(id="bare", kind="must", quote="q", when=None, keys={}),
]
FIGURES = figures(TRAIN, HELD_OUT, DROPPED, {"notes": RULES})


class Elements(HTMLParser):
    """Every element with its attributes, and whether all were closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def rendered(train: list[Row] = TRAIN) -> str:
    return page.render("tiny", FIGURES, train, HELD_OUT, DROPPED)


def examples(text: str) -> list[dict]:
    """The examples that the page carries."""
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert data
    return json.loads(data[1])["rows"]


def test_figures_count_rows_by_what_they_are():
    assert FIGURES["train"] == {"mcp": 2, "errors": 1}
    assert FIGURES["eval"] == {"mcp": 1}
    assert FIGURES["kinds"]["mcp: chain"] == {"train": 1, "eval": 0}
    assert FIGURES["tools"] == {
        "mcp__git__git_log": {"train": 3, "eval": 1},
        "mcp__notes__save": {"train": 0, "eval": 0},
    }
    assert FIGURES["servers"] == {"git": {"train": 3, "eval": 1}}
    assert FIGURES["skills"] == {"notes": {"train": 1, "eval": 0}}
    assert {name: rule["train"] for name, rule in FIGURES["rules"].items()} == {
        "notes/short": 2,
        "notes/bare": 0,
    }
    assert FIGURES["tokens"]["train"] == {
        "samples": 4, "all": 1540, "labelled": 85, "median": 400, "longest": 900,
    }  # fmt: skip
    assert FIGURES["lengths"] == [
        [100 * n, 100 * n + 100, c] for n, c in enumerate([0, 2, 0, 0, 1, 0, 0, 0, 0, 1])
    ]
    assert sum(FIGURES["dropped"].values()) == len(DROPPED)
    assert json.loads(json.dumps(FIGURES)) == FIGURES


def test_the_page_is_one_well_formed_file_that_fetches_nothing():
    text = rendered()
    elements = Elements(text)
    assert elements.open == []
    for tag, attributes in elements.found:
        assert tag not in ("link", "img", "iframe", "object", "base", "form")
        assert not attributes.keys() & {"src", "href", "action", "onclick", "onerror"}
    outside = re.sub(r'<script id="data".*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest|import\(|eval\(|innerHTML", outside)


def test_no_text_of_a_row_becomes_markup():
    text = rendered()
    assert "<img" not in text
    assert text.count("</script>") == 2
    (shown,) = [one for one in examples(text) if one["id"] == "c"]
    assert shown["messages"][1]["text"] == EVIL


def test_every_row_is_there_with_what_is_trained_marked():
    shown = {one["id"]: one for one in examples(rendered())}
    for one in [*TRAIN, *HELD_OUT]:
        marked = [i for i, message in enumerate(shown[one.id]["messages"]) if message.get("trained")]
        assert marked == trained_messages(one)
    assert "All rows." in rendered()


def test_too_many_rows_are_sampled_by_chance_and_said_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page, "MOST_BYTES", 20_000)
    many = [replace(TRAIN[0], id=f"r{i}") for i in range(300)]
    text = rendered(many)
    assert text == rendered(many)
    shown = [one["id"] for one in examples(text)]
    assert 10 < len(shown) < 100
    assert len(set(shown)) == len(shown)
    assert f"{len(shown)} of 301 rows, drawn by chance" in text
    assert max(int(name[1:]) for name in shown if name != "d") > 200, "not the first ones"


def test_the_page_shows_figures_drops_and_rules_without_an_example():
    text = rendered()
    for shown in (
        "near-duplicate",
        "git_log.n: &#x27;tres&#x27; is not of type",
        "1,540",
        "5.5%",
        "notes/bare",
    ):
        assert shown in text
    assert "without an example to train on: notes/bare." in text


def test_an_empty_dataset_has_a_page():
    nothing = figures([], [], [], {})
    assert "No row." in page.render("tiny", nothing, [], [], [])
