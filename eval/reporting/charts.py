"""The report's drawings, as inline SVG: as wide as a phone, so that their text can be read there."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.markup import Markup, join, tag
from eval.stats import Statistic

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 180, 42, 10, 10, 26
SMOOTHED = 25
"""About how many points the thick line of the loss has."""
MOST_LABELS = 8
"""Of turns below their axis."""
LINE = 16
"""Height of a line of text."""

Point = tuple[float, float]


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


def legend(lines: Mapping[str, str]) -> Markup:
    """What the lines of a chart are called: class of each -> its name."""
    keys = (
        tag(
            "span",
            tag("svg", _line([(0, 5), (26, 5)], name), viewBox="0 0 26 10", class_="key", aria_hidden="true"),
            title,
        )
        for name, title in lines.items()
    )
    return tag("p", *keys, class_="legend")


def losses(steps: Sequence[Mapping[str, float]], evaluations: Sequence[Mapping[str, float]] = ()) -> Markup:
    """Training's loss by step, on a logarithmic scale: every step thin, means of neighbours thick.

    `evaluations` are the looks at held-out rows in between, as points on a line.
    """
    points = [(step["step"], step["loss"]) for step in steps if step["loss"] > 0]
    looks = [(one["step"], one["eval_loss"]) for one in evaluations if one["eval_loss"] > 0]
    if not points:
        return tag("p", "No loss was logged.")
    seen = [loss for _, loss in (*points, *looks)]
    first, last = math.floor(math.log10(min(seen))), math.ceil(math.log10(max(seen)) + 1e-9)
    frame = Frame(max(step for step, _ in points), HEIGHT)

    def place(step: float, loss: float) -> Point:
        return frame.place(step, (math.log10(loss) - first) / (last - first))

    size = max(1, len(points) // SMOOTHED)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    means = [(_mean(step for step, _ in group), _mean(loss for _, loss in group)) for group in groups]
    title = f"Training loss, {points[0][1]:.3g} at the first step, {points[-1][1]:.3g} at the last"
    held = {"held": "held-out rows"} if looks else {}
    return join(
        legend({"mean": "training", **held}),
        frame.chart(
            title,
            *(frame.level(i / (last - first), f"{10.0 ** (first + i):g}") for i in range(last - first + 1)),
            frame.below(0, "0", "start"),
            frame.below(frame.end, f"step {frame.end:,.0f}", "end"),
            _line([place(*point) for point in points], "raw"),
            _line([place(*point) for point in means], "mean"),
            *([_line([place(*look) for look in looks], "held")] if looks else []),
            *(_dot(place(*look), "held") for look in looks),
        ),
    )


def survival(curves: Mapping[str, Sequence[float]], reached: Sequence[int], title: str) -> Markup:
    """Shares after each turn, from 100 % before the first; below, how many reached some of the turns."""
    frame = Frame(len(reached), HEIGHT + LINE)
    every = math.ceil(len(reached) / MOST_LABELS)
    labelled = range(every, len(reached) + 1, every)
    return frame.chart(
        title,
        *(frame.level(share, f"{share:.0%}") for share in (0, 0.5, 1)),
        frame.below(0, "turn"),
        frame.below(0, "reach it", line=2),
        *(frame.below(turn, str(turn)) for turn in labelled),
        *(frame.below(turn, str(reached[turn - 1]), line=2) for turn in labelled),
        *(
            _line([frame.place(turn, share) for turn, share in enumerate([1.0, *shares])], name)
            for name, shares in curves.items()
        ),
    )


@dataclass(frozen=True)
class Frame:
    """Where things stand in a chart: x from 0 to `end`, y from 0 to 1."""

    end: float
    height: int

    @property
    def floor(self) -> float:
        """The height of y = 0."""
        return HEIGHT - BOTTOM

    def place(self, x: float, y: float) -> Point:
        """A point of the drawing."""
        return LEFT + (WIDTH - LEFT - RIGHT) * x / self.end, self.floor - (self.floor - TOP) * y

    def level(self, y: float, label: str) -> Markup:
        """A line across, with what it stands for."""
        _, height = self.place(0, y)
        line = tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_n(height), y2=_n(height), class_="grid")
        return join(line, tag("text", label, x=LEFT - 5, y=_n(height + 4), text_anchor="end"))

    def below(self, x: float, label: str, anchor: str = "middle", *, line: int = 1) -> Markup:
        """A label below the axis."""
        place, _ = self.place(x, 0)
        return tag("text", label, x=_n(place), y=_n(self.floor + LINE * line), text_anchor=anchor)

    def chart(self, title: str, *content: Markup) -> Markup:
        """The drawing itself."""
        return tag(
            "svg",
            tag("title", title),
            *content,
            class_="chart",
            viewBox=f"0 0 {WIDTH} {self.height}",
            role="img",
        )


def _line(points: Sequence[Point], kind: str) -> Markup:
    return tag("polyline", points=" ".join(f"{_n(x)},{_n(y)}" for x, y in points), class_=kind)


def _dot(point: Point, kind: str) -> Markup:
    return tag("circle", cx=_n(point[0]), cy=_n(point[1]), r=2.5, class_=kind)


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
