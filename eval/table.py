"""The gates as tables in the terminal, and the words that the report shares with them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.verdicts import IMPROVES, INCOMPLETE, WORSE
from eval import stats
from eval.outcomes import (
    FORMAL,
    GENERAL,
    HELD_OUT_SKILL,
    LIVE,
    LIVE_SERVERS,
    LIVE_SKILLS,
    NEAR_MISS,
    REPLAY,
    SKILLS,
    STEPS,
    THINKING_OFF,
    TRAINED,
    Outcomes,
)
from eval.stats import Rate, Statistic
from eval.verdict import SOURCES

GATES = {
    "tool_calls": "tool calls",
    "skills": "skills",
    "replay": "what the base knew",
    "live": "live tasks",
    "formality": "formal answers",
    "general": "general questions",
    "loss": "loss",
}
TITLES = {
    "tool_calls": {
        "mcp_calls": "tool calls",
        THINKING_OFF: "tool calls, thinking off",
        "synonyms": "tool calls, unseen synonyms",
        "delegation": "work given to a subagent",
        "no_tool": "no call when none is due",
        "recovery": "after a tool's error",
    },
    "skills": {
        SKILLS: "skills",
        HELD_OUT_SKILL: "skills, held-out skill",
        NEAR_MISS: "no skill when none is due",
    },
    "replay": {REPLAY: "what the base knew"},
    "live": {
        LIVE: "live tasks",
        LIVE_SERVERS: "live tasks, servers",
        LIVE_SKILLS: "live tasks, skills",
    },
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
        NEAR_MISS: "loss, no skill due",
        REPLAY: "loss, what the base knew",
        FORMAL: "loss, answers with usted",
    },
}
"""What the rows of each gate are called."""
MOST_RULES = 8
WIDTH = 23
"""Of a statistic, or of a gain."""

Judged = Mapping[str, Any]
"""What `verdict.judge` returns."""


def rows(judged: Judged, checkpoints: Sequence[str]) -> list[str]:
    """A line a row: its statistic for each checkpoint, and what the last gains over the first.

    A checkpoint that has not the row shows a dash. Gains are in points of a rate or nats of a loss, more is
    better in both; beside them the share that is kept of the second checkpoint's gain, where there are three.
    """
    three = len(checkpoints) > 2
    header = _cells(checkpoints, f"{checkpoints[-1]} gains")
    lines = [f"{'held-out rows':<27} {'n':>4}{header}{'  kept' if three else ''}"]
    for gate, titles in TITLES.items():
        for row, title in titles.items():
            found = [cell(judged, gate, name, row) for name in checkpoints]
            last = found[-1]
            if last is not None:
                compared = judged["gates"][gate]["compared"].get(row)
                share = judged["kept"].get(gate, {}).get(row)
                cells = _cells(("-" if one is None else str(one) for one in found), _gain(compared, last))
                kept = f"  {'' if share is None else f'{share:.0%}':>4}" if three else ""
                lines.append(f"{title:<27} {last.n:>4}{cells}{kept}  {_word(compared)}")
    return lines


def measured(found: Outcomes) -> list[str]:
    """A line a row of one checkpoint alone: its statistic."""
    lines = [f"{'held-out rows':<27} {'n':>4}"]
    for gate, titles in TITLES.items():
        own = found.get(SOURCES[gate].kind, {})
        for row, title in titles.items():
            if row in own:
                one = stats.describe(list(own[row].values()))
                lines.append(f"{title:<27} {one.n:>4}  {one}")
    return lines


def _cells(texts: Iterable[str], *more: str) -> str:
    return "".join(f"  {text:<{WIDTH}}" for text in (*texts, *more))


def _word(compared: Mapping[str, Any] | None) -> str:
    return compared["verdict"] if compared else INCOMPLETE


def _gain(compared: Mapping[str, Any] | None, of: Statistic) -> str:
    if compared is None:
        return "-"
    scale, digits = (100, 1) if isinstance(of, Rate) else (1, 3)
    value, low, high = (f"{scale * compared[key]:+.{digits}f}" for key in ("gain", "low", "high"))
    return f"{value:>6} [{low}, {high}]"


def gates(judged: Judged) -> list[str]:
    """A line a gate: its verdict, the rows that decide and guard it, what it may lose, and its goal.

    `no worse` tells whether it is shown, beyond chance, that the deciding row has not lost more than it may.
    """
    header = f"{'gate':<19} {'verdict':<11} {'decided by':<22} {'guarded by':<36}"
    lines = [f"{header} {'may lose':>8}  {'no worse':<9}  goal"]
    for gate, found in judged["gates"].items():
        titles, compared = TITLES[gate], found["compared"]
        decides = compared.get(found["decides"])
        shown = "shown" if decides and decides["no_worse"] else "not shown"
        guards = ", ".join(f"{titles[row]}: {_word(compared.get(row))}" for row in found["guards"])
        lines.append(
            f"{GATES[gate]:<19} {found['verdict']:<11} {titles[found['decides']]:<22} {guards:<36} "
            f"{found['delta']:>8g}  {shown:<9}  "
            f"{found['threshold']:g} {'reached' if found['reaches'] else 'not reached'}"
        )
    return lines


def rules(judged: Judged) -> list[str]:
    """The rules that moved beyond chance, all judged together: the worse ones first, not all of many."""
    moved = {name: one for name, one in judged["rules"].items() if one["moved"] in (WORSE, IMPROVES)}
    if not moved:
        return []
    worse = [name for name, one in moved.items() if one["moved"] == WORSE]
    better, of = len(moved) - len(worse), len(judged["rules"])
    lines = [f"of {of} rules {better} improve and {len(worse)} are worse (p by Holm for all of them)"]
    first = sorted(moved, key=lambda name: (name not in worse, moved[name]["adjusted_p"], name))
    for name in first[:MOST_RULES]:
        one = moved[name]
        base, last = (stats.from_json(one[key]) for key in ("base", "last"))
        lines.append(
            f"{name:<50}  {base!s:<{WIDTH}}  {last!s:<{WIDTH}}  {one['moved']:<9}  p {one['adjusted_p']:.2g}"
        )
    return lines


def faults(counts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How far turns come in which a call is due, and which faults how many have, a line each.

    `counts` are those of `outcomes.counts` by checkpoint. Faults that none of them has are left out.
    """
    found = {name: {**one["steps"], **one["faults"]} for name, one in counts.items()}
    happened = {fault for one in counts.values() for fault, rate in one["faults"].items() if rate["k"]}
    *_, last = found.values()
    lines = [f"{'turns with calls':<27} {'n':>4}{_cells(counts)}"]
    for row in (*STEPS, *sorted(happened)):
        if row in last:
            cells = _cells(str(stats.from_json(one[row])) if row in one else "-" for one in found.values())
            lines.append(f"{row:<27} {last[row]['n']:>4}{cells}")
    return lines if len(lines) > 1 else []


def kept(judged: Judged) -> list[str]:
    """How much of merged's gain over the base NVFP4 keeps, a line a gate whose deciding row has one."""
    shares = {gate: one.get(judged["gates"][gate]["decides"]) for gate, one in judged["kept"].items()}
    return [
        f"nvfp4 keeps {share:.0%} of the gain in {GATES[gate]}"
        for gate, share in shares.items()
        if share is not None
    ]


def cell(judged: Judged, gate: str, checkpoint: str, row: str) -> Statistic | None:
    """One statistic of a verdict, or None where there is none."""
    found = judged["gates"].get(gate, {}).get(checkpoint, {}).get(row)
    return None if found is None else stats.from_json(found)
