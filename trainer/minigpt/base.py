"""`make base PROFILE=minigpt`: the base of every seed, trained here in about a minute each."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import artifacts, errors
from core.progress import Progress
from core.settings import AblationSettings
from trainer.minigpt import lab, parallel

if TYPE_CHECKING:
    from trainer.minigpt.model import MiniGPT

WEIGHTS = "model.safetensors"


def main(words: list[str]) -> int:
    """Train what is missing; exit code 0."""
    settings = lab.parse(words)
    missing = [
        seed for seed in lab.seeds(settings) if artifacts.read_manifest(lab.base_dir(settings, seed)) is None
    ]
    if not missing:
        print(f"base: up to date ({settings.base_dir}, seeds {settings.seeds})")
    elif len(missing) == 1:
        make(settings, missing[0])
    else:
        parallel.run(["trainer.minigpt.base"], words, {f"seed {s}": {"SEEDS": s} for s in missing})
    return errors.DONE


def make(settings: AblationSettings, seed: int) -> None:
    """Pre-train the base of one seed and write it: float32 weights, configuration, losses."""
    from safetensors.torch import save_file

    from trainer.minigpt import model, pretrain

    model.one_thread()
    plan = pretrain.Plan()
    recorded = {"PROFILE": settings.profile.name, "SEED": seed} | asdict(plan)
    path = lab.base_dir(settings, seed)
    with artifacts.create(
        path, kind="checkpoint", profile=settings.profile.name, run=settings.run, settings=recorded, inputs={}
    ) as draft:
        progress = Progress(f"pre-train seed {seed} (steps)", plan.steps)
        result = pretrain.train(seed, plan, lambda loss: progress.step(note=f"loss {loss:.3f}"))
        progress.close()
        save_file(result.model.state_dict(), draft.path / WEIGHTS)
        config = json.dumps({"model_type": "minigpt", **asdict(result.model.shape)}, indent=1)
        (draft.path / "config.json").write_text(config + "\n", encoding="utf-8")
        write_losses(draft.path, result.losses)
        draft.counts = {
            "parameters": sum(p.numel() for p in result.model.parameters()),
            "bytes_held": result.bytes_held,
        }
    print(f"base: seed {seed}, {draft.counts['parameters']:,} parameters at {path}")


def load(path: Path) -> "MiniGPT":
    """The base at `path`, ready to answer."""
    from safetensors.torch import load_file

    from trainer.minigpt.model import MiniGPT, Shape

    config: dict[str, Any] = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config.pop("model_type")
    model = MiniGPT(Shape(**config))
    model.load_state_dict(load_file(path / WEIGHTS))
    return model.eval()


def write_losses(directory: Path, losses: list[float]) -> None:
    """A line a step, as the big chain's training writes them."""
    lines = (json.dumps({"step": i, "loss": round(loss, 6)}) + "\n" for i, loss in enumerate(losses, 1))
    (directory / "loss.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    errors.run(main)
