"""Adherence against the turn number: in long tasks a skill is forgotten, not refused."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core import markup
from core.markup import Markup, join, tag
from core.rules import BROKEN
from eval.outcomes import Sample
from eval.reporting import charts
from eval.reporting.facts import Facts
from eval.reporting.words import CHECKPOINTS, NOTHING

LEGEND = (
    "The share of all rollouts in which no rule has been broken up to a turn; what is missing at the end "
    "counts as broken in the last turn. Below, how many rollouts of {} are so long."
)


@dataclass(frozen=True)
class Turn:
    """All rollouts of a checkpoint after one turn of the assistant's."""

    number: int
    """From 1."""
    rollouts: int
    unbroken: int
    """In how many no rule has been broken up to here, those included that have ended."""
    reached: int
    """How many are so long."""

    @property
    def share(self) -> float:
        """Of all rollouts, that are unbroken."""
        return self.unbroken / self.rollouts


def survival(samples: Iterable[Sample], last: int | None = None) -> list[Turn]:
    """A Turn for each turn up to the longest rollout's, or up to `last`; none where there is no rollout.

    The share of the last Turn is the adherence of the gate.
    """
    own = [sample for sample in samples if sample["kind"] == "skills"]
    broken = [_first_break(sample) for sample in own]
    longest = max((sample["turns"] for sample in own), default=0)
    return [
        Turn(
            number=turn,
            rollouts=len(own),
            unbroken=sum(one is None or one > turn for one in broken),
            reached=sum(sample["turns"] >= turn for sample in own),
        )
        for turn in range(1, (last or longest) + 1)
        if own
    ]


def _first_break(sample: Sample) -> int | None:
    """The turn in which the first rule of a rollout broke that a program decides; None where all hold."""
    broken = (one for one in sample["findings"] if one["verdict"] == BROKEN and not one.get("by_judge"))
    return min((one["turn"] for one in broken), default=None)


def section(facts: Facts) -> Markup:
    """The curve of each checkpoint, and its numbers."""
    longest = max((len(survival(samples)) for samples in facts.samples.values()), default=0)
    found = {name: survival(samples, longest) for name, samples in facts.samples.items()}
    if not longest:
        return tag("p", "No rollout was measured.")
    reached = [turn.reached for turn in found[facts.checkpoint]]
    curves = {name: [turn.share for turn in turns] for name, turns in found.items()}
    title = f"Rollouts without a broken rule after each of {longest} turns"
    return join(
        tag("p", LEGEND.format(CHECKPOINTS[facts.checkpoint]), class_="soft"),
        charts.legend({name: CHECKPOINTS[name] for name in curves}),
        charts.survival(curves, reached, title),
        markup.details(
            ["The numbers, and how many rollouts reached each turn"],
            markup.plain_table(["after", *(CHECKPOINTS[one] for one in found)], _rows(found, longest)),
        ),
    )


def _rows(found: dict[str, list[Turn]], longest: int) -> list[list[str]]:
    def text(turns: Sequence[Turn], i: int) -> str:
        if not turns:
            return NOTHING
        one = turns[i]
        return f"{one.share:.1%} ({one.unbroken} of {one.rollouts}), {one.reached} reached it"

    return [[f"turn {i + 1}", *(text(turns, i) for turns in found.values())] for i in range(longest)]
