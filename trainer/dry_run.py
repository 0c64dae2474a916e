"""`make dry-run`: twenty real steps, the longest rows among them; predicted and measured side by side."""

import json
import shutil

from core import artifacts, config, errors
from core.progress import clock
from core.settings import TrainSettings
from trainer.planning import forecast
from trainer.planning.forecast import Forecast
from trainer.planning.memory import measured
from trainer.running import attempts, preparation, room
from trainer.worker import Result

STEPS = 20


def main(words: list[str]) -> int:
    """Run them and throw the adapter away; exit code 0, or 1 above MEMORY_LIMIT, predicted or measured.

    Production is stopped and started as for a training. `make plan` and `make train` take the rate from here.
    """
    settings = config.parse(TrainSettings, words)
    prepared = preparation.prepare(settings, "dry-run")
    out, scratch = settings.out_dir, settings.out_dir / "dry-run"
    above = prepared.forecast.above(settings)
    if above:
        print(f"dry-run: not run, it would take {above}")
        return errors.NEGATIVE
    out.mkdir(parents=True, exist_ok=True)
    with artifacts.locked(out):
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            task = preparation.task(settings, words, prepared.backend, scratch, scratch / "adapter")
            with room.made(settings, prepared.forecast.estimate.peak):
                result, done = attempts.carry_out(settings, task.dry(min(STEPS, prepared.forecast.steps)))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if done.batch != settings.batch_size:
            print(f"dry-run: BATCH_SIZE={done.batch} ACCUMULATE={done.accumulate} is what fits")
        figures = {"tokens_per_second": result.counts["tokens_per_second"], "peak": result.counts["peak"]}
        artifacts.write_atomically(out / forecast.RATE, json.dumps(figures) + "\n")
    print(table(settings, prepared.forecast, result))
    above = forecast.too_much(settings, measured(result.counts["peak"], prepared.forecast.place))
    if above:
        print(f"dry-run: {above}")
        return errors.NEGATIVE
    return errors.DONE


def table(settings: TrainSettings, predicted: Forecast, result: Result) -> str:
    """Predicted and measured, a line each of memory, speed and time."""
    rate, peak = result.counts["tokens_per_second"], measured(result.counts["peak"], predicted.place)
    before = f"{predicted.rate:,.0f}" if predicted.rate else "unknown"
    seconds = clock(predicted.seconds) if predicted.seconds else "unknown"
    off = predicted.estimate.peak / peak - 1
    rows = [
        ("", "predicted", "measured", ""),
        ("peak memory, MB", f"{predicted.estimate.peak / 1e6:,.0f}", f"{peak / 1e6:,.0f}", f"{off:+.1%}"),
        ("tokens a second", before, f"{rate:,.0f}", ""),
        (f"all {predicted.steps:,} steps", seconds, clock(predicted.tokens / rate), ""),
    ]
    return "\n".join(f"dry-run: {a:<20}{b:>12}{c:>12}{d:>9}".rstrip() for a, b, c, d in rows)


if __name__ == "__main__":
    errors.run(main)
