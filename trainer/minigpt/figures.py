"""The lab's figures, a list over the seeds each, and the bars that they are held against."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.minigpt import evaluate
from trainer.minigpt.lab import Cell

Values = dict[str, list[float]]

SWEPT = ("irregular_gain", "control_drift", "control_accuracy_loss", "prefers_right", "adapter_share")
"""What the rank ablation compares."""


@dataclass(frozen=True)
class Bar:
    """What the lab promises: in words, of whose figure, and when a list over seeds keeps it."""

    text: str
    method: str
    figure: str
    keeps: Callable[[list[float]], bool]


BARS = (
    Bar(
        "irregular accuracy: gain of 10 points or more, every seed",
        "lora", "irregular_gain", lambda v: min(v) >= 10,
    ),
    Bar(
        "the right form preferred for all 8 verbs, four seeds of five",
        "lora", "prefers_right", lambda v: v.count(8) >= 0.8 * len(v),
    ),
    Bar(
        "regular control: perplexity drift of 5 % at most, every seed",
        "lora", "control_drift", lambda v: max(v) <= 5,
    ),
    Bar(
        "regular control: accuracy loss of 3 points at most in the median, 5 in every seed",
        "lora", "control_accuracy_loss", lambda v: statistics.median(v) <= 3 and max(v) <= 5,
    ),
    Bar("adapter file below 1 % of the base's", "lora", "adapter_share", lambda v: max(v) < 0.01),
    Bar("without replay the drift shows: above 20 %", "no-replay", "control_drift", lambda v: min(v) > 20),
    Bar("NF4: linear weights at least 5 times smaller", "qlora", "nf4_ratio", lambda v: min(v) >= 5),
    Bar(
        "QLoRA: accuracy within 3 points of LoRA's",
        "qlora", "behind_lora", lambda v: max(map(abs, v)) <= 3,
    ),
    Bar(
        "NF4: logits equal those of the unpacked weights to 1e-4",
        "qlora", "nf4_logits_from_unpacked", lambda v: max(v) <= 1e-4,
    ),
)  # fmt: skip


def held_against_bars(methods: dict[str, Values]) -> list[dict[str, Any]]:
    """Each bar whose figure is measured, with the figure's least, median and greatest over the seeds."""
    judged = []
    for bar in BARS:
        values = methods.get(bar.method, {}).get(bar.figure)
        if values:
            spread = {"min": min(values), "median": statistics.median(values), "max": max(values)}
            judged.append({"bar": bar.text, "figure": bar.figure, "reached": bar.keeps(values), **spread})
    return judged


def over_seeds(cells: Sequence[Cell]) -> Values | None:
    """One list a figure, in the order of the cells; None where a cell is not measured.

    Gains and losses in points, drift in %, `prefers_right` in verbs of 8, shares as fractions.
    """
    scores = [evaluate.read(cell) for cell in cells]
    if not scores or None in scores:
        return None
    rows = [_of_one(one) for one in scores if one is not None]
    return {name: [row[name] for row in rows] for name in rows[0]}


def prefers_right(preference: dict[str, dict[str, float]]) -> int:
    """Irregular verbs whose right form is likelier than the -ed form in the past and in the participle."""
    return sum(all(by_verb[verb] > 0 for by_verb in preference.values()) for verb in preference["past"])


def _of_one(scores: dict[str, Any]) -> dict[str, float]:
    before, after, sizes = scores["base"], scores["adapted"], scores["sizes"]
    found = {
        "irregular_base": 100 * before["irregular"],
        "irregular_adapted": 100 * after["irregular"],
        "past_adapted": 100 * after["by_tense"]["past"],
        "participle_adapted": 100 * after["by_tense"]["participle"],
        "irregular_gain": 100 * (after["irregular"] - before["irregular"]),
        "control_base": 100 * before["control"],
        "control_accuracy_loss": 100 * (before["control"] - after["control"]),
        "control_drift": 100 * (after["perplexity"] / before["perplexity"] - 1),
        "base_regularised": 100 * before["regularised"],
        "prefers_right": prefers_right(after["preference"]),
        "base_prefers_right": prefers_right(before["preference"]),
        "adapter_share": sizes["adapter_file"] / sizes["base_file"],
    }
    if "nf4" in scores:
        found |= {
            "nf4_ratio": sizes["linears"]["float32"] / scores["nf4"]["bytes"],
            "nf4_logits_from_float32": 100 * scores["nf4"]["logits_from_float32"],
            "nf4_logits_from_unpacked": scores["nf4"]["logits_from_unpacked"],
            "nf4_drift": 100 * (scores["nf4"]["perplexity"] / before["perplexity"] - 1),
        }
    return {name: round(value, 4) for name, value in found.items()}
