"""The dataset as one HTML file: its figures, what was left out and why, and the examples to leaf through.

Nothing is fetched; a script of our own (page.js) filters the examples that the file carries.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core import markup
from core.chat import Message, Row
from core.markup import Markup, tag
from core.render import trained_messages
from dataset_builder.verifying.checks import Drop, calls, shown

STYLE, SCRIPT = (Path(__file__).with_name(f"page.{kind}") for kind in ("css", "js"))
MOST_BYTES = 10_000_000
"""Of examples in the file; beyond it a sample stands for them."""
MOST_LINES = 200
"""Of a table of things left out."""
WIDTH, HEIGHT, LEFT, BOTTOM = 360, 140, 46, 24
MOST_LABELS = 6

Figures = Mapping[str, Any]


def render(
    profile: str, figures: Figures, train: Sequence[Row], held_out: Sequence[Row], dropped: Sequence[Drop]
) -> str:
    """The whole document; `figures` as figures.py counts them."""
    title = f"Forja: dataset of {profile}"
    return markup.document(
        title,
        STYLE.read_text(encoding="utf-8"),
        tag("h1", title),
        _summary(figures),
        markup.section("Rows", _rows(figures)),
        markup.section("Servers, tools, skills", *_sources(figures)),
        markup.section("Rules", *_rules(figures["rules"])),
        markup.section("Tokens of a sample", _histogram(figures["lengths"])),
        markup.section("Left out", *_left_out(figures["dropped"], dropped)),
        markup.section("Examples", *_browser([*train, *held_out])),
    )


def _summary(figures: Figures) -> Markup:
    tokens = figures["tokens"]["train"]
    return markup.facts(
        {
            "rows to train on": f"{sum(figures['train'].values()):,}",
            "rows held out": f"{sum(figures['eval'].values()):,}",
            "left out": f"{sum(figures['dropped'].values()):,}",
            "samples": f"{tokens['samples']:,}",
            "tokens": f"{tokens['all']:,}",
            "of them trained": _share(tokens),
            "median sample": f"{tokens['median']:,} tokens",
            "longest sample": f"{tokens['longest']:,} tokens",
            "windows of long rows": f"{figures['windows']:,}",
        }
    )


def _rows(figures: Figures) -> Markup:
    header = ["bucket", "train", "held out", "tokens", "trained", "longest"]
    rows = []
    for bucket in figures["train"] | figures["eval"]:
        tokens = figures["tokens_by_bucket"].get(bucket)
        sides = [f"{figures[side].get(bucket, 0):,}" for side in ("train", "eval")]
        size = [f"{tokens['all']:,}", _share(tokens), f"{tokens['longest']:,}"] if tokens else ["–"] * 3
        rows.append([bucket, *sides, *size])
        kinds = {name: n for name, n in figures["kinds"].items() if name.split(": ")[0] == bucket}
        if len(kinds) > 1:
            rows += [[f"– {name.split(': ')[1]}", *_sides(n), "", "", ""] for name, n in kinds.items()]
    return markup.plain_table(header, rows)


def _sources(figures: Figures) -> list[Markup]:
    parts = []
    for what in ("servers", "tools", "skills"):
        rows = [[name, *_sides(found)] for name, found in figures[what].items()]
        bare = sum(not any(found.values()) for found in figures[what].values())
        summary = tag("summary", f"{len(rows)} {what}, {bare} of them without a row")
        parts.append(tag("details", summary, markup.plain_table([what, "train", "held out"], rows)))
    return parts


def _rules(found: Mapping[str, Mapping[str, Any]]) -> list[Markup]:
    if not found:
        return [tag("p", "No skill or server has rules.")]
    bare = [name for name, rule in found.items() if not rule["train"] and not rule["held_out"]]
    said = f"{len(found)} rules; without an example to train on: {', '.join(bare) or 'none'}."
    rows = [
        [name, rule["kind"], "held out" if rule["held_out"] else f"{rule['train']:,}", f"{rule['eval']:,}"]
        for name, rule in found.items()
    ]
    table = markup.plain_table(["rule", "kind", "train", "held out"], rows)
    return [
        tag("p", said),
        tag("details", tag("summary", "Rows that each rule applies to, and holds in"), table),
    ]


def _histogram(lengths: Sequence[Sequence[int]]) -> Markup:
    if not lengths:
        return tag("p", "No row.")
    top = max(count for *_, count in lengths)
    step = (WIDTH - LEFT - 12) / len(lengths)
    bars = []
    for number, (start, end, count) in enumerate(lengths):
        height, x = (HEIGHT - BOTTOM - 10) * count / top, LEFT + number * step
        bar = {"x": round(x + 1, 1), "width": round(step - 2, 1)}
        bar |= {"y": round(HEIGHT - BOTTOM - height, 1), "height": round(height, 1)}
        bars.append(
            tag("rect", tag("title", f"{start:,} to {end - 1:,} tokens: {count:,}"), class_="bar", **bar)
        )
        if number % math.ceil(len(lengths) / MOST_LABELS) == 0:
            bars.append(tag("text", f"{start:,}", x=round(x, 1), y=HEIGHT - 8))
    bars.append(tag("text", f"{top:,}", x=LEFT - 6, y=18, text_anchor="end"))
    return tag(
        "svg",
        tag("title", f"Samples by tokens, {lengths[0][0]:,} to {lengths[-1][1]:,}"),
        *bars,
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
    )


def _left_out(counted: Mapping[str, int], dropped: Sequence[Drop]) -> list[Markup]:
    if not counted:
        return [tag("p", "Nothing.")]
    reasons = [[*name.split(": ", 2), f"{count:,}"] for name, count in counted.items()]
    twins = [[drop.row, drop.twin] for drop in dropped if drop.twin]
    parts = [*_clipped(["bucket", "step", "reason", "rows"], reasons)]
    if twins:
        parts += [tag("p", "Near-duplicates:"), *_clipped(["row", "repeats"], twins)]
    return parts


def _clipped(header: list[str], rows: list[list[str]]) -> list[Markup]:
    more = f"And {len(rows) - MOST_LINES:,} more."
    table = markup.plain_table(header, rows[:MOST_LINES])
    return [table, *([tag("p", more, class_="soft")] if len(rows) > MOST_LINES else [])]


def _browser(rows: Sequence[Row]) -> list[Markup]:
    systems: dict[str, int] = {}
    examples = [json.dumps(_example(row, systems), ensure_ascii=False) for row in rows]
    kept = _sample(examples)
    said = "All rows." if len(kept) == len(rows) else f"{len(kept):,} of {len(rows):,} rows, drawn by chance."
    data = f'{{"systems": {json.dumps(list(systems), ensure_ascii=False)}, "rows": [{",".join(kept)}]}}'
    return [
        tag("p", f"{said} What is trained is marked so: ", tag("span", "trained", class_="trained")),
        tag("div", id="filters"),
        tag("div", id="examples"),
        tag("noscript", "Leafing through the examples takes JavaScript."),
        # `<` would let a text end the script element.
        tag("script", Markup(data.replace("<", "\\u003c")), id="data", type="application/json"),
        tag("script", Markup(SCRIPT.read_text(encoding="utf-8"))),
    ]


def _sample(examples: list[str]) -> list[str]:
    """All of them, or as many as fit, by chance and in their order."""
    order = list(range(len(examples)))
    random.Random(0).shuffle(order)
    room, chosen = MOST_BYTES, []
    for number in order:
        room -= len(examples[number].encode())
        if room < 0:
            break
        chosen.append(number)
    return [examples[number] for number in sorted(chosen)]


def _example(row: Row, systems: dict[str, int]) -> dict[str, Any]:
    """A row as page.js shows it; system texts, which many rows share, by their number."""
    trained = set(trained_messages(row))
    called = [call.name for message in row.messages for call in calls(message)]
    return {
        "id": row.id,
        "side": row.split,
        "bucket": row.bucket,
        "about": [one for one in (row.meta.get("kind"), row.server, row.skill) if one],
        "called": list(dict.fromkeys(called)),
        "shown": shown(row),
        "tokens": row.meta["tokens"],
        "messages": [_message(m, i in trained, systems) for i, m in enumerate(row.messages)],
    }


def _message(message: Message, trained: bool, systems: dict[str, int]) -> dict[str, Any]:
    content = message.get("content", "")
    if message["role"] == "system":
        return {"role": "system", "system": systems.setdefault(content, len(systems))}
    made = {"role": message["role"], "trained": trained, "text": content}
    think, called = message.get("reasoning_content"), [[c.name, c.arguments] for c in calls(message)]
    return made | ({"think": think} if think else {}) | ({"calls": called} if called else {})


def _sides(found: Mapping[str, int]) -> list[str]:
    return [f"{found['train']:,}", f"{found['eval']:,}"]


def _share(tokens: Mapping[str, int]) -> str:
    return f"{tokens['labelled'] / max(tokens['all'], 1):.1%}"
