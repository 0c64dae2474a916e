"""transformers + peft + trl: runs wherever torch does, on one process or shared out over several."""

from importlib.util import find_spec
from typing import Any

from core import attention_trial, generate
from core.profile import Profile
from trainer.backends import adapter, sharded, streamed
from trainer.job import Job
from trainer.learning.samples import Sample
from trainer.learning.sft import train
from trainer.running import processes

PACKAGES = ("torch", "transformers", "peft", "trl", "datasets")


def unavailable(profile: Profile) -> str | None:
    """The missing packages, if any."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def load(job: Job) -> tuple[Any, Any]:
    """The base in the profile's dtype with a fresh adapter on the planned modules, and its tokenizer."""
    from peft import get_peft_model

    settings, dtype = job.settings, job.settings.profile.train.dtype
    tokenizer = generate.load_tokenizer(settings.base_dir)
    if processes.count() == 1:
        base = streamed.load(settings.base_dir, dtype, settings.max_length) or generate.load_model(
            settings.base_dir, dtype, settings.max_length
        )
        _choose_attention(base)
        model = get_peft_model(base, _config(job))
    else:
        device = sharded.join()
        base = generate.empty_model(settings.base_dir, dtype, settings.max_length)
        _choose_attention(base)
        model = get_peft_model(base, _config(job), low_cpu_mem_usage=True)
        sharded.shard(model, settings.profile, device)
        sharded.read_weights(model, settings.base_dir)
    adapter.start(model, settings.train_seed)
    return model, tokenizer


def fit(model: Any, tokenizer: Any, samples: list[Sample], job: Job) -> list[dict[str, float]]:
    """Train the adapter in place; returns the log, one entry an optimiser step."""
    return train(model, tokenizer, samples, job)


def _choose_attention(base: Any) -> None:
    if attention_trial.implementation() != attention_trial.SDPA:
        base.set_attn_implementation(attention_trial.implementation())


def _config(job: Job) -> Any:
    from peft import LoraConfig

    return LoraConfig(task_type="CAUSAL_LM", **adapter.options(job))
