"""`make train`: a LoRA adapter in PEFT's layout, from whichever backend can run here.

An adapter is never overwritten by one of other settings: the run stops and names both ways on. The training
itself runs in a child process (`trainer.worker`), so that this one, which loads no model, can free the memory
before and start production again after, however the training ends.
"""

import hashlib
import json
import shutil
from typing import Any

from core import artifacts, config, errors
from core.errors import UserError
from core.settings import TrainSettings
from trainer.checks.check import size
from trainer.planning.memory import measured
from trainer.running import attempts, preparation, room


def main(words: list[str]) -> int:
    """Train; exit code 0. UserError where an input is missing or the adapter there is another's."""
    settings = config.parse(TrainSettings, words)
    profile, path = settings.profile, settings.out_dir / "adapter"
    recorded, inputs = config.recorded(settings), preparation.inputs_of(settings)
    there = artifacts.read_manifest(path)
    changed = artifacts.differences(there, recorded, inputs)
    if not changed:
        print(f"train: up to date ({path})")
        return errors.DONE
    if there is not None and not settings.retrain:
        raise UserError(
            f"{path} was trained otherwise: {', '.join(changed)}. Repeat those settings, or keep both with "
            f"make train RUN=<new name>, or train anew over it with make train RETRAIN=1"
        )
    prepared = preparation.prepare(settings, "train")
    forecast, planned = prepared.forecast, prepared.forecast.plan
    if above := forecast.above(settings):
        raise UserError(f"it would take {above}")
    states = settings.out_dir / "states" / _job_digest(recorded, inputs)
    if settings.node_rank:
        task = preparation.task(settings, words, prepared.backend, states, path)
        with room.made(settings, forecast.estimate.peak):
            attempts.carry_out(settings, task)
        shutil.rmtree(task.result.parent)
        print("train: this machine's part is done; the first one has the adapter")
        return errors.DONE
    with artifacts.create(
        path, kind="adapter", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        task = preparation.task(settings, words, prepared.backend, states, draft.path)
        with room.made(settings, forecast.estimate.peak):
            result, done = attempts.carry_out(settings, task)
        draft.backend = {"name": prepared.backend, "reasons": prepared.reasons, **result.backend}
        draft.counts = {
            **result.counts,
            "modules": len(planned.modules) + len(planned.target_parameters),
            "trainable_parameters": planned.parameters,
            "device_batch": done.batch,
            "predicted_peak_mb": forecast.estimate.peak >> 20,
            "measured_peak_mb": measured(result.counts["peak"], forecast.place) >> 20,
        }
    shutil.rmtree(states.parent, ignore_errors=True)
    peak = measured(draft.counts["peak"], forecast.place)
    print(f"train: peak memory {size(peak)}, predicted {size(forecast.estimate.peak)}")
    print(f"train: loss {draft.counts['first_loss']} -> {draft.counts['last_loss']}, adapter at {path}")
    return errors.DONE


def _job_digest(recorded: dict[str, Any], inputs: dict[str, dict[str, str]]) -> str:
    whole = json.dumps([recorded, [entry["sha256"] for entry in inputs.values()]], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


if __name__ == "__main__":
    errors.run(main)
