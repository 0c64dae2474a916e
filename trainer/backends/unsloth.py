"""Unsloth on a CUDA device. Its import patches transformers, peft and trl, so it comes before theirs."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core import fla_trial, generate
from core.profile import Profile
from trainer.backends import adapter
from trainer.job import Job
from trainer.learning.samples import Sample

PACKAGES = ("unsloth", "unsloth_zoo", "bitsandbytes", "triton", "torchvision")
"""The last because Unsloth loads the processor of a model that sees, though text training needs none."""


def environment(out: Path) -> dict[str, str]:
    """Unsloth's own switches, read when it is imported: install, fetch and report nothing, and no surprises.

    Its path for CPUs, which drops the vision tower and the MTP head, must fail instead; it must not flatten
    batches by itself; what it compiles stays with the run.
    """
    return {
        "UNSLOTH_DISABLE_CPU_FALLBACK": "1",
        "UNSLOTH_AUTO_INSTALL": "0",
        "UNSLOTH_DISABLE_LLM_COMPRESSOR_AUTOINSTALL": "1",
        "UNSLOTH_OFFLINE": "1",
        "UNSLOTH_DISABLE_AUTO_PADDING_FREE": "1",
        "UNSLOTH_MOE_LORA_B_LAYOUT": "rank_major",
        "UNSLOTH_COMPILE_LOCATION": str(out.resolve() / "unsloth_compiled_cache"),
        "UNSLOTH_MEGA_CACHE_DIR": str(out.resolve() / "unsloth_compiled_cache" / "mega"),
    }


def unavailable(profile: Profile) -> str | None:
    """Why Unsloth cannot be used here; never imports it to find out."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


def load(job: Job) -> tuple[Any, Any]:
    """The base in 16 bits with a fresh adapter on the planned modules, and its tokenizer."""
    from unsloth import FastModel  # pyright: ignore[reportAttributeAccessIssue]

    settings = job.settings
    fla_trial.install(settings.max_length)
    model, _ = FastModel.from_pretrained(
        model_name=str(settings.base_dir),
        use_exact_model_name=True,
        local_files_only=True,
        max_seq_length=settings.max_length,
        load_in_4bit=False,
        load_in_16bit=True,
        use_gradient_checkpointing="unsloth",
        random_state=settings.train_seed,
    )
    model = FastModel.get_peft_model(
        model,
        **adapter.options(job),
        finetune_vision_layers=False,
        use_gradient_checkpointing="unsloth",
        random_state=settings.train_seed,
    )
    adapter.start(model, settings.train_seed)
    return model, generate.load_tokenizer(settings.base_dir)


def fit(model: Any, tokenizer: Any, samples: list[Sample], job: Job) -> list[dict[str, float]]:
    """Train the adapter in place; returns the log, one entry an optimiser step."""
    # trl must be imported after unsloth has patched it.
    from trainer.learning.sft import train

    return train(model, tokenizer, samples, job)
