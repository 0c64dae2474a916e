"""The lab's report for people: Markdown, and one HTML file with nothing fetched that a phone can show."""

import base64
import html
import statistics
from collections.abc import Sequence
from typing import Any

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { margin: 0 auto; padding: 1rem 1rem 3rem; max-width: 52rem; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
div { overflow-x: auto; } img { max-width: 100%; background: #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
"""
Table = tuple[str, list[str], list[list[str]]]
"""Title, header, rows."""


def tables(found: dict[str, Any]) -> list[Table]:
    """Every table of the report, as text."""
    bars = [
        [
            "reached" if b["reached"] else "NOT reached",
            b["bar"],
            *(_n(b[k]) for k in ("min", "median", "max")),
        ]
        for b in found["bars"]
    ]
    names = list(dict.fromkeys(name for values in found["methods"].values() for name in values))
    spread = [[name, *(_spread(values.get(name)) for values in found["methods"].values())] for name in names]
    seed = found["seeds"][0]
    gaps = found["preference"]
    preference = [
        [verb, *(_n(gaps[model][tense][verb]) for tense in gaps["base"] for model in ("base", "adapted"))]
        for verb in gaps["base"]["past"]
    ]
    answers = list(found["answers"].values())
    told = [
        [first["prompt"], first["right"], first["base"], *(rows[i]["adapted"] for rows in answers)]
        for i, first in enumerate(answers[0])
    ]
    return [
        ("Bars", ["", "bar", "min", "median", "max"], bars),
        ("Figures: min / median / max over the seeds", ["figure", *found["methods"]], spread),
        (
            "Memory while training, without activations",
            ["way", "parameters trained", "bytes, formula", "bytes, measured"],
            _memory(found),
        ),
        (
            f"log p(right form) - log p(-ed form), in nats, seed {seed}",
            ["verb", "past: base", "past: LoRA", "participle: base", "participle: LoRA"],
            preference,
        ),
        (f"What they write, seed {seed}", ["prompt", "right", "base", *found["answers"]], told),
        (
            "Seconds a seed, one thread each",
            ["stage", "min / median / max", "peak MB"],
            [[name, _spread(s["seconds"]), str(s["peak_mb"])] for name, s in found["stages"].items()],
        ),
    ]


def markdown(found: dict[str, Any]) -> str:
    """The report as Markdown."""
    parts = [f"# {_title(found)}\n"]
    for title, header, rows in tables(found):
        lines = [header, ["---"] * len(header), *rows]
        parts.append(f"## {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    return "\n".join(parts)


def render(found: dict[str, Any], plot: bytes | None) -> str:
    """The report as one HTML file; `plot` is the ablation's PNG."""
    body = [f"<h1>{html.escape(_title(found))}</h1>"]
    for title, header, rows in tables(found):
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        lines = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        body.append(f"<h2>{html.escape(title)}</h2><div><table><tr>{head}</tr>{lines}</table></div>")
    if plot is not None:
        image = base64.b64encode(plot).decode()
        body.append(
            "<h2>Rank</h2><img alt='gain, control loss, drift and adapter size against rank' "
            f"src='data:image/png;base64,{image}'>"
        )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(_title(found))}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def bar_line(bar: dict[str, Any]) -> str:
    """One bar as a line of text."""
    values = " / ".join(_n(bar[key]) for key in ("min", "median", "max"))
    return f"{_reached(bar):<11}  {bar['bar']}: {values}"


def _reached(bar: dict[str, Any]) -> str:
    return "reached" if bar["reached"] else "NOT reached"


def _title(found: dict[str, Any]) -> str:
    return f"MiniGPT lab: {found['run']}, rank {found['rank']}, seeds {' '.join(map(str, found['seeds']))}"


def _memory(found: dict[str, Any]) -> list[list[str]]:
    lora = found["memory"]["lora"]
    rows = [("full fine-tuning", lora["parameters"], lora["full"])]
    for method, sizes in found["memory"].items():
        if method != "no-replay":
            rows.append((method, sizes["trained"]["measured"], sizes["adapter"]))
    return [[way, f"{n:,}", f"{held['formula']:,}", f"{held['measured']:,}"] for way, n, held in rows]


def _spread(values: Sequence[float] | None) -> str:
    if not values:
        return ""
    return " / ".join(_n(value) for value in (min(values), statistics.median(values), max(values)))


def _n(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
