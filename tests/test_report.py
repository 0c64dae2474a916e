"""The report: the manifests' numbers, in files that need nothing else, and nothing in them that acts."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from core import artifacts, chat, config, verdicts
from core import profile as profiles
from core.chat import Row
from core.errors import UserError
from core.settings import ReportSettings
from core.verdicts import IMPROVES
from eval import evaluations, outcomes, report, stats, verdict
from eval.reporting import facts, markdown, page
from eval.stats import Rate
from tests import evaluated
from tests.evaluated import BASE, NVFP4, OUT, Run, artefact
from tests.html_reader import Reader

ATTACK = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'& | [x](javascript:alert(1)) ![x](y)"
ACTS = {"script", "img", "iframe", "object", "link", "base", "a", "form"}


def reports(run: Run) -> tuple[dict[str, Any], Reader, Reader]:
    """report.json, report.html and what a forge makes of report.md."""
    assert report.main(list(run.words)) == 0
    found, html, text = (
        (OUT / f"report.{kind}").read_text(encoding="utf-8") for kind in ("json", "html", "md")
    )
    return (
        json.loads(found),
        Reader(html),
        Reader(MarkdownIt("commonmark", {"html": True}).enable("table").render(text)),
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run(ATTACK)


def shown(fields: dict[str, Any]) -> str:
    """A statistic as the reader sees it."""
    return str(stats.from_json(fields)).strip()


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def numbers(found: dict[str, Any]) -> list[str]:
    """Every number of report.json's gates, rules and skills, as the reader sees it."""
    texts = []
    for gate in found["gates"].values():
        for name in ("base", "merged", "nvfp4"):
            texts += [shown(one) for one in gate.get(name, {}).values()]
        for row, one in gate["compared"].items():
            of_rates = isinstance(stats.from_json(gate["base"][row]), Rate)
            scale, digits, unit = (100, 1, "points") if of_rates else (1, 3, "nats")
            gain, low, high = (f"{scale * one[key]:+.{digits}f}" for key in ("gain", "low", "high"))
            texts += [f"{gain} {unit} [{low}, {high}]", p_value(one["p"])]
    for kind in ("rules", "by_skill"):
        for name, one in found[kind].items():
            texts += [name, shown(one["base"]), shown(one["last"]), f"adjusted {p_value(one['adjusted_p'])}"]
    return [*texts, *(f"{share:.0%}" for shares in found["kept"].values() for share in shares.values())]


def test_every_number_of_the_json_stands_on_the_page_and_in_the_markdown(run: Run):
    run.quantize()
    found, html, text = reports(run)
    assert found.keys() == {"verdict", "gates", "rules", "by_skill", "kept", "stages"}
    assert len(numbers(found)) > 150
    for one in numbers(found):
        assert one in html.text
        assert one in text.text
    for name in ("base", "merged", "nvfp4"):
        counts = artifacts.require(evaluations.answers_dir(OUT, name), "eval")["counts"]
        for kind in ("steps", "faults", "by_skill", "rules"):
            for one in counts[kind].values():
                if one["k"]:
                    assert f"{shown(one)} {one['k']} of {one['n']}" in html.text
                    assert f"{shown(one)} ({one['k']} of {one['n']})" in text.text
    assert "Requests near a skill that rightly leave it alone" in html.text
    assert len(re.findall(r"\b3 of 4\b", html.text)) == 2 * len(evaluated.SKILLS)
    losses = evaluations.losses_dir(OUT, "merged")
    for name, path in (("train", OUT / "adapter"), ("eval-merged-loss", losses)):
        manifest = artifacts.require(path, "all")
        assert found["stages"][name] == {key: manifest[key] for key in ("seconds", "peak_mb")}
        assert artifacts.digest(manifest)[:12] in html.text
        assert artifacts.digest(manifest)[:12] in text.text


def test_the_verdict_of_the_run_comes_first(run: Run):
    found, html, text = reports(run)
    assert found["verdict"] == verdicts.read(OUT, "merged", Path("models/one/merged")).overall
    for one in (html, text):
        assert one.text.index("▲ improves") < one.text.index("Gates") < one.text.index("Held-out rows")
        assert "It may go on: make quantize." in one.text


def test_what_the_model_wrote_stays_text(run: Run):
    _, html, text = reports(run)
    assert html.text.count(ATTACK) > 10
    assert text.text.count(ATTACK) >= 1
    for one in (html, text):
        assert not {name for name, attributes in one.tags if "#" not in (attributes.get("href") or "")} & ACTS
        assert not [key for _, attributes in one.tags for key in attributes if key.startswith("on")]


def test_the_page_needs_no_other_file_and_its_tables_have_headers(run: Run):
    _, html, _ = reports(run)
    source = (OUT / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|https?://", source)
    assert not [attributes for _, attributes in html.tags if "src" in attributes]
    links = [attributes["href"] or "" for _, attributes in html.tags if "href" in attributes]
    assert links == [f"#{attributes['id']}" for name, attributes in html.tags if name == "section"]
    headers = [attributes for name, attributes in html.tags if name == "th"]
    assert {attributes["scope"] for attributes in headers} == {"col", "row"}
    drawn = [attributes for name, attributes in html.tags if name == "svg"]
    assert all("role" in one or "aria-hidden" in one for one in drawn)


def test_without_nvfp4_the_report_says_so_and_why(run: Run):
    found, html, text = reports(run)
    for one in (html, text):
        assert "NVFP4: not measured" in one.text
        assert "make eval-nvfp4" in one.text
    assert all("nvfp4" not in gate for gate in found["gates"].values())


def test_with_nvfp4_all_three_stand_side_by_side(run: Run):
    run.quantize()
    found, html, _ = reports(run)
    assert "NVFP4: not measured" not in html.text
    for gate in found["gates"].values():
        assert {"base", "merged", "nvfp4"} <= gate.keys()
    assert "NVFP4 keeps 99% in tool calls" in html.text  # 158 of 159
    assert "made with FORCE=1" in html.text
    for one in ("● delta", "98.7%", "6.5", "self_attn.q_proj"):
        assert one in html.text
    assert found["verdict"] == verdicts.read(OUT, "nvfp4", Path("models/one/nvfp4")).overall


def test_a_degraded_nvfp4_is_what_the_verdict_says(run: Run):
    run.quantize(BASE)
    found, html, _ = reports(run)
    assert found["verdict"] != IMPROVES
    assert "It goes no further: make deploy refuses it" in html.text
    assert "no gain beyond chance in skills" in html.text


def test_a_row_that_makes_a_gate_worse_is_named(run: Run):
    run.quantize(replace(NVFP4, right={**NVFP4.right, "no_tool": 0.0}))
    found, html, text = reports(run)
    assert found["verdict"] == "worse"
    for one in (html, text):
        assert "allow: tool calls (no call when none is due)." in one.text


def test_what_the_base_was_not_asked_is_incomplete(run: Run):
    whole = facts.collect(config.parse(ReportSettings, run.words))
    lacking = [one for one in whole.samples["base"] if one["skill"] != "crear-rama" or one["kind"] == "loss"]
    lacking = [one for one in lacking if one["kind"] != "thinking_off"]
    samples = whole.samples | {"base": lacking}
    found = {name: outcomes.outcomes(own, ()) for name, own in samples.items()}
    judged = verdict.judge(profiles.load("tiny").gates, found)
    whole = replace(whole, samples=samples, judged=judged)
    html, text = Reader(page.render(whole)), markdown.render(whole)
    assert judged["rules"]["crear-rama/pasos"]["base"] is None
    for one in (html.text, text):
        assert "○ incomplete" in one
        assert "not the same ones, to judge skills, live tasks." in one
    assert re.search(r"crear-rama/pasos\s*–\s*75.0%", html.text)
    assert re.search(r"thinking off\s*50\s*–\s*70.0%.*\s*–\s*○ incomplete", html.text)
    assert re.search(r"16 rows not in both", html.text)


def test_without_live_tasks_the_report_says_so(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluated, "LIVE", {})
    _, html, text = reports(Run())
    for one in (html, text):
        assert "Live tasks on real servers: not measured (no task of LIVE could be run)" in one.text


def test_who_judged_with_what_settings_seeds_and_versions(run: Run):
    _, html, text = reports(run)
    versions = artifacts.require(evaluations.answers_dir(OUT, "merged"), "eval")["versions"]
    for one in ("core/toolcalls.py", "transformers", *versions, *versions.values()):
        assert one in html.text
        assert one in text.text
    for one in ("LORA_RANK", "HELD_OUT_SKILLS", "eval seed", "backend unsloth not used: no <CUDA> device"):
        assert one in html.text


def test_planned_and_measured_memory_stand_side_by_side(run: Run):
    _, html, text = reports(run)
    for one in (html, text):
        assert re.search(r"1,790\W*1,858\W*-3.7%", re.sub(r"(planned|measured|error)", "", one.text))


def test_held_out_losses_of_another_training_are_not_drawn(run: Run):
    settings = config.parse(ReportSettings, run.words)
    assert len(facts.collect(settings).evaluations) == 6
    steps = [json.loads(line) for line in (OUT / "metrics.jsonl").read_text().splitlines()]
    steps[0]["loss"] += 1
    (OUT / "metrics.jsonl").write_text(evaluated.lines(steps))
    assert facts.collect(settings).evaluations == []


def test_a_profile_without_skills_has_a_report(run: Run):
    turns = [chat.user("¿Me ayudas?"), chat.say("Claro, dígame usted.", think="")]
    rows = [
        Row(id=f"f-{i}", bucket="formal", group="g", split="eval", messages=turns, tools=[])
        for i in range(40)
    ]
    said = {"explanation": "informal: tú", "message": chat.say("Claro, dime tú.", think="")}
    samples = {
        name: [
            {
                "kind": kind,
                "id": row.id,
                "bucket": "formal",
                "skill": None,
                "loss": 1.0,
                "right": right,
                **said,
            }
            for row in rows
            for kind in ("loss", "formality")
        ]
        for name, right in (("base", False), ("merged", True))
    }
    found = {name: outcomes.outcomes(own, ()) for name, own in samples.items()}
    whole = replace(
        facts.collect(config.parse(ReportSettings, run.words)),
        judged=verdict.judge(profiles.load("formal_smollm").gates, found),
        samples=samples,
        rows={row.id: row for row in rows},
        missing={},
    )
    html, text = Reader(page.render(whole)), markdown.render(whole)
    for one in (html.text, text):
        assert "answers with usted" in one
        assert "Rules, the worst first" not in one
        assert "Live tasks" not in one
    wrong = replace(whole, samples={"base": samples["merged"], "merged": samples["base"]})
    assert "informal: tú" in Reader(page.render(wrong)).text


def test_an_old_verdict_is_refused(run: Run):
    artefact(Path("models/one/merged"), "checkpoint", {"w": "another"})
    with pytest.raises(UserError, match=r"judges another checkpoint.*make eval$"):
        reports(run)


def test_a_verdict_on_earlier_measurements_is_refused(run: Run):
    path = evaluations.losses_dir(OUT, "base")
    manifest = artifacts.require(path, "eval")
    artefact(path, "evaluation", {evaluations.SAMPLES: ""}, inputs=manifest["inputs"])
    with pytest.raises(UserError, match=r"of earlier measurements: make eval$"):
        reports(run)


def test_measurements_of_other_rows_are_refused(run: Run):
    artefact(Path("data/tiny/dataset"), "dataset", {"eval.jsonl": ""})
    with pytest.raises(UserError, match=r"the dataset changed since: make eval$"):
        reports(run)


def test_an_nvfp4_measured_on_earlier_rows_is_left_out(run: Run, monkeypatch: pytest.MonkeyPatch):
    run.quantize()
    monkeypatch.setitem(evaluated.SINGLE, "mcp_calls", 150)
    again = Run()
    found, html, _ = reports(again)
    assert found["gates"]["tool_calls"]["merged"]["mcp_calls"]["n"] == 150
    assert "NVFP4: not measured (" in html.text
    again.quantize()
    assert "NVFP4: not measured" not in reports(again)[1].text


def test_a_failed_report_leaves_the_old_one(run: Run):
    reports(run)
    old = {kind: (OUT / f"report.{kind}").read_bytes() for kind in ("json", "html", "md")}
    artefact(Path("models/one/merged"), "checkpoint", {"w": "another"})
    with pytest.raises(UserError):
        reports(run)
    assert {kind: (OUT / f"report.{kind}").read_bytes() for kind in old} == old
