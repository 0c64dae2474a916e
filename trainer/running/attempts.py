"""Let the training process do a task: smaller steps where memory runs out, every other end explained."""

import signal
from dataclasses import replace

from core.errors import UserError
from core.settings import TrainSettings
from trainer import worker
from trainer.checks.check import size
from trainer.job import Task
from trainer.running import launch, scope, supervise
from trainer.running.memory_guard import Guard

SMALLER = "lower BATCH_SIZE or MAX_LENGTH, or stop other programs"
GOES_ON = "the same command goes on from the last state"


def carry_out(settings: TrainSettings, task: Task) -> tuple[worker.Result, Task]:
    """The worker's result, and the task as it was done in the end.

    Where memory runs out, a device step takes half the rows and an optimiser step twice the device steps,
    which changes neither the order of rows nor what an optimiser step sees; it goes on from the last state.
    Raises UserError where it failed for a reason that the user can mend, KeyboardInterrupt where the user
    stopped it, AssertionError after the worker's traceback.
    """
    while True:
        task.result.unlink(missing_ok=True)
        guard = Guard(settings.profile.train.memory_reserve)
        command = scope.limited(launch.command(settings, task), settings.memory_limit)
        ending = supervise.run(command, guard)
        result = worker.read_result(task)
        if result and result.outcome == "done":
            return result, task
        if ending.interrupted:
            print(f"train: {result.message if result else 'stopped'}; {GOES_ON}", flush=True)
            raise KeyboardInterrupt
        if guard.lowest:
            raise UserError(_guarded(guard, result))
        if ending.out_of_memory or (result and result.outcome == "memory"):
            smaller = halved(task)
            if smaller is None:
                raise UserError(
                    f"memory ran out with one row a step: lower MAX_LENGTH or LORA_RANK; {GOES_ON}"
                )
            print(
                f"train: memory ran out with {task.batch} rows a device step; now {smaller.batch}, "
                f"{smaller.accumulate} device steps an optimiser step",
                flush=True,
            )
            task = smaller
            continue
        if result and result.outcome == "mistake":
            raise UserError(result.message)
        if ending.code < 0:
            raise UserError(
                f"the training process was killed ({signal.Signals(-ending.code).name}); {GOES_ON}"
            )
        raise AssertionError(f"the training process failed with exit code {ending.code}, see above")


def halved(task: Task) -> Task | None:
    """The same task with half the rows a device step (one, where they are odd); None where it is one row."""
    if task.batch == 1:
        return None
    factor = 2 if task.batch % 2 == 0 else task.batch
    return replace(task, batch=task.batch // factor, accumulate=task.accumulate * factor)


def _guarded(guard: Guard, result: worker.Result | None) -> str:
    assert guard.lowest
    left = f"only {size(guard.lowest.available)} of {size(guard.lowest.total)} of memory were left"
    if guard.killed:
        return f"{left}, so the training was killed before the machine froze: {SMALLER}; {GOES_ON}"
    said = f" ({result.message})" if result and result.message else ""
    return f"{left}, so the training saved and stopped{said}: {SMALLER}; {GOES_ON}"
