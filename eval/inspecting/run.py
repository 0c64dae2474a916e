"""Cases run by Inspect (inspect-ai): its concurrency, its logs with their viewer, its cache of answers.

Every kind of case is a task. What the model is asked goes to it word for word, as `extra_body`: Inspect's own
form of a tool leaves out parts of its JSON schema. The log of a run is in `log_dir`; the cache holds the
answers of cases that can be repeated, so that an interrupted run asks only what is missing.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from core.chat import Message, Tool
from core.errors import UserError
from core.progress import Progress
from eval.cases import Case, Found
from eval.inspecting.messages import as_inspect
from eval.inspecting.model import wrap
from eval.live.link import Disturbed
from eval.models import Model

if TYPE_CHECKING:
    import inspect_ai
    from inspect_ai.scorer import Scorer
    from inspect_ai.solver import Solver

Result = tuple[Case, list[Message], Found]
"""A case, the model's trace, what its judge found."""


async def run(
    cases: Sequence[Case],
    model: Model,
    *,
    checkpoint: str,
    max_tokens: int,
    log_dir: Path,
    cache_dir: Path,
    what: str,
) -> list[Result]:
    """Every case's trace and finding, in the order of the cases.

    `checkpoint` is the digest of the weights, under which answers are kept in `cache_dir`. Raises UserError
    where a case got no answer: the others' are kept, and none is left out.
    """
    os.environ |= {"INSPECT_CACHE_DIR": str(cache_dir.absolute()), "INSPECT_DISPLAY": "none"}
    from inspect_ai import eval_async
    from inspect_ai.util import display_type

    display_type()  # reads INSPECT_DISPLAY: eval_async alone would print tables

    ordered = sorted(cases, key=lambda case: case.kind)
    groups = [list(group) for _, group in itertools.groupby(ordered, key=lambda case: case.kind)]
    state = _State(checkpoint, max_tokens, Progress(what, len(cases)))
    await eval_async(
        [_task(group, state) for group in groups],
        model=wrap(model),
        log_dir=str(log_dir.absolute()),
        log_level="error",
        max_tasks=len(groups),
        max_samples=len(cases),
        max_connections=len(cases),
        fail_on_error=False,
        log_model_api=False,
        log_realtime=False,
        score_display=False,
    )
    state.progress.close()
    state.complain(cases)
    return [state.results[case.kind, case.id] for case in cases]


@dataclass
class _State:
    """A run under way."""

    checkpoint: str
    max_tokens: int
    progress: Progress
    results: dict[tuple[str, str], Result] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)

    @contextlib.contextmanager
    def noting_errors(self) -> Iterator[None]:
        """Keep what is raised: Inspect's log has only its text."""
        try:
            yield
        except Exception as error:
            self.errors.append(error)
            raise

    def complain(self, cases: Sequence[Case]) -> None:
        """Raise where a case has no result: UserError on what the user can mend, a defect as it is."""
        missing = [case for case in cases if (case.kind, case.id) not in self.results]
        if not missing:
            return
        for error in self.errors:
            if not isinstance(error, UserError | Disturbed):
                raise error
        reason = f" ({self.errors[0]})" if self.errors else ""
        raise UserError(
            f"{len(missing)} of {len(cases)} cases got no answer{reason}; the others' are kept: mend that, "
            "then the same command"
        )


def _task(cases: Sequence[Case], state: _State) -> "inspect_ai.Task":
    from inspect_ai import Task
    from inspect_ai.dataset import MemoryDataset, Sample

    by_id = {case.id: case for case in cases}
    samples = [
        Sample(id=case.id, input=as_inspect(case.opening), metadata={"bucket": case.bucket}) for case in cases
    ]
    return Task(
        name=cases[0].kind,
        dataset=MemoryDataset(samples),
        solver=_solver(by_id, state),
        scorer=_scorer(by_id, state),
    )


def _solver(by_id: dict[str, Case], run_state: _State) -> "Solver":
    from inspect_ai.model import CachePolicy, GenerateConfig, get_model
    from inspect_ai.solver import Generate, Solver, TaskState, solver

    policy = CachePolicy(expiry=None, per_epoch=False, scopes={"checkpoint": run_state.checkpoint})

    @solver
    def act() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            case = by_id[str(state.sample_id)]

            async def ask(messages: list[Message], tools: list[Tool]) -> Message:
                question = {"messages": messages, "tools": tools, "max_tokens": run_state.max_tokens}
                output = await get_model().generate(
                    as_inspect(messages),
                    config=GenerateConfig(extra_body=question | {"thinking": case.thinking}),
                    cache=policy if case.repeatable else False,
                )
                assert output.metadata is not None
                return output.metadata["message"]

            with run_state.noting_errors():
                trace = await case.act(ask)
            state.messages += as_inspect(trace)
            state.metadata["trace"] = trace
            return state

        return solve

    return act()


def _scorer(by_id: dict[str, Case], run_state: _State) -> "Scorer":
    from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer
    from inspect_ai.solver import TaskState

    @scorer(metrics=[accuracy()])
    def judged() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            case, trace = by_id[str(state.sample_id)], state.metadata["trace"]
            with run_state.noting_errors():
                found = await case.judge(trace)
            run_state.results[case.kind, case.id] = (case, trace, found)
            run_state.progress.step()
            return Score(
                value=CORRECT if found["right"] else INCORRECT,
                explanation=found["explanation"],
                metadata=dict(found),
            )

        return score

    return judged()
