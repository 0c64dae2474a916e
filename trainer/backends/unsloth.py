"""Unsloth on a CUDA device. Its import patches transformers, peft and trl, so it comes before theirs."""

import os
from importlib.util import find_spec
from typing import Any

from core import fla_trial
from core.profile import Profile
from core.render import Rendered
from trainer.job import Job

# Unsloth's own switches: install nothing, fetch nothing, fail rather than fall back to its CPU path (which
# drops the vision tower and the MTP head).
ENVIRONMENT = {
    "UNSLOTH_DISABLE_CPU_FALLBACK": "1",
    "UNSLOTH_DISABLE_LLM_COMPRESSOR_AUTOINSTALL": "1",
    "UNSLOTH_DISABLE_STATISTICS": "1",
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
}


def unavailable(profile: Profile) -> str | None:
    """Why Unsloth cannot be used here; never imports it to find out."""
    missing = [name for name in ("unsloth", "unsloth_zoo") if find_spec(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


def load(job: Job) -> tuple[Any, Any]:
    """The base in 16 bits with a fresh adapter on the planned modules, and its tokenizer."""
    compiled = job.out / "unsloth_compiled_cache"
    os.environ.update(ENVIRONMENT, UNSLOTH_COMPILE_LOCATION=str(compiled))
    from unsloth import FastModel  # pyright: ignore[reportAttributeAccessIssue]

    fla_trial.install(job.settings.max_length)
    model, processor = FastModel.from_pretrained(
        model_name=str(job.settings.base_dir),
        max_seq_length=job.settings.max_length,
        load_in_4bit=False,
        load_in_16bit=True,
        use_gradient_checkpointing="unsloth",
        random_state=job.settings.train_seed,
    )
    model = FastModel.get_peft_model(
        model,
        r=job.settings.lora_rank,
        lora_alpha=job.settings.lora_alpha,
        lora_dropout=job.settings.lora_dropout,
        target_modules=job.plan.pattern,
        finetune_vision_layers=False,
        use_gradient_checkpointing="unsloth",
        random_state=job.settings.train_seed,
    )
    return model, getattr(processor, "tokenizer", processor)


def fit(model: Any, tokenizer: Any, samples: list[Rendered], job: Job) -> list[dict[str, float]]:
    """Train the adapter in place; returns the log, one entry an optimiser step."""
    # trl must be imported after unsloth has patched it.
    from trainer.sft import train

    return train(model, tokenizer, samples, job)
