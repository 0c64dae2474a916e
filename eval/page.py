"""The report as one HTML file: no script, nothing fetched, readable on a phone and in the dark."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core import markup
from core.artifacts import digest
from core.chat import Message, Row
from core.markup import Markup, join, tag
from core.verdicts import IMPROVES, INCOMPLETE, NO_CHANGE, WORSE
from eval import charts, quantising, table, verdict
from eval.facts import Facts, changed_inputs
from eval.gates import tool_calls
from eval.measure import SKILLS
from eval.stats import Loss, Rate, Statistic

STYLE = Path(__file__).with_name("report.css")
CHECKPOINTS = {"base": "base", "merged": "merged", "nvfp4": "NVFP4"}
WORDS = {IMPROVES: "▲ improves", NO_CHANGE: "● no change", WORSE: "▼ worse", INCOMPLETE: "○ incomplete"}
SHOWN_DIGITS = 12
LONGEST_TEXT = 1500


def render(facts: Facts) -> str:
    """The whole document."""
    title = f"Forja: {facts.run}"
    return markup.document(
        title,
        STYLE.read_text(encoding="utf-8"),
        tag("h1", title, tag("span", f" · profile {facts.profile}", class_="soft")),
        _banner(facts),
        markup.section("Gates", _gates(facts)),
        markup.section("Held-out rows", _held_out(facts)),
        markup.section("What quantising keeps", quantising.section(_counts(facts, "quantize"))),
        markup.section("The skills' rules", _rules(facts)),
        markup.section("Wrong answers", _wrong(facts)),
        markup.section("Training", _training(facts)),
        markup.section("What each stage took", _stages(facts)),
        markup.section("Provenance", _provenance(facts)),
    )


def _counts(facts: Facts, stage: str) -> dict[str, Any]:
    return facts.stages.get(stage, (None, {}))[1].get("counts", {})


def _banner(facts: Facts) -> Markup:
    overall = facts.verdict.overall
    name = CHECKPOINTS[facts.checkpoint]
    then = "It may go on." if facts.verdict.passes else "It goes no further unless FORCE=1."
    forced = _counts(facts, "quantize").get("forced")
    kept = [line.replace("nvfp4", name) for line in table.kept(facts.judged, "merged", "nvfp4")]
    return tag(
        "div",
        tag("strong", WORDS[overall]),
        tag("p", f"{name} against base, on the same held-out rows. {then}"),
        *(tag("p", line) for line in kept),
        tag("p", f"NVFP4: not measured yet ({facts.missing})") if facts.missing else "",
        tag("p", "The NVFP4 checkpoint was made with FORCE=1, against the verdict.") if forced else "",
        class_=f"banner {overall}",
    )


def _gates(facts: Facts) -> Markup:
    rows = []
    for gate, found in facts.judged["gates"].items():
        goal = f"{found['threshold']:g}, {'reached' if found['reaches'] else 'not reached'}"
        decides = table.TITLES[gate][found["decides"]]
        rows.append([table.GATES[gate], _verdict(found["verdict"]), decides, f"{found['delta']:g}", goal])
    rule = (
        "improves: the two intervals lie apart. worse: more is lost than allowed, and the interval of the "
        "difference lies below 0. Goals are reported; they decide nothing."
    )
    header = ["gate", "verdict", "decided by", "may lose", "goal"]
    return join(markup.plain_table(header, rows), tag("p", rule, class_="soft"))


def _held_out(facts: Facts) -> Markup:
    against = f"{CHECKPOINTS[facts.checkpoint]} against base"
    rows = []
    for gate, titles in table.TITLES.items():
        found = {
            row: [table.cell(facts.judged, gate, checkpoint, row) for checkpoint in CHECKPOINTS]
            for row in titles
        }
        every = [one for cells in found.values() for one in cells if one is not None]
        top = max([one.high for one in every if isinstance(one, Loss)], default=1.0)
        for row, title in titles.items():
            first = table.cell(facts.judged, gate, "base", row)
            last = table.cell(facts.judged, gate, facts.checkpoint, row)
            if last is not None:
                moved = verdict.compare(first, last, facts.judged["gates"][gate]["delta"])
                cells = [
                    markup.cell("n", str(last.n)),
                    *_values(found[row], top),
                    markup.cell(against, _verdict(moved)),
                ]
                rows.append(markup.row(title, *cells))
    note = "95 % intervals: Wilson's for rates, the normal distribution's over rows for the loss."
    header = ["", "n", *CHECKPOINTS.values(), against]
    return join(markup.table(header, rows), tag("p", note, class_="soft"))


def _rules(facts: Facts) -> Markup:
    names = sorted({rule for measured in facts.measured.values() for rule in measured["rules"]})
    if not names:
        return tag("p", "No rule applied to a held-out row.")
    rows = []
    for name in names:
        found = [facts.measured.get(one, {}).get("rules", {}).get(name) for one in CHECKPOINTS]
        rows.append(markup.row(name, *_values(found, 1.0, counts=True)))
    note = "How often each rule holds in the rollouts that it applies to."
    return join(markup.table(["rule", *CHECKPOINTS.values()], rows), tag("p", note, class_="soft"))


def _values(found: Iterable[Statistic | None], top: float, *, counts: bool = False) -> list[Markup]:
    cells = []
    for name, one in zip(CHECKPOINTS, found, strict=True):
        label = CHECKPOINTS[name]
        if one is None:
            cells.append(markup.cell(label, "–"))
            continue
        value, _, interval = str(one).strip().partition(" ")
        of = f" {one.k} of {one.n}" if counts and isinstance(one, Rate) else ""
        text = tag("span", tag("b", value), f" {interval}{of}", class_="value")
        cells.append(markup.cell(label, text, charts.interval(one, top), class_=name))
    return cells


def _wrong(facts: Facts) -> Markup:
    if not facts.wrong:
        return tag("p", "None.")
    made = [tag("p", f"The first of each kind, by {CHECKPOINTS[facts.checkpoint]}.", class_="soft")]
    for row, sample in facts.wrong:
        due = row.messages[tool_calls.target(row) :][:1]
        got = sample.get("answer", "")
        if sample["kind"] == SKILLS:
            start = next(i for i, message in enumerate(row.messages, 1) if message["role"] == "user")
            due, got = row.messages[start:], _conversation(sample["trace"])
        made.append(
            tag(
                "details",
                tag("summary", tag("code", row.id), f": {sample['explanation']}"),
                tag("p", "asked", class_="soft"),
                tag("pre", _clip(_asked(row))),
                tag("p", "due", class_="soft"),
                tag("pre", _clip(_conversation(due))),
                tag("p", "answered", class_="soft"),
                tag("pre", _clip(got)),
            )
        )
    return join(*made)


def _training(facts: Facts) -> Markup:
    manifest = facts.stages["train"][1]
    counts, backend = manifest["counts"], manifest["backend"]
    plan = {name.lower().replace("_", " "): value for name, value in manifest["settings"].items()}
    plan |= {
        "modules": counts["modules"],
        "trainable parameters": f"{counts['trainable_parameters']:,}",
        "samples": f"{counts['samples']:,}",
        "labelled tokens": f"{counts['tokens']['labelled']:,}",
        "steps": counts["steps"],
        "first loss": counts["first_loss"],
        "last loss": counts["last_loss"],
        "backend": backend["name"],
    }
    shown = {name: value for name, value in plan.items() if value != ""}
    why = [tag("p", f"backend {other} not used: {reason}") for other, reason in backend["reasons"].items()]
    return join(charts.losses(facts.log), markup.facts(shown), *why)


def _stages(facts: Facts) -> Markup:
    rows = [
        [name, f"{m['seconds']:,.0f}", f"{m['peak_mb']:,}"]
        for name, (_, m) in facts.stages.items()
        if "seconds" in m
    ]
    return markup.plain_table(["stage", "seconds", "peak MB"], rows)


def _provenance(facts: Facts) -> Markup:
    changed = changed_inputs(facts.stages)
    rows = []
    for name, (path, manifest) in facts.stages.items():
        made_of = ", ".join(
            f"{what} {one['sha256'][:SHOWN_DIGITS]}{' (changed since)' if what in changed[name] else ''}"
            for what, one in manifest["inputs"].items()
        )
        rows.append([name, str(path), digest(manifest)[:SHOWN_DIGITS], made_of])
    versions = facts.stages[f"eval-{facts.checkpoint}"][1]["versions"]
    return join(markup.plain_table(["stage", "at", "sha256", "made of"], rows), markup.facts(versions))


def _verdict(word: str) -> Markup:
    return tag("span", WORDS[word], class_=f"verdict {word}")


def _asked(row: Row) -> str:
    return "\n".join(m["content"] for m in row.messages if m["role"] == "user")


def _conversation(messages: Iterable[Message]) -> str:
    lines = []
    for message in messages:
        if message["role"] == "tool":
            lines.append(f"  -> {message['content']}")
            continue
        for one in message.get("tool_calls") or []:
            call = one["function"]
            lines.append(f"{call['name']} {json.dumps(call['arguments'], ensure_ascii=False)}")
        if message.get("content"):
            lines.append(message["content"])
    return "\n".join(lines)


def _clip(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + f" … ({len(text):,} characters)"
