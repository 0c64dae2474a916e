"""What a run tells while it trains: `metrics.jsonl`, `loss.png`, and a tracker where one is asked for."""

import contextlib
import json
import os
import statistics
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core import artifacts
from core.errors import UserError, did_you_mean

TRACKERS = {"tensorboard": "TENSORBOARD_LOGGING_DIR", "trackio": "TRACKIO_DIR"}
"""And the environment variable that says where each writes."""
STEP = {
    "step": "step",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "token_accuracy": "mean_token_accuracy",
}
"""Our names of a step's figures, and the trainer's."""

Entry = dict[str, Any]


class Metrics:
    """A file of one JSON object a line, appended as the run goes; a run that resumes repeats no step."""

    def __init__(self, path: Path, after_step: int) -> None:
        """Keep the lines up to `after_step` of what an earlier run wrote."""
        self.path = path
        kept = [line for line in _whole_lines(path) if json.loads(line)["step"] <= after_step]
        path.parent.mkdir(parents=True, exist_ok=True)
        artifacts.write_atomically(path, "".join(f"{line}\n" for line in kept))

    def append(self, entry: Entry) -> None:
        """Write one entry; a full disk costs the entry and not the run."""
        with _forgiven(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def draw(self, log: list[Entry]) -> None:
        """Draw the curves so far beside the file."""
        path = self.path.with_name("loss.png")
        with _forgiven(path):
            plot(log, path)


def read(path: Path) -> list[Entry]:
    """The entries of a metrics.jsonl, of a run that goes on as well."""
    return [json.loads(line) for line in _whole_lines(path)]


def rate(out: Path) -> int | None:
    """Tokens a second of the run with this metrics.jsonl, the median of its steps; None where it has none."""
    found = [
        entry["tokens_per_second"] for entry in read(out / "metrics.jsonl") if "tokens_per_second" in entry
    ]
    return round(statistics.median(found)) if found else None


def train_steps(log: list[Entry]) -> list[Entry]:
    """The entries of a trainer's log that describe an optimiser step, without what depends on the time."""
    return [
        {name: entry[theirs] for name, theirs in STEP.items() if theirs in entry}
        for entry in log
        if "loss" in entry
    ]


def evaluations(log: list[Entry]) -> list[Entry]:
    """The entries of a trainer's log that describe an evaluation."""
    return [entry for entry in log if "eval_loss" in entry]


def plot(log: list[Entry], path: Path) -> None:
    """Draw the training loss, and the held-out rows' where there are evaluations; log scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    steps, held_out = train_steps(log), evaluations(log)
    axes.plot([e["step"] for e in steps], [e["loss"] for e in steps], linewidth=0.8, label="train")
    if held_out:
        axes.plot([e["step"] for e in held_out], [e["eval_loss"] for e in held_out], "o-", label="held out")
        axes.legend()
    axes.set(xlabel="optimiser step", ylabel="loss (assistant tokens)", yscale="log", title="Training loss")
    figure.tight_layout()
    figure.savefig(path, format="png", dpi=100, metadata={"Software": None})
    pyplot.close(figure)


def write(log: list[Entry], directory: Path) -> None:
    """Write an adapter's `loss.jsonl`, one line an optimiser step, and `loss.png`."""
    lines = "".join(json.dumps(step) + "\n" for step in train_steps(log))
    (directory / "loss.jsonl").write_text(lines, encoding="utf-8")
    plot(log, directory / "loss.png")


def report_to(tracker: str, out: Path) -> list[str]:
    """transformers' `report_to` for the setting TRACKER; it writes under `out`, and to no server.

    UserError on an unknown name or a package that is not installed.
    """
    if not tracker:
        return []
    if tracker not in TRACKERS:
        hint = did_you_mean(tracker, TRACKERS)
        raise UserError(f"TRACKER={tracker}: no such tracker{hint}; have {', '.join(TRACKERS)}, or blank")
    if find_spec(tracker) is None:
        raise UserError(f"TRACKER={tracker}: not installed: .venv/bin/pip install {tracker}, or TRACKER=")
    os.environ[TRACKERS[tracker]] = str((out / tracker).absolute())
    return [tracker]


@contextlib.contextmanager
def _forgiven(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        print(f"train: {path}: {error.strerror}; training goes on", file=sys.stderr)


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file but a last one that a kill cut off; none where there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return text.split("\n")[:-1]
