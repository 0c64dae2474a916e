"""How the adapter was trained: its losses, its memory as planned and as measured, its settings."""

from typing import Any

from core import markup
from core.markup import Markup, join, tag
from eval.reporting import charts
from eval.reporting.facts import Facts


def section(facts: Facts) -> Markup:
    """The curves, the memory and the figures of training."""
    manifest = facts.stages["train"][1]
    counts, backend = manifest["counts"], manifest["backend"]
    shown = {
        "backend": backend["name"],
        "modules": counts["modules"],
        "trainable parameters": f"{counts['trainable_parameters']:,}",
        "samples": f"{counts['samples']:,}",
        "labelled tokens": f"{counts['tokens']['labelled']:,}",
        "steps": f"{counts['steps']:,}",
        "tokens a second": f"{counts['tokens_per_second']:,}" if counts.get("tokens_per_second") else "",
        "first loss": counts["first_loss"],
        "last loss": counts["last_loss"],
    }
    why = [tag("p", f"backend {other} not used: {reason}") for other, reason in backend["reasons"].items()]
    return join(
        charts.losses(facts.steps, facts.evaluations),
        markup.facts({name: value for name, value in shown.items() if value != ""}),
        *why,
        *_memory(counts),
    )


def memory(counts: dict[str, Any]) -> list[str]:
    """Peak memory in MB as planned and as measured, and the plan's error; empty where one is missing."""
    planned, measured = counts.get("predicted_peak_mb"), counts.get("measured_peak_mb")
    if not planned or not measured:
        return []
    return [f"{planned:,}", f"{measured:,}", f"{planned / measured - 1:+.1%}"]


def _memory(counts: dict[str, Any]) -> list[Markup]:
    found = memory(counts)
    if not found:
        return []
    return [markup.plain_table(["", "planned", "measured", "error"], [["peak memory, MB", *found]])]
