"""The gates as tables in the terminal, and the words that the report shares with them."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval import stats, verdict
from eval.measure import FORMAL, GENERAL, HELD_OUT_SKILL, REPLAY, SKILLS, TRAINED
from eval.stats import Statistic

GATES = {
    "tool_calls": "tool calls",
    "skills": "skills",
    "replay": "what the base knew",
    "formality": "formal answers",
    "general": "general questions",
    "loss": "loss",
}
TITLES = {
    "tool_calls": {
        "mcp_calls": "tool calls",
        "synonyms": "tool calls, unseen synonyms",
        "delegation": "work given to a subagent",
        "no_tool": "no call when none is due",
        "recovery": "after a tool's error",
    },
    "skills": {SKILLS: "skills", HELD_OUT_SKILL: "skills, held-out skill"},
    "replay": {REPLAY: "what the base knew"},
    "formality": {FORMAL: "answers with usted"},
    "general": {GENERAL: "loss, general questions"},
    "loss": {
        TRAINED: "loss, trained tasks",
        "mcp_calls": "loss, tool calls",
        "synonyms": "loss, unseen synonyms",
        "delegation": "loss, given to a subagent",
        "no_tool": "loss, no call due",
        "recovery": "loss, after a tool's error",
        SKILLS: "loss, skills",
        REPLAY: "loss, what the base knew",
        FORMAL: "loss, answers with usted",
    },
}
"""What the rows of each gate are called."""
WIDTH = 24

Judged = Mapping[str, Any]
"""What `verdict.judge` returns."""


def rows(judged: Judged, checkpoints: Sequence[str]) -> list[str]:
    """A line a row: its statistic for each checkpoint, and how the last compares with the first.

    A checkpoint that has not the row shows a dash.
    """
    header = "".join(f"  {name:<{WIDTH}}" for name in checkpoints)
    lines = [f"{'held-out rows':<28} {'n':>4}{header}"]
    for gate, titles in TITLES.items():
        for row, title in titles.items():
            cells = [cell(judged, gate, name, row) for name in checkpoints]
            last = cells[-1]
            if last is not None:
                texts = "".join(f"  {'-' if one is None else str(one):<{WIDTH}}" for one in cells)
                moved = verdict.compare(cells[0], last, judged["gates"][gate]["delta"])
                lines.append(f"{title:<28} {last.n:>4}{texts}  {moved}")
    return lines


def gates(judged: Judged) -> list[str]:
    """A line a gate: its verdict, the row that decides, the allowed loss, and whether its goal is reached."""
    lines = [f"{'gate':<19} {'verdict':<11} {'decided by':<27} {'may lose':>8}  goal"]
    for gate, found in judged["gates"].items():
        goal = f"{found['threshold']:g} {'reached' if found['reaches'] else 'not reached'}"
        title = TITLES[gate][found["decides"]]
        lines.append(f"{GATES[gate]:<19} {found['verdict']:<11} {title:<27} {found['delta']:>8g}  {goal}")
    return lines


def kept(judged: Judged, merged: str, quantized: str) -> list[str]:
    """How much of the gain over the base the quantised checkpoint keeps, a line a gate of rates."""
    lines = []
    for gate in ("tool_calls", "skills"):
        if gate in judged["gates"]:
            share = share_kept(judged, gate, merged, quantized)
            if share is not None:
                lines.append(f"{quantized} keeps {share:.0%} of the gain in {GATES[gate]}")
    return lines


def share_kept(judged: Judged, gate: str, merged: str, quantized: str) -> float | None:
    """(quantised - base) / (merged - base) on the row that decides; None where merged gained nothing."""
    row = judged["gates"][gate]["decides"]
    base, middle, last = (cell(judged, gate, name, row) for name in ("base", merged, quantized))
    if base is None or middle is None or last is None:
        return None
    whole = stats.gain(base, middle).value
    return stats.gain(base, last).value / whole if whole > 0 else None


def cell(judged: Judged, gate: str, checkpoint: str, row: str) -> Statistic | None:
    """One statistic of a verdict, or None where there is none."""
    found = judged["gates"].get(gate, {}).get(checkpoint, {}).get(row)
    return None if found is None else stats.from_json(found)
