"""mlx-lm: Apple's GPUs; on Linux its CPU build, for tests. Labels, order and updates are the plain backend's.

Its own trainer is not used: it masks all but the last turn, decides the loss of a batch by itself, trains
routers where no targets are named, and resumes without the optimiser's state.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core import generate
from core.profile import Profile
from trainer.backends.mlx_adapter import Adapted, adapt
from trainer.job import Job
from trainer.learning.samples import Sample

PACKAGES = ("mlx", "mlx_lm", "peft")


def unavailable(profile: Profile) -> str | None:
    """The missing packages, if any."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def unfit() -> str | None:
    """Why mlx is not taken unasked: on a CPU it is the slowest."""
    return None if sys.platform == "darwin" else "no Apple GPU"


def gated_delta() -> str:
    """mlx-lm brings its own."""
    return "mlx-lm's"


def load(job: Job) -> tuple[Adapted, Any]:
    """The base in the profile's dtype with a fresh adapter on the planned modules, and its tokenizer."""
    import mlx.core as mx
    from mlx_lm.utils import load_model

    settings = job.settings
    model, _ = load_model(
        settings.base_dir,
        lazy=True,
        model_config=_completed(settings.base_dir),
        get_model_classes=_exact_norms,
    )
    model.set_dtype(getattr(mx, settings.profile.train.dtype))
    mx.eval(model.parameters())
    return adapt(model, job), generate.load_tokenizer(settings.base_dir)


def _completed(base_dir: Path) -> dict[str, Any]:
    """The interval of the attention layers, which mlx-lm guesses where the config only lists its layers."""
    config = json.loads((base_dir / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", {})
    kinds = text.get("layer_types", [])
    if "full_attention_interval" in text or "full_attention" not in kinds:
        return {}
    return {"text_config": {**text, "full_attention_interval": kinds.index("full_attention") + 1}}


def _exact_norms(config: dict[str, Any]) -> tuple[type, type]:
    """mlx-lm's classes; the 1 that some norms add to their weight is added in float32, as transformers does.

    mlx-lm adds it to the stored bfloat16, which rounds the weight to 8 bits.
    """
    import mlx.core as mx
    from mlx_lm.utils import _get_classes

    model, arguments = _get_classes(config)

    class Exact(model):
        def sanitize(self, weights: dict[str, Any]) -> dict[str, Any]:
            vectors = {n: w.astype(mx.float32) for n, w in weights.items() if w.ndim == 1}
            whole = {**weights, **vectors}
            return super().sanitize(whole) if hasattr(model, "sanitize") else whole

    return Exact, arguments


def fit(model: Adapted, tokenizer: Any, samples: list[Sample], job: Job) -> list[dict[str, Any]]:
    """Train the adapter in place; returns the log, entries of optimiser steps and of evaluations."""
    from trainer.backends.mlx_loop import train

    return train(model, tokenizer, samples, job)
