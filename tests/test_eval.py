"""Evaluation: gates that see what they should and nothing else, and the stage that runs them."""

import json
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import artifacts, chat, generate, verdicts
from core.chat import Row
from core.render import IGNORE, Rendered, render
from eval import measure
from eval.gates import loss, tool_calls

TOOL = chat.tool(
    "mcp__git__git_log",
    "Shows commits",
    {
        "properties": {"repo_path": {"type": "string"}, "max_count": {"type": "integer"}},
        "required": ["repo_path"],
        "type": "object",
    },
)
GOLD = chat.call("mcp__git__git_log", {"repo_path": "web/api", "max_count": 3}, think="Use it.")
CALL = "<tool_call>\n<function=mcp__git__git_log>\n{}</function>\n</tool_call>"
PATH = "<parameter=repo_path>\nweb/api\n</parameter>\n"
COUNT = "<parameter=max_count>\n3\n</parameter>\n"


def row(messages: list[chat.Message], train_turns: list[int] | None = None) -> Row:
    return Row(
        id="r", bucket="b", group="g", split="eval", messages=messages, tools=[TOOL], train_turns=train_turns
    )


def test_a_limit_takes_the_same_rows_in_any_order():
    rows = [replace(row([chat.user("x"), GOLD]), id=f"r-{i:03}", bucket=f"b{i % 3}") for i in range(30)]
    kept = measure.limited(random.Random(100).sample(rows, 30), 4)
    assert [one.id for one in kept] == [f"r-{i:03}" for i in range(12)]
    assert len(measure.limited(rows, 0)) == 30


# ---- tool calls --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "explanation"),
    [
        ("Use it.\n</think>\n\n" + CALL.format(PATH + COUNT), ""),
        ("Use it.\n</think>\n\n" + CALL.format(COUNT + PATH), ""),
        ("Use it.\n</think>\n\n" + CALL.format(PATH), "wrong values"),
        ("Use it.\n</think>\n\n" + CALL.format(PATH + COUNT.replace("3", "4")), "wrong values"),
        ("Use it.\n</think>\n\n" + CALL.format(PATH + COUNT.replace("3", "three")), "invalid"),
        ("Use it.\n</think>\n\n" + CALL.format(COUNT), "invalid"),
        ("Use it.\n</think>\n\n" + CALL.format(PATH + COUNT).replace("log", "show"), "wrong tool"),
        ("Use it.\n</think>\n\n" + 2 * CALL.format(PATH + COUNT), "2 calls"),
        ("Use it.\n</think>\n\nHecho.", "0 calls"),
        ("I keep thinking", "0 calls"),
    ],
)
def test_a_due_call_is_right_only_in_every_part(answer, explanation):
    score = tool_calls.score(row([chat.user("x"), GOLD]), answer)
    assert score.right == (explanation == "")
    assert explanation in score.explanation


def test_calls_of_one_turn_are_right_in_any_order_and_only_all_of_them():
    log = GOLD["tool_calls"][0]["function"]
    other = {"name": log["name"], "arguments": {**log["arguments"], "max_count": 7}}
    both = GOLD | {"tool_calls": [{"type": "function", "function": one} for one in (log, other)]}
    due = row([chat.user("x"), both])
    first, second = (CALL.format(PATH + COUNT.replace("3", n)) for n in ("3", "7"))
    assert tool_calls.score(due, "t\n</think>\n\n" + first + second).right
    assert tool_calls.score(due, "t\n</think>\n\n" + second + first).right
    assert "wrong values" in tool_calls.score(due, "t\n</think>\n\n" + first + first).explanation
    assert "1 calls where 2 are due" in tool_calls.score(due, "t\n</think>\n\n" + first).explanation


def test_where_no_call_is_due_text_is_right_a_call_and_silence_are_wrong():
    example = row([chat.user("gracias"), chat.say("De nada.", think="t")])
    assert tool_calls.score(example, "t\n</think>\n\nNo hay de qué.").right
    assert "no call is due" in tool_calls.score(example, "t\n</think>\n\n" + CALL.format(PATH)).explanation
    assert "dead turn" in tool_calls.score(example, "thinking and thinking").explanation


def test_the_model_sees_the_history_up_to_the_turn_to_judge():
    wrong = chat.call("mcp__git__git_log", {}, think="t")
    report = chat.say("Ha fallado.", think="t")
    closed = [chat.user("x"), GOLD, chat.result("ok"), chat.say("Listo.", think="t")]
    assert tool_calls.target(row(closed)) == 1
    mended = [chat.user("x"), wrong, chat.result("error"), GOLD, chat.result("ok")]
    assert tool_calls.target(row(mended, [1])) == 3
    failed = row([chat.user("x"), GOLD, chat.result("error"), report], [0, 1])
    assert tool_calls.history(failed) == failed.messages[:3]
    assert tool_calls.score(failed, "t\n</think>\n\nNo se pudo.").right
    assert not tool_calls.score(failed, "t\n</think>\n\n" + CALL.format(PATH + COUNT)).right


# ---- loss --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(base_dir: Path) -> Any:
    return generate.load_model(base_dir, "float32")


def conversations() -> list[Row]:
    """Rows of many lengths: one turn or several, one sample or two, some turns without loss."""
    made = []
    for number in range(9):
        said = chat.say("Listo: " + "uno dos " * number, think="Tool done.")
        messages = [chat.user("commits de web/api " * (number + 1)), GOLD, chat.result("ok"), said]
        if number % 3 == 0:
            messages += [chat.user("gracias"), chat.say("De nada.", think="t")]
        trained = [1] if number % 3 == 1 else None
        made.append(replace(row(messages, trained), id=f"r{number}"))
    return made


def test_the_loss_of_a_row_is_the_model_s_own_on_that_row_alone(model, tokenizer):
    import torch

    rows = conversations()
    for one, found in zip(rows, loss.measure(rows, model, tokenizer), strict=True):
        total = count = 0.0
        for sample in render(one, tokenizer):
            ids, labels = torch.tensor([sample.input_ids]), torch.tensor([sample.labels])
            with torch.inference_mode():
                own = sum(label != IGNORE for label in sample.labels[1:])
                total += own * float(model(input_ids=ids, labels=labels).loss)
            count += own
        assert found == pytest.approx(total / count, abs=1e-4)


def test_labels_a_place_off_are_another_loss(model, tokenizer):
    samples = [sample for one in conversations() for sample in render(one, tokenizer)]
    shifted = [Rendered(s.input_ids, [*s.labels[1:], IGNORE]) for s in samples]
    right, wrong = (loss.token_losses(model, some, tokenizer.pad_token_id) for some in (samples, shifted))
    assert len(right) == len(wrong)
    assert sum(wrong) > 1.5 * sum(right)


def test_losses_go_with_their_rows_in_any_order_and_company(model, tokenizer, monkeypatch):
    rows = conversations()
    found = loss.measure(rows, model, tokenizer)
    order = random.Random(100).sample(range(len(rows)), len(rows))
    assert loss.measure([rows[i] for i in order], model, tokenizer) == [found[i] for i in order]
    monkeypatch.setattr(loss, "BATCH_TOKENS", 1)
    monkeypatch.setattr(loss, "HEAD_TOKENS", 3)
    assert loss.measure(rows, model, tokenizer) == pytest.approx(found, abs=1e-4)


# ---- the stage ---------------------------------------------------------------------------------

WORDS = ("PROFILE=mini", "RUN=mini", "MODELS_DIR=models")


def suite(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`python -m eval.suite` in a copy of the project; stderr ends with whether torch was loaded."""
    code = (
        "import sys; from core import errors; from eval import suite\n"
        "try: errors.run(suite.main)\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *WORDS, *words], cwd=where, capture_output=True, text=True, check=False
    )


def manifest(path: Path) -> dict[str, Any]:
    """An artefact's manifest; it must be there."""
    return artifacts.require(path, "all")


@pytest.fixture(scope="module")
def evaluated(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project after `make merge`, evaluated."""
    where = tmp_path_factory.mktemp("evaluated") / "project"
    shutil.copytree(project, where, symlinks=True)
    done = suite(where)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return where


def test_both_checkpoints_are_measured_on_every_held_out_row(evaluated: Path):
    rows = {one.id: one for one in chat.read_rows(evaluated / "data/mini/dataset/eval.jsonl")}
    for name in ("base", "merged"):
        path = evaluated / "out/mini/eval" / name
        found = [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]
        assert sorted(s["id"] for s in found if s["kind"] == "loss") == sorted(rows)
        assert sorted(s["id"] for s in found if s["kind"] != "loss") == sorted(rows)
        for one in found:
            if one["kind"] != "loss":
                assert (one["kind"] == "skills") == (rows[one["id"]].bucket == "skills")
        counts = manifest(path)["counts"]
        again = measure.counts(found, held_out=("informe-historial",))
        assert {kind: counts[kind] for kind in again} == again
        assert counts["rules"]
        assert set(counts["seconds"]) == {"loss", "tool_calls", "skills", "formality"}


def test_the_verdict_is_that_of_the_bytes_it_judged(evaluated: Path):
    found = verdicts.read(evaluated / "out/mini", "merged", evaluated / "models/mini/merged")
    done = suite(evaluated)
    assert done.returncode == (0 if found.passes else 1)
    assert f"eval: merged against base: {found}" in done.stdout.splitlines()
    assert (evaluated / done.stdout.splitlines()[-1].removeprefix("report: ")).exists()
    assert set(found.gates) == {"loss", "tool_calls", "skills", "replay"}


def test_what_is_measured_is_not_measured_again(evaluated: Path):
    before = manifest(evaluated / "out/mini/eval/base")
    done = suite(evaluated)
    assert done.stdout.count("eval: up to date") == 2
    assert done.stderr.splitlines()[-1] == "False"
    assert manifest(evaluated / "out/mini/eval/base") == before


def test_force_lets_a_failed_verdict_pass_and_says_so(evaluated: Path):
    done = suite(evaluated, "FORCE=1")
    assert done.returncode == 0
    passes = verdicts.read(evaluated / "out/mini", "merged", evaluated / "models/mini/merged").passes
    assert ("FORCE=1" in done.stdout) != passes


def test_an_unknown_checkpoint_is_a_mistake(evaluated: Path):
    done = suite(evaluated, "CHECKPOINT=adapter")
    assert done.returncode == 2
    assert "CHECKPOINT=adapter: expected merged or nvfp4" in done.stderr


def artefact(path: Path, source: Path, inputs: dict[str, Any]) -> None:
    """An artefact with the payload of another."""
    with artifacts.create(
        path, kind="checkpoint", profile="mini", run="mini", settings={}, inputs=inputs
    ) as draft:
        for name, file in artifacts.payload(source).items():
            shutil.copyfile(file, draft.path / name)


def test_nvfp4_is_measured_by_its_own_copy_alone(evaluated: Path):
    models = evaluated / "models/mini"
    artefact(models / "nvfp4", evaluated / "data/mini/schemas", {})
    done = suite(evaluated, "CHECKPOINT=nvfp4")
    assert (done.returncode, "make dequantize" in done.stderr) == (2, True)
    other = artifacts.as_input(models / "merged", manifest(models / "merged"))
    artefact(models / "nvfp4-bf16", models / "merged", {"nvfp4": other})
    done = suite(evaluated, "CHECKPOINT=nvfp4")
    assert (done.returncode, "is of another checkpoint than" in done.stderr) == (2, True)
    assert not (evaluated / "out/mini/eval/nvfp4").exists()

    own = artifacts.as_input(models / "nvfp4", manifest(models / "nvfp4"))
    artefact(models / "nvfp4-bf16", models / "merged", {"nvfp4": own})
    done = suite(evaluated, "CHECKPOINT=nvfp4")
    assert done.returncode in (0, 1), done.stderr
    found = {name: manifest(evaluated / "out/mini/eval" / name)["counts"] for name in ("merged", "nvfp4")}
    for kind in measure.KINDS:
        assert found["nvfp4"][kind] == found["merged"][kind]
    assert verdicts.read(evaluated / "out/mini", "nvfp4", models / "nvfp4").gates
    header = next(line for line in done.stdout.splitlines() if line.startswith("held-out rows"))
    assert header.split()[3:] == ["base", "merged", "nvfp4"]
