"""The report as one HTML file: no script, nothing fetched, readable on a phone and in the dark."""

from pathlib import Path

from core import markup
from core.markup import Markup, join, tag
from eval.reporting import answers, comparisons, meaning, provenance, quantising, training, turns
from eval.reporting.facts import Facts
from eval.reporting.words import VERDICTS

STYLE = Path(__file__).with_name("report.css")


def render(facts: Facts) -> str:
    """The whole document; sections that have nothing to say about this profile are left out."""
    title = f"Forja: {facts.run}"
    kinds = {sample["kind"] for sample in facts.last}
    parts = {
        "Gates": comparisons.gates(facts),
        "Held-out rows": comparisons.held_out(facts),
    }
    if "tool_calls" in kinds:
        parts["How calls go wrong"] = comparisons.faults(facts)
    if "skills" in kinds:
        parts |= {
            "Skills": join(comparisons.skills(facts), answers.near_misses(facts)),
            "Rules, the worst first": comparisons.rules(facts),
            "Where they broke": answers.broken_rules(facts),
            "Adherence turn by turn": turns.section(facts),
        }
    if "live" in kinds:
        parts["Live tasks"] = answers.live(facts)
    parts |= {
        "Wrong answers": answers.wrong(facts),
        "What quantising keeps": quantising.section(facts.counts("quantize")),
        "Training": training.section(facts),
        "What each stage took": provenance.stages(facts),
        "Provenance": provenance.section(facts),
    }
    return markup.document(
        title,
        STYLE.read_text(encoding="utf-8"),
        tag("h1", title, tag("span", f" · profile {facts.profile}", class_="soft")),
        _banner(facts),
        markup.contents(parts),
        *(markup.section(name, content) for name, content in parts.items()),
    )


def _banner(facts: Facts) -> Markup:
    overall = facts.verdict.overall
    return tag(
        "div",
        tag("strong", VERDICTS[overall]),
        *(tag("p", sentence) for sentence in meaning.sentences(facts)),
        class_=f"banner {overall}",
    )
