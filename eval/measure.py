"""What one checkpoint does on the held-out rows: its answers in every case, and its losses."""

import contextlib
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from core import artifacts, chat, endpoint
from core.artifacts import Draft
from core.chat import Message, Row
from core.endpoint import Endpoint
from core.errors import UserError
from core.profile import Data
from core.rules import NOT_JUDGED
from core.settings import EvalSettings
from eval import held_out, judging, outcomes, row_cases
from eval.cases import Case, Found
from eval.evaluations import CACHE, LOGS, SAMPLES, answers_dir, losses_dir, unless_known
from eval.gates import loss
from eval.inspecting import run as harness
from eval.judging import Judge, Reader
from eval.live import cases as live_cases
from eval.live import tasks as live_tasks
from eval.live.tasks import Task
from eval.live.world import world
from eval.models.local import LocalModel
from eval.models.served import ServedModel
from eval.models.serving import started
from eval.models.weights import Weights
from eval.outcomes import Sample

TURN = ("tool_calls", "thinking_off", "formality")
"""Kinds of samples that are one turn of the model's."""


def losses(name: str, checkpoint: Path, target: str, weights: Weights, settings: EvalSettings) -> None:
    """Measure the losses of `checkpoint` on the held-out rows, where they are not known.

    `target` is make's name for the stage that makes the checkpoint. Raises UserError on what is missing.
    """
    rows, inputs = held_out.read(checkpoint, target, settings)
    recorded = {"EVAL_LIMIT": settings.eval_limit}
    with unless_known(losses_dir(settings.out_dir, name), recorded, inputs, settings) as draft:
        if draft is None:
            return
        found = loss.measure(rows, weights.model, weights.tokenizer, what=f"eval: {name} losses")
        _write(
            draft, [_sample("loss", row, loss=one) for row, one in zip(rows, found, strict=True)], settings
        )


def answers(name: str, checkpoint: Path, target: str, weights: Weights, settings: EvalSettings) -> None:
    """Let `checkpoint` answer the held-out rows and do the live tasks, where that is not known.

    The base's answers come from ENDPOINT where it is set; else from the server that SERVE_CMD starts, as any
    other's, so that both are sampled alike; else from `weights`. With TEACHER, its model decides the rules
    that no program can. Raises UserError on what is missing, and on broken rules, fixtures or tasks before
    any weight is loaded.
    """
    rows, inputs = held_out.read(checkpoint, target, settings)
    tasks = _live(settings)
    inputs["rules"] = held_out.rules_input(rows, calibrations=bool(settings.teacher))
    if tasks:
        for what, file in (("live", settings.live), ("servers", settings.mcp_config)):
            inputs[what] = {"path": str(file), "sha256": artifacts.file_sha256(file)}
    production = settings.endpoint if name == "base" else ""
    served = "" if production else settings.serve_cmd
    recorded = {
        "EVAL_LIMIT": settings.eval_limit,
        "HELD_OUT_SKILLS": list(settings.held_out_skills),
        "ENDPOINT": production,
        "SERVE_CMD": served,
        "AGENT_CMD": settings.agent_cmd,
        "TEACHER": settings.teacher,
    }
    with unless_known(answers_dir(settings.out_dir, name), recorded, inputs, settings) as draft:
        if draft is None:
            return
        row_cases.of(rows)  # broken rules are said before a server is started
        judge = _judge(rows, settings)
        with contextlib.ExitStack() as stack:
            server = None
            if production:
                server = endpoint.connect(production)
            elif served:
                log, minutes = settings.out_dir / "eval" / "serve.log", settings.profile.health.minutes
                server = stack.enter_context(started(served, checkpoint, log, minutes))
            digest = inputs["checkpoint"]["sha256"]
            _answer(name, rows, tasks, server or weights, judge, digest, draft, settings)


def _live(settings: EvalSettings) -> list[Task]:
    """The tasks of LIVE; none where the profile has no such gate."""
    if "live" not in settings.profile.gates:
        return []
    rows = chat.read_rows(settings.data_dir / "dataset" / "eval.jsonl")
    tasks, skipped = live_tasks.load(settings.live, settings.mcp_config, rows)
    print(*(f"eval: {line}" for line in skipped), sep="\n", end="\n" if skipped else "")
    return tasks + (live_tasks.for_agents(tasks, settings.mcp_config, rows) if settings.agent_cmd else [])


def _judge(rows: Sequence[Row], settings: EvalSettings) -> Judge | None:
    """The model of TEACHER, as far as it has proven to be a judge."""
    if not settings.teacher:
        return None
    judge, refused = judging.calibrated(rows, endpoint.connect(settings.teacher, "TEACHER"))
    print(*(f"eval: {line}" for line in refused), sep="\n", end="\n" if refused else "")
    return judge


def _answer(
    name: str,
    rows: Sequence[Row],
    tasks: Sequence[Task],
    asked: Weights | Endpoint,
    judge: Judge | None,
    digest: str,
    draft: Draft,
    settings: EvalSettings,
) -> None:
    """Let the model of `asked` act in every case; write the samples, and who answered."""
    data = settings.profile.data
    assert data is not None  # its rows were made from it
    shown = data.tools_shown if isinstance(data, Data) else 0
    command, start = settings.agent_cmd, time.monotonic()
    if command and isinstance(asked, Weights):
        raise UserError(
            "AGENT_CMD needs a served model: set ENDPOINT for the base, SERVE_CMD for the other checkpoints"
        )
    beside = draft.path.parent
    log_dir, cache_dir = beside / LOGS / name, beside / CACHE
    shutil.rmtree(log_dir, ignore_errors=True)

    async def act() -> list[harness.Result]:
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(asked, Weights):
                model, server = LocalModel(asked), None
            else:
                model, server = await stack.enter_async_context(ServedModel(asked)), asked
            draft.backend = {"name": model.name, "parser": model.parser}
            reader = None
            if judge:
                reader = Reader(judge.may, (await stack.enter_async_context(ServedModel(judge.server))).ask)
            cases = row_cases.of(rows, reader)
            if tasks:
                here = world(settings.mcp_config, tasks, shown, for_agent=bool(command))
                cases += live_cases.of(tasks, await stack.enter_async_context(here), command, server)
            return await harness.run(
                cases,
                model,
                checkpoint=digest,
                max_tokens=data.answer_tokens,
                log_dir=log_dir,
                cache_dir=cache_dir,
                what=f"eval: {name} answers",
            )

    found = [as_sample(*one) for one in anyio.run(act)]
    _write(draft, found, settings)
    draft.counts |= {
        "judged_by": draft.backend["parser"],
        "model": draft.backend["name"],
        "seconds": {"answers": round(time.monotonic() - start, 1)},
    }
    if judge:
        given = judging.verdicts(found)
        draft.counts["judge"] = {"model": judge.server.model, "rules": len(judge.may), **given}
        if given[NOT_JUDGED]:
            print(f"eval: {judge.server} gave no verdict in {given[NOT_JUDGED]} of {given.total()} answers")
    shutil.rmtree(cache_dir, ignore_errors=True)


def as_sample(case: Case, trace: list[Message], found: Found) -> Sample:
    """What is kept of a case."""
    acted = {"message": trace[0]} if case.kind in TURN else {"trace": trace}
    return {"kind": case.kind, "id": case.id, "bucket": case.bucket, "skill": case.skill, **acted, **found}


def _sample(kind: str, row: Row, **found: Any) -> Sample:
    return {"kind": kind, "id": row.id, "bucket": row.bucket, "skill": row.skill, **found}


def _write(draft: Draft, found: Sequence[Sample], settings: EvalSettings) -> None:
    with (draft.path / SAMPLES).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(sample, ensure_ascii=False) + "\n" for sample in found)
    draft.counts = outcomes.counts(outcomes.outcomes(found, settings.held_out_skills))
