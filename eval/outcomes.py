"""What a checkpoint's samples come to: kinds, rows, and what each held-out row of the dataset came out as."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from core import rules
from eval import stats
from eval.gates import tool_calls

Sample = dict[str, Any]
"""One row and one measurement of it: `kind`, `id`, `bucket`, `skill`, and what was found."""
Results = dict[str, bool | float]
"""What came out by the sample's id: whether it is right, or its loss in nats a token."""
Outcomes = dict[str, dict[str, Results]]
"""The results of one checkpoint by kind and row."""

SKILLS, REPLAY, FORMAL, GENERAL, NEAR_MISS = "skills", "replay", "formal", "general", "near_miss"
ROWS = {
    "mcp_calls": ("mcp_calls", "mcp", "penpot"),
    "synonyms": ("synonyms",),
    "delegation": ("delegation",),
    SKILLS: ("skills", "adherence"),
    NEAR_MISS: ("near_miss",),
    "no_tool": ("no_tool", "negatives"),
    "recovery": ("recovery", "errors"),
    REPLAY: ("replay",),
    FORMAL: ("formal",),
    GENERAL: ("general",),
}
"""The rows of a table, and the dataset's buckets that count there."""
ROW_OF = {bucket: row for row, buckets in ROWS.items() for bucket in buckets}
TRAINED = "trained"
"""The loss of all buckets together but REPLAY and GENERAL, which are of what the base knew."""
KNOWN = (*ROWS[REPLAY], *ROWS[GENERAL])
THINKING_OFF = "thinking_off"
"""The row of the calls that were asked for once more, without thinking."""
HELD_OUT_SKILL = "held_out_skill"
"""The row of the skills that training never showed."""
LIVE, LIVE_SERVERS, LIVE_SKILLS = "live", "live_servers", "live_skills"

STEPS = {
    "called": {tool_calls.NO_CALL, tool_calls.DEAD, tool_calls.LOST},
    "right tools": {tool_calls.NUMBER, tool_calls.TOOL},
    "valid": {tool_calls.INVALID},
    "right values": {tool_calls.VALUES},
}
"""How far a turn comes in which a call is due, and the faults that end it there."""
ANYWHERE = (tool_calls.DEAD, tool_calls.LOST)
"""Faults of any turn; the others are only of turns where a call is due, or only where none is."""

KINDS = ("loss", "tool_calls", "skills", "live", "formality", "rules", "by_skill", "steps", "faults")


def outcomes(samples: Iterable[Sample], held_out: Sequence[str]) -> Outcomes:
    """The results by kind and row, the same in any order of samples; `held_out` are skills.

    `rules` has a row for each `<skill>/<rule>` with the rollouts that it applies to, `by_skill` one for each
    skill, `steps` how far turns come in which a call is due, and `faults` what is wrong with how many.
    """
    found: Outcomes = {kind: {} for kind in KINDS}
    for sample in samples:
        for kind, row, result in _places(sample, held_out):
            own = found[kind].setdefault(row, {})
            assert sample["id"] not in own, f"{kind}/{row}: two samples {sample['id']}"
            own[sample["id"]] = result
    return {kind: dict(sorted(rows.items())) for kind, rows in found.items()}


def counts(found: Outcomes) -> dict[str, dict[str, Any]]:
    """Losses and rates by kind and row, as JSON."""
    return {
        kind: {row: asdict(stats.describe(list(results.values()))) for row, results in rows.items()}
        for kind, rows in found.items()
    }


def _places(sample: Sample, held_out: Sequence[str]) -> Iterator[tuple[str, str, bool | float]]:
    """Where a sample counts, and as what."""
    kind, bucket, skill = sample["kind"], sample["bucket"], sample["skill"]
    if kind == "loss":
        yield "loss", ROW_OF[bucket], sample["loss"]
        if bucket not in KNOWN:
            yield "loss", TRAINED, sample["loss"]
        return
    right = sample["right"]
    match kind:
        case "tool_calls":
            yield "tool_calls", ROW_OF[bucket], right
            yield from _calls(sample)
        case "thinking_off":
            yield "tool_calls", THINKING_OFF, right
        case "skills":
            yield "skills", SKILLS, right
            if skill in held_out:
                yield "skills", HELD_OUT_SKILL, right
            yield "by_skill", skill, right
            for one in sample["findings"]:
                if one["verdict"] in (rules.HOLDS, rules.BROKEN):
                    yield "rules", f"{skill}/{one['rule']}", one["verdict"] == rules.HOLDS
        case "near_miss":
            yield "skills", NEAR_MISS, right
        case "live":
            yield "live", LIVE, right
            yield "live", LIVE_SKILLS if skill else LIVE_SERVERS, right
        case "formality":
            yield "formality", FORMAL, right
        case _:
            raise ValueError(f"sample {sample['id']}: no such kind as {kind}")


def _calls(sample: Sample) -> Iterator[tuple[str, str, bool]]:
    fault, due = sample["fault"], sample["due"]
    if due:
        failed = False
        for step, ended_by in STEPS.items():
            failed = failed or fault in ended_by
            yield "steps", step, not failed
    of_due = sorted({one for ended_by in STEPS.values() for one in ended_by} - {*ANYWHERE})
    for one in (*ANYWHERE, *(of_due if due else [tool_calls.NEEDLESS])):
        yield "faults", one, fault == one
