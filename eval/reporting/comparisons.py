"""Base, merged and NVFP4 side by side: the gates, the held-out rows, how calls go wrong, the rules."""

from collections.abc import Iterable, Mapping

from core import markup
from core.markup import Markup, join, tag
from core.verdicts import INCOMPLETE, NO_CHANGE
from eval.reporting import charts, tables, words
from eval.reporting.facts import Facts
from eval.reporting.tables import Found, Line, MovedLine
from eval.reporting.words import CHECKPOINTS, NOTHING, VERDICTS
from eval.stats import Loss, Rate, Statistic

SHOWN_RULES = 12
GATES_NOTE = (
    "A gate is judged by its deciding row and by those that guard it: it is worse as well where one of them "
    "is. Goals are reported; they decide nothing."
)
ROWS_NOTE = (
    "95 % intervals: Wilson's for rates, Student's over the rows for losses. The gain is paired, on "
    "the same held-out rows in both checkpoints; more is better. kept: NVFP4's share of merged's gain, "
    "where merged gained beyond chance."
)
RULES_NOTE = (
    "How often each rule holds in the rollouts that it applies to, the worst first. p is that of the paired "
    "change against the base; adjusted, for so many rules looked at together."
)
FAULTS_NOTE = (
    "Less is better. Of the prompts where a call is due, or none is: dead turn, neither text nor call; lost "
    "call, one that the parser does not see; invalid, by the tool's schema."
)


def gates(facts: Facts) -> Markup:
    """The verdict of each gate."""
    rows = [
        markup.row(
            line.title,
            markup.cell("verdict", verdict(line.verdict)),
            markup.cell("decided by", line.decided_by),
            markup.cell("guarded by", line.guarded_by),
            markup.cell("may lose", line.may_lose),
            markup.cell("goal", line.goal),
        )
        for line in tables.gates(facts)
    ]
    header = ["gate", "verdict", "decided by", "guarded by", "may lose", "goal"]
    return join(markup.table(header, rows), tag("p", GATES_NOTE, class_="soft"))


def held_out(facts: Facts) -> Markup:
    """Every row of the gates in every checkpoint, its paired gain, and what NVFP4 keeps of it."""
    lines = tables.held_out(facts)
    tops = {line.gate: _top(other for other in lines if other.gate == line.gate) for line in lines}
    gain = f"{CHECKPOINTS[facts.checkpoint]} against base"
    quantised = facts.checkpoint == "nvfp4"
    rows = [
        markup.row(
            line.title,
            markup.cell("n", str(line.last.n)),
            *values(line.found, tops[line.gate]),
            markup.cell(gain, *_moved(line)),
            *(
                [markup.cell("kept", NOTHING if line.kept is None else f"{line.kept:.0%}")]
                if quantised
                else []
            ),
        )
        for line in lines
    ]
    header = ["rows", "n", *CHECKPOINTS.values(), gain, *(["kept"] if quantised else [])]
    return join(markup.table(header, rows), tag("p", ROWS_NOTE, class_="soft"))


def faults(facts: Facts) -> Markup:
    """How far calls come, and the ways in which they go wrong."""
    found = tables.faults(facts)
    return join(
        tag("h3", "How far turns come in which a call is due"),
        _counted("step", tables.steps(facts)),
        tag("h3", "What went wrong"),
        _counted("fault", found) if found else tag("p", "Nothing."),
        tag("p", FAULTS_NOTE, class_="soft"),
    )


def skills(facts: Facts) -> Markup:
    """Whole rollouts by skill, and requests near a skill that leave it alone."""
    made, near = [_moved_table("skill", tables.skills(facts))], tables.near_miss(facts)
    if near:
        made += [tag("h3", "Requests near a skill that rightly leave it alone"), _counted("skill", near)]
    return join(*made)


def rules(facts: Facts) -> Markup:
    """Every rule, the worst first; those after the first SHOWN_RULES folded."""
    lines = tables.rules(facts)
    made = [_moved_table("rule", lines[:SHOWN_RULES])]
    if rest := lines[SHOWN_RULES:]:
        made.append(markup.details([f"{len(rest)} more rules"], _moved_table("rule", rest)))
    return join(*made, tag("p", RULES_NOTE, class_="soft"))


def values(found: Found, top: float, *, counts: bool = False) -> list[Markup]:
    """A cell a checkpoint: the value, its interval, and both as a bar from 0 to `top`."""
    cells = []
    for name, label in CHECKPOINTS.items():
        one = found.get(name)
        if one is None:
            cells.append(markup.cell(label, NOTHING))
            continue
        value, _, interval = str(one).strip().partition(" ")
        of = f" {one.k} of {one.n}" if counts and isinstance(one, Rate) else ""
        text = tag("span", tag("b", value), f" {interval}{of}", class_="value")
        cells.append(markup.cell(label, text, charts.interval(one, top), class_=name))
    return cells


def verdict(word: str) -> Markup:
    """One of the verdicts' words, with its colour and sign."""
    return tag("span", VERDICTS[word], class_=f"verdict {word}")


def _counted(title: str, found: Mapping[str, Found]) -> Markup:
    rows = [markup.row(name, *values(one, 1.0, counts=True)) for name, one in found.items()]
    return markup.table([title, *CHECKPOINTS.values()], rows)


def _moved_table(title: str, lines: Iterable[MovedLine]) -> Markup:
    rows = []
    for line in lines:
        adjusted = words.p_value(line.adjusted_p)
        notes = _notes([words.p_value(line.p), adjusted and f"adjusted {adjusted}"])
        change = markup.cell("change", verdict(line.moved), *notes)
        rows.append(markup.row(line.name, *values(line.found, 1.0, counts=True), change))
    return markup.table([title, *CHECKPOINTS.values(), "change"], rows)


def _moved(line: Line) -> list[Markup]:
    if line.compared is None:
        return [verdict(INCOMPLETE)]
    notes = [words.gain(line.compared, line.last), words.p_value(line.compared["p"])]
    if line.compared["verdict"] == NO_CHANGE and line.compared["no_worse"]:
        notes.append(f"no worse than {words.allowed(line.delta, line.last)}")
    if line.compared["unpaired"]:
        notes.append(f"{line.compared['unpaired']} rows not in both")
    return [verdict(line.compared["verdict"]), *_notes(notes)]


def _notes(texts: Iterable[str]) -> list[Markup]:
    return [tag("p", text, class_="note") for text in texts if text]


def _top(lines: Iterable[Line]) -> float:
    every: list[Statistic] = [one for line in lines for one in line.found.values() if one is not None]
    return max([one.high for one in every if isinstance(one, Loss)], default=1.0)
