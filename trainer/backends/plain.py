"""transformers + peft + trl: runs wherever torch does."""

from importlib.util import find_spec
from typing import Any

from core import generate
from core.profile import Profile
from core.render import Rendered
from trainer.job import Job
from trainer.sft import train

PACKAGES = ("torch", "transformers", "peft", "trl", "datasets")


def unavailable(profile: Profile) -> str | None:
    """The missing packages, if any."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def load(job: Job) -> tuple[Any, Any]:
    """The base in the profile's dtype with a fresh adapter on the planned modules, and its tokenizer."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(job.settings.train_seed)
    tokenizer = generate.load_tokenizer(job.settings.base_dir)
    dtype, tokens = job.settings.profile.train.dtype, job.settings.max_length
    model = generate.load_model(job.settings.base_dir, dtype, tokens)
    lora = LoraConfig(
        r=job.settings.lora_rank,
        lora_alpha=job.settings.lora_alpha,
        lora_dropout=job.settings.lora_dropout,
        target_modules=job.plan.pattern,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, lora), tokenizer


def fit(model: Any, tokenizer: Any, samples: list[Rendered], job: Job) -> list[dict[str, float]]:
    """Train the adapter in place; returns the log, one entry an optimiser step."""
    return train(model, tokenizer, samples, job)
