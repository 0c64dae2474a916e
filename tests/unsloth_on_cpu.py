"""The real Unsloth as far as a CPU goes: run by .venv-unsloth's Python, prints one JSON line at the end.

Words: base, directory for the adapter, 1 for the experts too. Unsloth's own switch for its tests
(UNSLOTH_ALLOW_CPU) loads its code for GPUs; what it asks of the card is answered by a stand-in here.
"""

import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[1]
WORDS = ("PROFILE=tiny", "RUN=one", "TRAIN_SEED=0", "BATCH_SIZE=2", "EVAL_STEPS=0")
sys.path.insert(0, str(ROOT))

from core import chat, config, shards  # noqa: E402
from core.settings import TrainSettings  # noqa: E402
from tests.training import rows  # noqa: E402
from trainer.backends import adapter, unsloth  # noqa: E402
from trainer.job import Job  # noqa: E402
from trainer.learning import samples  # noqa: E402
from trainer.planning import plan  # noqa: E402


def main(base: str, out: str, experts: str) -> None:
    asked: list[str] = []
    refuse_network(asked)
    stand_in_for_the_card()
    job = make_job(Path(base), Path(out), experts)
    model, tokenizer = unsloth.load(job)
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    plan.check_trained({name: p.numel() for name, p in trainable.items()}, job.plan)
    start = {name: float(p.detach().double().sum()) for name, p in sorted(trainable.items())}
    losses = train(unsloth, model, tokenizer, job)
    adapter.save(model, job.out / "adapter")
    print(json.dumps({"start": start, "asked": asked, "losses": losses}))


def train(backend: Any, model: Any, tokenizer: Any, job: Job) -> list[float]:
    """The losses of its steps on a dozen rows."""
    job.out.mkdir(parents=True, exist_ok=True)
    chat.write_rows(job.out / "rows.jsonl", rows(12))
    read = samples.read(job.out / "rows.jsonl", tokenizer, job.settings.max_length)
    return [step["loss"] for step in backend.fit(model, tokenizer, read, job) if "loss" in step]


def make_job(base: Path, out: Path, experts: str) -> Job:
    """The job of PROFILE=tiny with that base."""
    settings = config.parse(
        TrainSettings,
        [f"MODELS_DIR={base.parent}", f"LORA_EXPERTS={experts}", "MAX_STEPS=2", *WORDS],
    )
    planned = plan.of(settings, shards.read_checkpoint(base))
    return Job(settings=settings, plan=planned, out=out, states=out / "states", batch=2, accumulate=1)


def refuse_network(asked: list[str]) -> None:
    """Refuse and note every connection but local ones."""
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and not str(address[0]).startswith(("127.", "::1")):
            asked.append(str(address))
            raise OSError("no network in this test")
        connect(self, address)

    socket.socket.connect = local_only  # type: ignore[method-assign]


def stand_in_for_the_card() -> None:
    """What Unsloth asks of CUDA before it loads a model; and torchvision, of which no build fits here."""
    import torch

    card = SimpleNamespace(name="stand-in", total_memory=1 << 37, major=9, minor=0, multi_processor_count=1)
    torch.cuda.get_device_properties = lambda *_: card  # type: ignore[assignment]
    torch.cuda.mem_get_info = lambda *_: (1 << 37, 1 << 37)  # type: ignore[assignment]
    import unsloth.models.vision as vision  # pyright: ignore[reportMissingImports]

    vision._missing_torchvision_error = lambda _: False


if __name__ == "__main__":
    main(*sys.argv[1:])
