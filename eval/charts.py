"""The report's drawings, as inline SVG."""

import math
from collections.abc import Sequence

from core.markup import Markup, tag
from eval.stats import Statistic

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 240, 44, 24
SMOOTHED = 25
"""About how many points the thick line of the loss has."""


def interval(found: Statistic, top: float) -> Markup:
    """A bar from 0 to `top` with the interval on it and a mark at the value."""
    scale = 100 / top
    low, high, value = (scale * x for x in (found.low, found.high, found.value))
    return tag(
        "svg",
        tag("rect", x=0, y=4, width=100, height=2, class_="track"),
        tag("rect", x=_n(low), y=2, width=_n(max(high - low, 0.5)), height=6, class_="mark range"),
        tag("rect", x=_n(min(max(value - 0.6, 0), 98.8)), y=0, width=1.2, height=10, class_="mark"),
        class_="bar",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def losses(log: Sequence[dict[str, float]]) -> Markup:
    """Training's loss by step, on a logarithmic scale: every step thin, means of neighbours thick."""
    points = [(step["step"], step["loss"]) for step in log if step["loss"] > 0]
    if not points:
        return tag("p", "No loss was logged.")
    low, high = (math.log10(extreme(loss for _, loss in points)) for extreme in (min, max))
    first, last = math.floor(low), math.ceil(max(high, low + 0.1))
    steps = max(step for step, _ in points)

    def place(step: float, loss: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 12) * step / steps
        y = 10 + (HEIGHT - BOTTOM - 10) * (last - math.log10(loss)) / (last - first)
        return x, y

    grid = []
    for power in range(first, last + 1):
        _, y = place(0, 10.0**power)
        grid.append(tag("line", x1=LEFT, x2=WIDTH - 12, y1=_n(y), y2=_n(y), class_="grid"))
        grid.append(tag("text", f"{10.0**power:g}", x=LEFT - 6, y=_n(y + 4), text_anchor="end"))
    ends = [
        tag("text", "0", x=LEFT, y=HEIGHT - 6),
        tag("text", f"step {steps}", x=WIDTH - 12, y=HEIGHT - 6, text_anchor="end"),
    ]
    size = max(1, len(points) // SMOOTHED)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    means = [tuple(sum(values) / len(values) for values in zip(*group, strict=True)) for group in groups]
    return tag(
        "svg",
        tag("title", f"Training loss, {points[0][1]:.3g} at the first step, {points[-1][1]:.3g} at the last"),
        *grid,
        *ends,
        _line([place(*point) for point in points], "raw", 0.8),
        _line([place(*point) for point in means], "mean", 2.2),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
    )


def _line(points: Sequence[tuple[float, float]], kind: str, width: float) -> Markup:
    return tag(
        "polyline", points=" ".join(f"{_n(x)},{_n(y)}" for x, y in points), class_=kind, stroke_width=width
    )


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
