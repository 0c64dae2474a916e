"""What a dataset consists of, in figures: the manifest's counts, and all that its page shows as a number."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core import rules
from core.chat import Row
from core.render import trained_messages
from dataset_builder.verifying.checks import Drop, calls, shown
from dataset_builder.verifying.rulebook import Rulebook

SIDES = ("train", "eval")
BINS = 12
"""About how many bars the histogram of lengths has."""


def figures(
    train: Sequence[Row],
    held_out: Sequence[Row],
    dropped: Sequence[Drop],
    rules_of: Rulebook,
    held_out_skills: Sequence[str] = (),
) -> dict[str, Any]:
    """JSON types alone. Counts by side are rows; `tools` has the rows that train a call of the tool.

    `rules` has for every rule the rows that it applies to and that hold it; `lengths` the samples by tokens,
    as [from, below, count].
    """
    sides = {"train": train, "eval": held_out}
    return {
        **{side: dict(Counter(row.bucket for row in rows)) for side, rows in sides.items()},
        "dropped": dict(Counter(f"{d.bucket}: {d.step}: {d.reason}" for d in dropped)),
        "kinds": _by_side(sides, lambda row: [f"{row.bucket}: {row.meta.get('kind', 'any')}"]),
        "servers": _by_side(
            sides, lambda row: {name.split("__")[1] for name in _called(row) if "__" in name}
        ),
        "tools": _unused(sides) | _by_side(sides, _called),
        "skills": _by_side(sides, lambda row: [row.skill] if row.skill else []),
        "rules": {
            f"{name}/{rule.id}": {
                "kind": rule.kind,
                "held_out": name in held_out_skills,
                **{
                    side: sum(_holds(row, f"{name}/{rule.id}") for row in rows)
                    for side, rows in sides.items()
                },
            }
            for name, own in sorted(rules_of.items())
            for rule in own
            if rule.kind != rules.WAIVED
        },
        "windows": sum("window" in row.meta for row in train),
        "tokens": {side: _tokens(rows) for side, rows in sides.items()},
        "tokens_by_bucket": {
            bucket: _tokens([row for row in train if row.bucket == bucket])
            for bucket in dict.fromkeys(row.bucket for row in train)
        },
        "lengths": _lengths([tokens for row in train for tokens, _ in row.meta["tokens"]]),
    }


def _by_side(sides: Mapping[str, Sequence[Row]], names: Any) -> dict[str, dict[str, int]]:
    found = {side: Counter(name for row in rows for name in names(row)) for side, rows in sides.items()}
    return {
        name: {side: found[side][name] for side in SIDES}
        for name in sorted({n for f in found.values() for n in f})
    }


def _unused(sides: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, int]]:
    names = {name for rows in sides.values() for row in rows for name in shown(row)}
    return {name: dict.fromkeys(SIDES, 0) for name in sorted(names)}


def _called(row: Row) -> set[str]:
    return {call.name for position in trained_messages(row) for call in calls(row.messages[position])}


def _holds(row: Row, rule: str) -> bool:
    return row.meta.get("rules", {}).get(rule) in (rules.HOLDS, rules.NOT_JUDGED)


def _tokens(rows: Iterable[Row]) -> dict[str, int]:
    found = sorted(tokens for row in rows for tokens in row.meta["tokens"])
    return {
        "samples": len(found),
        "all": sum(tokens for tokens, _ in found),
        "labelled": sum(labelled for _, labelled in found),
        "median": found[len(found) // 2][0] if found else 0,
        "longest": found[-1][0] if found else 0,
    }


def _lengths(found: Sequence[int]) -> list[list[int]]:
    if not found:
        return []
    steps = (base * 10**power for power in range(9) for base in (1, 2, 5))
    width = next(step for step in steps if max(found) < BINS * step)
    counted = Counter(tokens // width for tokens in found)
    return [[n * width, (n + 1) * width, counted[n]] for n in range(max(counted) + 1)]
