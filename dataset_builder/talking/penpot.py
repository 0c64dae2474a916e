"""What a schema cannot tell of Penpot: JavaScript for `execute_code`, names for `penpot_api_info`."""

import functools
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_builder.drawing import texts, values
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking.requests import fill, read_yaml, slots_in

FILE = Path(__file__).with_suffix(".yaml")
TYPES = (
    "Board Rectangle Ellipse Path Text Group Boolean SvgRaw Image Fill Stroke Shadow Blur Color "
    "LibraryColor LibraryTypography LibraryComponent Library Page File Viewport User Interaction "
    "Trigger Flow FlexLayout GridLayout CommonLayout LayoutChildProperties LayoutCellProperties Penpot "
    "Export Bounds Point Guide RulerGuide Track TokenCatalog TokenSet TokenTheme Token VariantContainer "
    "Comment CommentThread FileVersion Shape "
).split()
MEMBERS = (
    "createBoard createRectangle createText fills strokes resize rotate clone remove appendChild "
    "children name selection root currentPage currentFile growType fontSize fontFamily borderRadius "
    "shadows blur opacity visible constraintsHorizontal layoutChild addFlexLayout addGridLayout export "
    "interactions bringToFront "
).split()
OVERVIEW = (
    "# Penpot High-Level Overview\n\nThe code of `execute_code` runs inside the plugin: `penpot` is the API, "
    "`penpotUtils` has helpers, `storage` lives on between calls. What the code returns is the answer."
)
"""What `high_level_overview` answers where the dump does not carry the server's own text."""


TOOLS = {"execute_code", "high_level_overview"}
"""Tools by which a Penpot server is known, whatever the config calls it."""


def servers(tools: Iterable[ToolSchema]) -> list[str]:
    """The Penpot servers among those that the tools are of."""
    names: dict[str, set[str]] = {}
    for tool in tools:
        names.setdefault(tool.server, set()).add(tool.name)
    return [server for server, own in names.items() if own >= TOOLS]


@dataclass(frozen=True)
class Task:
    """One thing that a user wants in a design: texts with {slot}s."""

    id: str
    wordings: dict[str, dict[str, tuple[str, ...]]]
    """By language (`es`, `en`), then by split."""
    code: str
    result: Any
    """What the code returns, as JSON."""
    types: tuple[str, ...]
    """Types of the API that it uses, one or more for each side of the split."""
    changes: bool
    """Whether it changes the design."""
    only: str | None
    """The rule of the server without which it is not taught."""


def _named(rng: random.Random) -> str:
    return f"{rng.choice(values.PARTS)} {values.KINDS['word'](rng)}"


SLOTS: dict[str, Callable[[random.Random], Any]] = {
    "name": _named,
    "text": lambda rng: f"{rng.choice(values.VERBS).capitalize()} {rng.choice(values.AREAS)} hoy",
    "key": lambda rng: f"{rng.choice(values.PARTS)}{values.KINDS['word'](rng).capitalize()}",
    "color": lambda rng: "#" + "".join(rng.choice("0123456789ABCDEF") for _ in range(6)),
    "w": lambda rng: rng.randint(12, 90) * 8,
    "h": lambda rng: rng.randint(4, 60) * 8,
    "x": lambda rng: rng.randint(1, 150) * 8,
    "y": lambda rng: rng.randint(1, 120) * 8,
    "size": lambda rng: rng.randint(10, 48),
    "line": lambda rng: rng.randint(1, 16),
    "id": texts.uuid,
    "id2": texts.uuid,
}  # fmt: skip


@functools.cache
def tasks() -> tuple[Task, ...]:
    """The tasks of penpot.yaml."""
    return tuple(
        Task(
            entry["id"],
            {
                tongue: {split: tuple(texts) for split, texts in entry[tongue].items()}
                for tongue in ("es", "en")
            },
            entry["code"],
            entry["result"],
            tuple(entry["types"]),
            entry["changes"],
            entry.get("only"),
        )
        for entry in read_yaml(FILE)
    )


def drawn(task: Task, rng: random.Random, split: str) -> dict[str, Any]:
    """A value of the split for every slot of a task; the name is never the text."""
    wordings = [one for by_split in task.wordings.values() for some in by_split.values() for one in some]
    found = {}
    for slot in sorted(slots_in([task.code, *wordings]) | _slots_of_result(task.result)):
        value = SLOTS[slot](rng)
        while values.side(value) != split:
            value = SLOTS[slot](rng)
        found[slot] = value
    return found


def code(rng: random.Random) -> str:
    """JavaScript for `execute_code`, whatever it is for."""
    task = rng.choice([task for task in tasks() if task.only is None])
    return fill(task.code, drawn(task, rng, rng.choice(values.SPLITS)))


def answer(task: Task, slots: dict[str, Any]) -> str:
    """What `execute_code` gives back for a task: the value returned, and what was logged apart from it."""
    return json.dumps({"result": _filled(task.result, slots), "log": ""}, ensure_ascii=False)


def _filled(shape: Any, slots: dict[str, Any]) -> Any:
    if isinstance(shape, dict):
        return {key: _filled(part, slots) for key, part in shape.items()}
    return [_filled(part, slots) for part in shape] if isinstance(shape, list) else fill(shape, slots)


def _slots_of_result(shape: Any) -> set[str]:
    parts = shape.values() if isinstance(shape, dict) else shape if isinstance(shape, list) else ()
    return slots_in(shape) if isinstance(shape, str) else set().union(*map(_slots_of_result, parts))


def api_info(kind: str, member: str | None) -> str:
    """What `penpot_api_info` tells of a type, or of one member."""
    if member:
        return f"{kind}.{member}\n\nMember of `{kind}` in the Penpot plugin API."
    return f"interface {kind}\n\nType of the Penpot plugin API. Members: {', '.join(MEMBERS[:8])}."
