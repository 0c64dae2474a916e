"""A small training in the process of the test: the tiny base, ten short rows, a moment a step."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, shards
from core.settings import TrainSettings
from trainer.backends import plain
from trainer.job import Job
from trainer.learning import samples, sft
from trainer.planning import plan

BUCKETS = ("mcp", "skills", "replay")
WORDS = (
    "PROFILE=tiny",
    "RUN=x",
    "TRAIN_SEED=0",
    "BATCH_SIZE=2",
    "EPOCHS=1",
    "EVAL_STEPS=0",
    "LORA_DROPOUT=0.1",
)


def rows(count: int, split: str = "train") -> list[chat.Row]:
    """Rows of different lengths, some without loss on their first turn."""
    return [
        chat.Row(
            id=f"{split}-{i:02}",
            bucket=BUCKETS[i % len(BUCKETS)],
            group=f"{split}-{i}",
            split=split,
            messages=[
                chat.user(f"Busca {i} " + "notas y tareas, " * (i % 5)),
                chat.say("una" + " más" * (i % 4), think="Primero."),
                chat.user("¿Y ahora?"),
                chat.say(f"Hecho {i}.", think="Luego" + " otra vez" * (i % 3)),
            ],
            tools=[],
            train_turns=[1] if i % 4 == 0 else None,
        )
        for i in range(count)
    ]


@dataclass
class Training:
    """A run in a directory of its own, which it goes on in when started again."""

    directory: Path
    base: Path
    words: tuple[str, ...] = ()
    log: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    batch: int = 0

    def start(self) -> "Training":
        """Train to the end, or until what the test planted."""
        dataset = self.directory / "data/tiny/dataset"
        dataset.mkdir(parents=True, exist_ok=True)
        chat.write_rows(dataset / "train.jsonl", rows(10))
        chat.write_rows(dataset / "eval.jsonl", rows(6, "eval"))
        before = Path.cwd()
        os.chdir(self.directory)
        try:
            job = self.job()
            model, tokenizer = plain.load(job)
            read = samples.read(Path("data/tiny/dataset/train.jsonl"), tokenizer, job.settings.max_length)
            self.log = sft.train(model, tokenizer, read, job)
            model.save_pretrained("adapter")
        finally:
            os.chdir(before)
        return self

    def job(self) -> Job:
        """What a worker would make of the words."""
        given = dict(word.split("=", 1) for word in (*WORDS, f"MODELS_DIR={self.base.parent}", *self.words))
        settings = config.parse(TrainSettings, [f"{name}={value}" for name, value in given.items()])
        batch = self.batch or settings.batch_size
        return Job(
            settings=settings,
            plan=plan.of(settings, shards.read_checkpoint(settings.base_dir)),
            out=Path("out/x"),
            states=Path("out/x/states/job"),
            batch=batch,
            accumulate=settings.batch_size * settings.accumulate // batch,
            steps=self.steps,
        )

    @property
    def states(self) -> Path:
        """Where its states lie."""
        return self.directory / "out/x/states/job"

    @property
    def metrics(self) -> Path:
        """Its metrics.jsonl."""
        return self.directory / "out/x/metrics.jsonl"

    def losses(self) -> list[float]:
        """The loss of each step."""
        return [entry["loss"] for entry in self.log if "loss" in entry]

    def adapter(self) -> str:
        """Digest of the adapter's weights."""
        return artifacts.file_sha256(self.directory / "adapter/adapter_model.safetensors")

    def copy(self, directory: Path) -> "Training":
        """The same run as it lies on the disk, elsewhere."""
        shutil.copytree(self.directory, directory)
        return Training(directory, self.base, self.words)
