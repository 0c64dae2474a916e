"""What the verdict means and what may happen next, in sentences."""

from collections.abc import Iterable, Iterator

from core import verdicts
from core.verdicts import DECISIVE
from eval import table
from eval.reporting.facts import NVFP4, Facts
from eval.reporting.words import CHECKPOINTS


def sentences(facts: Facts) -> list[str]:
    """In this order: what it means, what may happen next, what NVFP4 keeps, what was not measured."""
    return [_meaning(facts), _next(facts), *_kept(facts), *_missing(facts)]


def _meaning(facts: Facts) -> str:
    name, found = CHECKPOINTS[facts.checkpoint], facts.verdict
    decisive = [gate for gate in DECISIVE if gate in found.gates]
    match found.overall:
        case verdicts.IMPROVES:
            return (
                f"{name} beats the base where it must ({_names(decisive)}), by more than chance explains, "
                "and no gate is worse."
            )
        case verdicts.WORSE:
            worse = "; ".join(_worse(facts))
            return f"{name} is worse than the base, by more than chance and the profile allow: {worse}."
        case verdicts.INCOMPLETE:
            few = _names(gate for gate, one in found.gates.items() if one == verdicts.INCOMPLETE)
            return f"Too few held-out rows, or not the same ones, to judge {few or 'what must improve'}."
    still = _names(gate for gate in decisive if found.gates[gate] != verdicts.IMPROVES)
    return f"No gate is worse, but there is no gain beyond chance in {still}."


def _worse(facts: Facts) -> Iterator[str]:
    """The gates that are worse, with the rows that make them so."""
    for gate, found in facts.judged["gates"].items():
        if found["verdict"] == verdicts.WORSE:
            rows = (found["decides"], *found["guards"])
            worse = (row for row in rows if found["compared"][row]["verdict"] == verdicts.WORSE)
            yield f"{table.GATES[gate]} ({', '.join(table.TITLES[gate][row] for row in worse)})"


def _next(facts: Facts) -> str:
    quantised = facts.checkpoint == "nvfp4"
    if not quantised and NVFP4 not in facts.missing:
        return "The profile has no NVFP4 stage: nothing waits for this verdict."
    stages = "make deploy" if quantised else "make quantize"
    if facts.verdict.passes:
        return f"It may go on: {stages}."
    return f"It goes no further: {stages} refuses it unless FORCE=1, and records that."


def _kept(facts: Facts) -> list[str]:
    gates = facts.judged["gates"]
    kept = [
        f"{shares[gates[gate]['decides']]:.0%} in {table.GATES[gate]}"
        for gate, shares in facts.judged["kept"].items()
        if gates[gate]["decides"] in shares
    ]
    return [f"Of merged's gain NVFP4 keeps {', '.join(kept)}."] if kept else []


def _missing(facts: Facts) -> list[str]:
    made = [f"{what}: not measured ({why})." for what, why in facts.missing.items()]
    if facts.counts("quantize").get("forced"):
        made.append("The NVFP4 checkpoint was made with FORCE=1, against the verdict.")
    return made


def _names(gates: Iterable[str]) -> str:
    return ", ".join(table.GATES[gate] for gate in gates)
