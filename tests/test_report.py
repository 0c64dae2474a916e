"""The report: the manifests' numbers, one file that needs nothing else, and nothing in it that acts."""

import html
import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import artifacts, chat, config, verdicts
from core.chat import Row
from core.errors import UserError
from core.markup import Markup, join, tag
from core.settings import EvalSettings
from core.verdicts import IMPROVES
from eval import charts, measure, report, stats, suite

WORDS = ("PROFILE=tiny", "RUN=one", "MODELS_DIR=models")
ATTACK = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


# ---- markup ------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Takes a document apart; every tag must be closed by its own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(), st.text())
def test_text_comes_back_as_text_whatever_it_holds(content: str, label: str):
    made = Reader(tag("p", content, tag("b", content), title=label))
    assert [name for name, _ in made.tags] == ["p", "b"]
    written = re.sub("\r\n?", "\n", html.unescape(html.escape(content)))
    assert re.sub("\r\n?", "\n", made.text) == 2 * written


def test_markup_is_not_escaped_twice():
    assert join(tag("b", "<"), "<", Markup("<br>")) == "<b>&lt;</b>&lt;<br>"


@given(st.integers(1, 100).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_an_interval_stays_inside_its_bar(case: tuple[int, int]):
    drawn = Reader(charts.interval(stats.rate(case[1], case[0]), 1.0))
    for name, attributes in drawn.tags:
        if name == "rect":
            x, width = (float(attributes[key] or "nan") for key in ("x", "width"))
            assert 0 <= x <= x + width <= 100.51


@given(st.lists(st.floats(1e-6, 20), min_size=1, max_size=120))
def test_every_loss_lies_inside_the_chart(losses: list[float]):
    drawn = Reader(charts.losses([{"step": i, "loss": one} for i, one in enumerate(losses, 1)]))
    lines = [attributes["points"] or "" for name, attributes in drawn.tags if name == "polyline"]
    assert len(lines[0].split()) == len(losses)
    for x, y in (point.split(",") for line in lines for point in line.split()):
        assert 0 <= float(x) <= charts.WIDTH and 0 <= float(y) <= charts.HEIGHT


# ---- the report of a run -----------------------------------------------------------------------


def artefact(path: Path, kind: str, files: dict[str, str], **facts: Any) -> dict[str, str]:
    """An artefact of these files; what names it as an input of another."""
    with artifacts.create(
        path, kind=kind, profile="tiny", run="one", settings=facts.get("settings", {}),
        inputs=facts.get("inputs", {}),
    ) as draft:  # fmt: skip
        for name, text in files.items():
            (draft.path / name).write_text(text, encoding="utf-8")
        draft.counts, draft.backend = facts.get("counts", {}), facts.get("backend", {})
    return artifacts.as_input(path, artifacts.require(path, "all"))


def held_out(project: Path) -> list[Row]:
    """Two rows a bucket."""
    source = project / "skills/demo/SKILL.md"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("Pasos: SIEMPRE git_log", encoding="utf-8")
    rules = "- {id: lee, kind: must, what: {call: log}, quote: SIEMPRE git_log}\n"
    source.with_name("rules.yaml").write_text(rules, encoding="utf-8")
    turns = [chat.user("¿Qué tal?"), chat.say("Bien.", think="t")]
    return [
        Row(
            id=f"{bucket}-{i}", bucket=bucket, group="g", split="eval", messages=turns, tools=[],
            skill="demo" if bucket == "skills" else None, source="skills/demo/SKILL.md",
        )
        for bucket in measure.ROWS
        for i in range(2)
    ]  # fmt: skip


class Run:
    """A run with a base, an adapter and a merged checkpoint, whose evaluations are written by hand."""

    def __init__(self, root: Path) -> None:
        self.rows = held_out(root)
        base = artefact(Path("models/tiny"), "checkpoint", {"w": "base"})
        lines = "".join(json.dumps(asdict(row)) + "\n" for row in self.rows)
        counts = {"train": {"mcp_calls": 3}, "eval": {"mcp_calls": 2}, "dropped": {}}
        self.dataset = artefact(Path("data/tiny/dataset"), "dataset", {"eval.jsonl": lines}, counts=counts)
        log = "".join(json.dumps({"step": i, "loss": 2 / i}) + "\n" for i in range(1, 41))
        adapter = artefact(
            Path("out/one/adapter"),
            "adapter",
            {"loss.jsonl": log},
            settings={"LORA_RANK": 16, "LORA_ALPHA": 32, "BACKEND": ""},
            inputs={"base": base, "dataset": self.dataset},
            counts={
                "samples": 1199,
                "tokens": {"labelled": 89394},
                "steps": 40,
                "modules": 30,
                "trainable_parameters": 135424,
                "first_loss": 2.0,
                "last_loss": 0.05,
            },
            backend={"name": "plain", "reasons": {"unsloth": "no <CUDA> device"}},
        )
        merged = artefact(Path("models/one/merged"), "checkpoint", {"w": "m"}, inputs={"adapter": adapter})
        self.evaluate("base", base, right=2, nats=1.5)
        self.evaluate("merged", merged, right=90, nats=0.25)
        self.judge()

    def evaluate(self, name: str, checkpoint: dict[str, str], *, right: int, nats: float) -> None:
        """An evaluation of 100 rows a bucket; only the dataset's two have texts to show."""
        samples = []
        for bucket in measure.ROWS:
            for i in range(100):
                about = {"id": f"{bucket}-{i}", "bucket": bucket, "skill": "demo"}
                samples.append({"kind": "loss", **about, "loss": nats + i / 1000})
                own = {"right": 100 - i <= right, "explanation": f"why {ATTACK}"}
                if bucket == "skills":
                    samples.append({"kind": "skills", **about, "trace": [chat.say(ATTACK, think="")], **own})
                else:
                    samples.append({"kind": "tool_calls", **about, "answer": ATTACK, **own})
        counts = measure.counts(samples, held_out=())
        counts |= {"rules": {"demo/lee": asdict(stats.rate(right, 100))}, "seconds": {}}
        settings = config.recorded(config.parse(EvalSettings, WORDS))
        inputs = {"checkpoint": checkpoint, "dataset": self.dataset, "rules": measure.rules_input(self.rows)}
        lines = "".join(json.dumps(sample) + "\n" for sample in samples)
        artefact(
            Path("out/one/eval") / name,
            "evaluation",
            {"samples.jsonl": lines},
            settings=settings,
            inputs=inputs,
            counts=counts,
        )

    def judge(self, *words: str) -> int:
        """The verdict by the real stage, which finds the evaluations up to date."""
        return suite.main([*WORDS, *words])

    def quantize(self, right: int) -> None:
        """An NVFP4 checkpoint, forced, with its evaluation and verdict."""
        counts = {"forced": True, "verdict": "worse"}
        nvfp4 = artefact(Path("models/one/nvfp4"), "checkpoint", {"w": "q"}, counts=counts)
        copy = artefact(Path("models/one/nvfp4-bf16"), "checkpoint", {"w": "d"}, inputs={"nvfp4": nvfp4})
        self.evaluate("nvfp4", copy, right=right, nats=0.27)
        self.judge("CHECKPOINT=nvfp4")

    def report(self) -> tuple[dict[str, Any], str, Reader]:
        """report.json, report.html, and the latter taken apart."""
        assert report.main(list(WORDS)) == 0
        page = Path("out/one/report.html").read_text(encoding="utf-8")
        return json.loads(Path("out/one/report.json").read_text(encoding="utf-8")), page, Reader(page)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run(tmp_path)


def counts_of(name: str) -> dict[str, Any]:
    return artifacts.require(Path("out/one/eval") / name, "all")["counts"]


def test_the_report_has_the_numbers_of_the_manifests(run: Run):
    found, _, page = run.report()
    assert set(found) == {"verdict", "gates", "stages"}
    assert found["verdict"] == verdicts.read(Path("out/one"), "merged", Path("models/one/merged")).overall
    for name in ("base", "merged"):
        counts = counts_of(name)
        shown = {gate: one[name] for gate, one in found["gates"].items()}
        assert shown["loss"] == {row: one for row, one in counts["loss"].items() if row != measure.GENERAL}
        assert shown["tool_calls"] | shown["replay"] == counts["tool_calls"]
        assert shown["skills"] == counts["skills"]
        for kind in ("loss", "tool_calls", "skills", "rules"):
            for one in (one for row, one in counts[kind].items() if row != measure.GENERAL):
                value, _, interval = str(stats.from_json(one)).strip().partition(" ")
                assert value + " " + interval in page.text
    for name, path in (("train", "out/one/adapter"), ("eval-merged", "out/one/eval/merged")):
        manifest = artifacts.require(Path(path), "all")
        assert found["stages"][name] == {key: manifest[key] for key in ("seconds", "peak_mb")}
        assert artifacts.digest(manifest)[:12] in page.text
    for text in ("135,424", "89,394", "plain", "backend unsloth not used: no <CUDA> device"):
        assert text in page.text


def test_what_the_model_wrote_stays_text(run: Run):
    _, _, page = run.report()
    assert page.text.count(ATTACK) > 10
    assert not {name for name, _ in page.tags} & {"script", "img", "iframe", "object", "link", "base"}
    assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on")]


def test_the_page_needs_no_other_file(run: Run):
    _, page, parsed = run.report()
    assert not re.search(r"url\(|@import|https?://", page)
    assert not [key for _, attributes in parsed.tags for key in attributes if key in ("src", "href")]


def test_without_nvfp4_the_report_says_so(run: Run):
    found, _, page = run.report()
    assert "NVFP4: not measured yet" in page.text
    assert "make eval-nvfp4" in page.text
    assert all("nvfp4" not in gate for gate in found["gates"].values())


def test_with_nvfp4_all_three_stand_side_by_side(run: Run):
    run.quantize(right=79)
    found, _, page = run.report()
    assert "not measured yet" not in page.text
    for gate in found["gates"].values():
        assert {"base", "merged", "nvfp4"} <= gate.keys()
    assert "NVFP4 keeps 88% of the gain in skills" in page.text  # (79 - 2) / (90 - 2)
    assert "made with FORCE=1" in page.text
    assert found["verdict"] == verdicts.read(Path("out/one"), "nvfp4", Path("models/one/nvfp4")).overall


def test_a_degraded_nvfp4_is_what_the_verdict_says(run: Run):
    run.quantize(right=0)
    found, _, page = run.report()
    assert found["verdict"] != IMPROVES
    assert "It goes no further" in page.text


def test_an_old_verdict_is_refused(run: Run):
    artefact(Path("models/one/merged"), "checkpoint", {"w": "another"})
    with pytest.raises(UserError, match=r"judges another checkpoint.*make eval$"):
        run.report()


def test_measurements_of_other_rows_are_refused(run: Run):
    artefact(Path("data/tiny/dataset"), "dataset", {"eval.jsonl": ""})
    with pytest.raises(UserError, match=r"the dataset changed since: make eval$"):
        run.report()


def test_a_failed_report_leaves_the_old_one(run: Run):
    _, page, _ = run.report()
    artefact(Path("models/one/merged"), "checkpoint", {"w": "another"})
    with pytest.raises(UserError):
        run.report()
    assert Path("out/one/report.html").read_text(encoding="utf-8") == page
