"""What the judged checkpoint did wrong, and its live tasks, in its own words."""

from collections import defaultdict
from collections.abc import Iterable

from core import markup
from core.markup import Markup, join, tag
from core.rules import BROKEN
from eval.gates import tool_calls
from eval.outcomes import Sample
from eval.reporting import tables
from eval.reporting.facts import Facts
from eval.reporting.transcripts import said, transcript
from eval.reporting.words import CHECKPOINTS, NOTHING

WORST_RULES = 5
A_BUCKET = 2
NEAR_MISSES = 3
SHOWN_BEFORE = 6
"""Messages before an answer."""
SINGLE = ("tool_calls", "thinking_off", "formality")
"""The kinds of samples that are one answer."""


def broken_rules(facts: Facts) -> Markup:
    """The rules that break most often, each with a rollout in which it broke; the first unfolded."""
    made = []
    for line in tables.rules(facts):
        sample = _breaking(line.name, facts.last)
        if sample is not None and len(made) < WORST_RULES:
            findings = [one for one in sample["findings"] if f"{sample['skill']}/{one['rule']}" == line.name]
            summary = [tag("code", line.name), f": {findings[0]['reason']} ({sample['id']})"]
            content = transcript(sample["trace"], findings, asked=_asked(facts, sample))
            made.append(markup.details(summary, content, opened=not made))
    return join(*made) if made else tag("p", "No rule broke.")


def near_misses(facts: Facts) -> Markup:
    """Some requests near a skill that wrongly started it."""
    wrong = [one for one in facts.last if one["kind"] == "near_miss" and not one["right"]][:NEAR_MISSES]
    return join(
        *(
            markup.details(
                [tag("code", one["id"]), f": {one['explanation']}"],
                transcript(one["trace"], asked=_asked(facts, one)),
            )
            for one in wrong
        )
    )


def live(facts: Facts) -> Markup:
    """Every live task in every checkpoint, and what the judged one did."""
    tasks = [one for one in facts.last if one["kind"] == "live"]
    if not tasks:
        return tag("p", "No live task was run.")
    by_id = {
        name: {one["id"]: one for one in samples if one["kind"] == "live"}
        for name, samples in facts.samples.items()
    }
    rows = [
        markup.row(
            one["id"],
            markup.cell("of", one["skill"] or one["server"]),
            *(
                markup.cell(label, _outcome(by_id.get(name, {}).get(one["id"])), class_="said")
                for name, label in CHECKPOINTS.items()
            ),
        )
        for one in tasks
    ]
    done = {right: [_task(one) for one in tasks if one["right"] == right] for right in (False, True)}
    right = markup.details([f"{len(done[True])} tasks that went right"], *done[True]) if done[True] else ""
    return join(markup.table(["task", "of", *CHECKPOINTS.values()], rows), *done[False], right)


def wrong(facts: Facts) -> Markup:
    """The first wrong answers of each bucket: what was asked, what was due, what came."""
    chosen: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in facts.last:
        own = chosen[sample["kind"], sample["bucket"]]
        if sample["kind"] in SINGLE and not sample["right"] and len(own) < A_BUCKET:
            own.append(sample)
    made = [_answer(facts, one) for own in chosen.values() for one in own]
    note = tag("p", f"The first of each kind, by {CHECKPOINTS[facts.checkpoint]}.", class_="soft")
    return join(note, *made) if made else tag("p", "None.")


def _task(sample: Sample) -> Markup:
    summary = [tag("code", sample["id"]), f": {'right' if sample['right'] else sample['explanation']}"]
    return markup.details(summary, transcript(sample["trace"], sample.get("findings", ())))


def _answer(facts: Facts, sample: Sample) -> Markup:
    row = facts.rows[sample["id"]]
    due = len(row.messages) - 1 if sample["kind"] == "formality" else tool_calls.target(row)
    before = [one for one in row.messages[:due] if one["role"] != "system"]
    how = " (thinking off)" if sample["kind"] == "thinking_off" else ""
    return markup.details(
        [tag("code", row.id), f"{how}: {sample['explanation']}"],
        *(said(one["role"], one) for one in before[-SHOWN_BEFORE:]),
        said("due", row.messages[due]),
        said("answered", sample["message"]),
    )


def _asked(facts: Facts, sample: Sample) -> str:
    """What the user said first in a row of the dataset; blank of anything else."""
    row = facts.rows.get(sample["id"])
    return next(one["content"] for one in row.messages if one["role"] == "user") if row else ""


def _outcome(sample: Sample | None) -> Markup:
    if sample is None:
        return join(NOTHING)
    right, word = ("improves", "✓ right") if sample["right"] else ("worse", "✗ wrong")
    return join(tag("span", word, class_=f"verdict {right}"), f" {sample['explanation']}")


def _breaking(rule: str, samples: Iterable[Sample]) -> Sample | None:
    """The first rollout in which a rule broke."""
    skill, name = rule.split("/", 1)
    for sample in samples:
        if sample["kind"] == "skills" and sample["skill"] == skill:
            for one in sample["findings"]:
                if one["rule"] == name and one["verdict"] == BROKEN:
                    return sample
    return None
