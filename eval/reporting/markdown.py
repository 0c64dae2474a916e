"""The report as Markdown: the verdict and the tables, without drawings and transcripts."""

import re
from collections.abc import Iterable, Sequence

from core.verdicts import INCOMPLETE
from eval.reporting import meaning, provenance, tables, training, words
from eval.reporting.facts import Facts
from eval.reporting.tables import Found, Line, MovedLine
from eval.reporting.words import CHECKPOINTS, NOTHING, VERDICTS

MOST_LINES = 20
SPECIAL = re.compile(r"[\\`*_|~&$]|<(?=\S)|\](?=\()|:(?=//)")
"""What would be markup in the middle of a line."""


def render(facts: Facts) -> str:
    """The whole document."""
    parts = [
        f"# {escape(f'Forja: {facts.run}')}",
        f"**{VERDICTS[facts.verdict.overall]}**",
        *(escape(sentence) for sentence in meaning.sentences(facts)),
        *_section("Gates", _gates(facts)),
        *_section("Held-out rows", _held_out(facts)),
        *_section("How far turns come in which a call is due", _by_name("step", tables.steps(facts))),
        *_section("How calls go wrong", _by_name("fault", tables.faults(facts))),
        *_section("Skills", _moved_table("skill", tables.skills(facts))),
        *_section(
            "Requests near a skill that rightly leave it alone", _by_name("skill", tables.near_miss(facts))
        ),
        *_section("Rules, the worst first", _moved_table("rule", tables.rules(facts))),
        *_section("Live tasks", _live(facts)),
        *_section("Training", _memory(facts)),
        *_section("Provenance", _provenance(facts)),
    ]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text on one line that Markdown shows as it is."""
    return SPECIAL.sub(lambda found: "\\" + found[0], " ".join(text.split()))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts; blank without rows."""
    lines = [[escape(cell) for cell in row] for row in rows]
    whole = [[escape(cell) for cell in header], ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in whole) if lines else ""


def _section(title: str, content: str) -> list[str]:
    return [f"## {title}", content] if content else []


def _gates(facts: Facts) -> str:
    rows = (
        [one.title, VERDICTS[one.verdict], one.decided_by, one.guarded_by, one.may_lose, one.goal]
        for one in tables.gates(facts)
    )
    return table(["gate", "verdict", "decided by", "guarded by", "may lose", "goal"], rows)


def _held_out(facts: Facts) -> str:
    header = ["rows", "n", *CHECKPOINTS.values(), f"{CHECKPOINTS[facts.checkpoint]} against base", "kept"]
    return table(
        header,
        (
            [
                line.title,
                str(line.last.n),
                *_values(line.found),
                _moved(line),
                NOTHING if line.kept is None else f"{line.kept:.0%}",
            ]
            for line in tables.held_out(facts)
        ),
    )


def _moved(line: Line) -> str:
    if line.compared is None:
        return VERDICTS[INCOMPLETE]
    said = [VERDICTS[line.compared["verdict"]], words.gain(line.compared, line.last)]
    return ", ".join(filter(None, [*said, words.p_value(line.compared["p"])]))


def _by_name(title: str, found: dict[str, Found]) -> str:
    return table([title, *CHECKPOINTS.values()], ([name, *_values(one)] for name, one in found.items()))


def _moved_table(title: str, lines: Sequence[MovedLine]) -> str:
    shown = table(
        [title, *CHECKPOINTS.values(), "change"],
        ([line.name, *_values(line.found), _change(line)] for line in lines[:MOST_LINES]),
    )
    rest = len(lines) - MOST_LINES
    return f"{shown}\n\nAnd {rest} more in report.html." if rest > 0 else shown


def _change(line: MovedLine) -> str:
    adjusted = words.p_value(line.adjusted_p)
    return VERDICTS[line.moved] + (f", adjusted {adjusted}" if adjusted else "")


def _live(facts: Facts) -> str:
    tasks = (one for one in facts.last if one["kind"] == "live")
    rows = ([one["id"], "✓ right" if one["right"] else f"✗ {one['explanation']}"] for one in tasks)
    return table(["task", CHECKPOINTS[facts.checkpoint]], rows)


def _memory(facts: Facts) -> str:
    found = training.memory(facts.counts("train"))
    return table(["", "planned", "measured", "error"], [["peak memory, MB", *found]] if found else [])


def _provenance(facts: Facts) -> str:
    found = dict(provenance.judged_by(facts)) | provenance.seeds(facts)
    found |= facts.stages[f"eval-{facts.checkpoint}"][1]["versions"]
    found |= {f"sha256 of {name}": one for name, one in provenance.digests(facts).items()}
    return table(["", "value"], ([name, str(value)] for name, value in found.items()))


def _values(found: Found) -> list[str]:
    return [NOTHING if one is None else words.share(one) for one in map(found.get, CHECKPOINTS)]
