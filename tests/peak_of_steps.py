"""Trains some steps of rows of many lengths on the tiny model; prints the predicted and the measured peak."""

import json
import random
import sys
from pathlib import Path

from core import artifacts, config, shards
from core.settings import TrainSettings
from trainer import backends
from trainer.job import Job
from trainer.learning import order
from trainer.learning.samples import Sample
from trainer.planning import memory, plan

STEPS = 20


def main() -> None:
    """`<models> <scratch> <rows a step> <tokens of the longest row>`."""
    models, scratch, batch, length = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    words = ["PROFILE=tiny", "RUN=peak", f"MODELS_DIR={models}", "TRAIN_SEED=100", "EPOCHS=1", "EVAL_STEPS=0"]
    settings = config.parse(TrainSettings, [*words, f"BATCH_SIZE={batch}", f"MAX_LENGTH={length}"])
    tensors = shards.read_checkpoint(settings.base_dir)
    planned = plan.of(settings, tensors)
    most = memory.AT_ONCE["cpu"]
    job = Job(
        settings=settings, plan=planned, out=scratch, states=scratch / "states", batch=batch, accumulate=1,
        tokens=most,
    )  # fmt: skip
    backend = backends.module("plain")
    model, tokenizer = backend.load(job)
    rng = random.Random(100)
    lengths = [length] * batch + [rng.randint(length // 4, length) for _ in range((STEPS - 1) * batch)]
    rows = [[rng.randrange(1000) for _ in range(count)] for count in lengths]
    samples = [
        Sample(ids, [-100] * (len(ids) // 2) + ids[len(ids) // 2 :], str(i), "made")
        for i, ids in enumerate(rows)
    ]
    backend.fit(model, tokenizer, samples, job)
    said = memory.estimate(
        settings,
        tensors,
        memory.read_config(settings.base_dir),
        planned,
        tokens=order.tokens_at_once(length, batch, most),
        place="cpu",
    )
    print(json.dumps({"predicted_mb": said.peak >> 20, "measured_mb": artifacts.peak_mb()}))


if __name__ == "__main__":
    main()
