"""Markup and drawings that hold whatever is put into them."""

import html
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import markup
from core.markup import Markup, join, tag
from eval import stats
from eval.reporting import charts, page
from tests.html_reader import Reader


@given(st.text(), st.text())
def test_text_comes_back_as_text_whatever_it_holds(content: str, label: str):
    made = Reader(tag("p", content, tag("b", content), title=label))
    assert [name for name, _ in made.tags] == ["p", "b"]
    written = re.sub("\r\n?", "\n", html.unescape(html.escape(content)))
    assert re.sub("\r\n?", "\n", made.text) == 2 * written


def test_markup_is_not_escaped_twice():
    assert join(tag("b", "<"), "<", Markup("<br>")) == "<b>&lt;</b>&lt;<br>"


@given(st.integers(1, 100).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_an_interval_stays_inside_its_bar(case: tuple[int, int]):
    drawn = Reader(charts.interval(stats.rate(case[1], case[0]), 1.0))
    for name, attributes in drawn.tags:
        if name == "rect":
            x, width = (float(attributes[key] or "nan") for key in ("x", "width"))
            assert 0 <= x <= x + width <= 100.51


def points(drawn: str) -> list[list[tuple[float, float]]]:
    """The lines of a chart, its legend apart."""
    chart = drawn[drawn.rindex("<svg><title>") if "<svg><title>" in drawn else drawn.index("<title>") :]
    lines = [
        attributes["points"] or "" for name, attributes in Reader("<svg>" + chart).tags if name == "polyline"
    ]
    return [[(float(x), float(y)) for x, y in (point.split(",") for point in line.split())] for line in lines]


LOSSES = st.lists(st.floats(1e-6, 20), min_size=1, max_size=120)


@given(LOSSES, LOSSES)
def test_every_loss_lies_inside_the_chart(losses: list[float], looks: list[float]):
    steps = [{"step": i, "loss": one} for i, one in enumerate(losses, 1)]
    evaluations = [{"step": i, "eval_loss": one} for i, one in enumerate(looks[: len(losses)], 1)]
    every, _, held = points(charts.losses(steps, evaluations))
    assert (len(every), len(held)) == (len(losses), len(evaluations))
    for x, y in (*every, *held):
        assert 0 <= x <= charts.WIDTH and 0 <= y <= charts.HEIGHT


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_shares_by_turn_start_at_all_and_stay_inside_the_chart(shares: list[float]):
    (line,) = points(charts.survival({"merged": shares}, [1] * len(shares), "t"))
    assert len(line) == len(shares) + 1
    top, floor = line[0][1], charts.HEIGHT - charts.BOTTOM
    for (x, y), share in zip(line, [1.0, *shares], strict=True):
        assert 0 <= x <= charts.WIDTH
        assert math.isclose(y, floor - (floor - top) * share, abs_tol=0.02)


# ---- colours -------------------------------------------------------------------------------------

STYLES = [
    path.read_text(encoding="utf-8") for path in (markup.STYLE, Path(page.__file__).with_name("report.css"))
]
DARK = r"@media \(prefers-color-scheme: dark\) \{(.*?)\}\s*\}"


def colours(dark: bool) -> dict[str, str]:
    """The pages' named colours, by the reader's choice of light or dark."""
    found = {}
    for style in STYLES:
        light = re.sub(DARK, "", style, flags=re.DOTALL)
        for part in (light, *(re.findall(DARK, style, re.DOTALL) if dark else ())):
            found |= dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part))
    return found


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


TEXT, LINES = ("ink", "soft", "good", "bad", "even"), ("accent", "base", "nvfp4")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    ("ground", "names", "least"),
    [("paper", (*TEXT, "accent"), 4.5), ("raised", TEXT, 4.5), ("paper", LINES, 3), ("raised", LINES, 3)],
)
def test_text_and_lines_stand_out_from_the_paper(
    ground: str, names: tuple[str, ...], least: float, dark: bool
):
    found = colours(dark)
    for name in names:
        low, high = sorted(luminance(found[one]) for one in (name, ground))
        assert (high + 0.05) / (low + 0.05) >= least, name
