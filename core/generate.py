"""Greedy generation from a local checkpoint, batched on whatever device there is."""

import os
from pathlib import Path
from typing import Any

from core import fla_trial
from core.progress import Progress

BATCH = {"cpu": 16, "cuda": 40}
"""Prompts answered together, by device: a batch runs until its longest answer ends, which a CPU pays for."""


def load_tokenizer(checkpoint: Path) -> Any:
    """The tokenizer of a local checkpoint, with its chat template."""
    from transformers import AutoTokenizer

    quiet()
    return AutoTokenizer.from_pretrained(str(checkpoint), local_files_only=True)


def load_model(checkpoint: Path, dtype: str, tokens: int = fla_trial.TOKENS) -> Any:
    """The whole model (vision included, as the adapter's names need it) in `dtype`, in evaluation mode.

    `tokens` is the length of its rows, at which fla's kernels are tried where they are installed. On the
    accelerator where there is one. On a CPU one thread a physical core: more of them, spinning on shared
    cores, made small models three times slower.
    """
    import torch

    quiet()
    fla_trial.install(tokens)
    auto, _ = _class_and_config(checkpoint)
    model = auto.from_pretrained(
        str(checkpoint), dtype=getattr(torch, dtype), local_files_only=True, device_map=device()
    )
    return model.eval()


def device() -> str:
    """`cuda` where there is one, else `cpu`, with the threads that a model is best run with."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    return "cpu"


def empty_model(checkpoint: Path, dtype: str, tokens: int) -> Any:
    """`load_model`'s model, its parameters without memory yet (on `meta`), its buffers with their values."""
    import torch
    from accelerate import init_empty_weights

    quiet()
    fla_trial.install(tokens)
    auto, config = _class_and_config(checkpoint)
    with init_empty_weights(include_buffers=False):
        return auto.from_config(config, dtype=getattr(torch, dtype)).eval()


def generate(
    model: Any,
    tokenizer: Any,
    prompts: list[str],
    *,
    max_new_tokens: int,
    what: str = "generate",
) -> list[str]:
    """What the model writes after each prompt, as `generate_batch`; prompts of like length share a batch."""
    if not prompts:
        return []
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    texts = [""] * len(prompts)
    progress = Progress(what, len(prompts))
    batch = BATCH[model.device.type]
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        answers = generate_batch(
            model, tokenizer, [prompts[i] for i in chosen], max_new_tokens=max_new_tokens
        )
        for i, answer in zip(chosen, answers, strict=True):
            texts[i] = answer
        progress.step(len(chosen))
    progress.close()
    return texts


def generate_batch(model: Any, tokenizer: Any, prompts: list[str], *, max_new_tokens: int) -> list[str]:
    """What the model writes after each prompt, end-of-turn token excluded; greedy, one left-padded batch."""
    import torch

    tokenizer.padding_side = "left"
    encoded = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    with torch.inference_mode():
        output = model.generate(
            **encoded.to(model.device),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    width = encoded["input_ids"].shape[1]
    return [str(tokenizer.decode(ids)).split(str(tokenizer.eos_token))[0] for ids in output[:, width:]]


def _class_and_config(checkpoint: Path) -> tuple[Any, Any]:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as SEEING

    config = AutoConfig.from_pretrained(str(checkpoint), local_files_only=True)
    return AutoModelForImageTextToText if config.model_type in SEEING else AutoModelForCausalLM, config


def quiet() -> None:
    """Silence transformers: what it says of missing kernels, `make verify` says in its table."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
