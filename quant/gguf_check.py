"""A GGUF file against the checkpoint that it was made of: by its metadata, and by what it says."""

from pathlib import Path
from typing import Any

from core import chat, generate, gguf_model, shards
from core.errors import UserError
from core.progress import Progress
from core.render import prompt_text
from core.settings import GgufSettings

PROMPTS, TOKENS, CONTEXT = 20, 32, 2048
EXACT = ("f16", "bf16")
"""Types that hold the checkpoint's values all but exactly: there, most answers must be the same."""


def by_reading(file: Path, checkpoint: Path) -> dict[str, Any]:
    """Compare tokens, special tokens and chat template with the checkpoint's; what to record of the file.

    UserError where they differ, or where the file is not whole.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
    except ValueError as error:
        raise UserError(f"{file}: not a GGUF file ({error})") from None
    tokenizer = generate.load_tokenizer(checkpoint)

    def value(name: str) -> Any:
        field = reader.get_field(name)
        return None if field is None else field.contents()

    tokens = value("tokenizer.ggml.tokens") or []
    ours = {i: token for token, i in tokenizer.get_vocab().items()}
    odd = [i for i, token in ours.items() if i >= len(tokens) or tokens[i] != token]
    checks = {
        f"token {odd[0] if odd else ''} of the vocabulary": not odd,
        "the end-of-turn token": value("tokenizer.ggml.eos_token_id") == tokenizer.eos_token_id,
        "the chat template": value("tokenizer.chat_template") == tokenizer.chat_template,
        "the number of layers": _layers(value) >= _layers_of(checkpoint),
    }
    wrong = [what for what, same in checks.items() if not same]
    if wrong:
        raise UserError(f"{file}: {wrong[0]} differs from {checkpoint}'s; this is a defect, please report it")
    return {
        "architecture": value("general.architecture"),
        "tensors": len(reader.tensors),
        "types": _types(reader.tensors),
    }


def by_running(file: Path, checkpoint: Path, settings: GgufSettings) -> dict[str, Any]:
    """Let both answer held-out prompts greedily: token ids of each prompt, and of what follows it.

    UserError where a prompt's ids differ, or, for 16 bits, where most answers do. One is in memory at a time.
    """
    rows = chat.read_rows(settings.data_dir / "dataset" / "eval.jsonl")
    tokenizer = generate.load_tokenizer(checkpoint)
    texts = [prompt_text(row.messages[: _asked(row)], row.tools, tokenizer) for row in rows[:PROMPTS]]
    prompts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    theirs = _greedy_of_checkpoint(checkpoint, tokenizer, prompts, settings.profile.train.dtype)
    model = gguf_model.load(file, CONTEXT)
    same = 0
    progress = Progress("gguf: llama.cpp answers", len(texts))
    for text, prompt, expected in zip(texts, prompts, theirs, strict=True):
        if gguf_model.ids(model, text) != prompt:
            raise UserError(f"{file}: llama.cpp splits a prompt otherwise than {checkpoint}'s tokenizer")
        same += list(gguf_model.greedy(model, prompt, TOKENS)) == expected
        progress.step()
    progress.close(f"{same} of {len(texts)} the same as the checkpoint's")
    if settings.gguf_type in EXACT and same * 2 < len(texts):
        raise UserError(f"{file}: {same} of {len(texts)} answers are {checkpoint}'s; please report it")
    return {"prompts": len(texts), "same_answers": same}


def _greedy_of_checkpoint(checkpoint: Path, tokenizer: Any, prompts: list[list[int]], dtype: str) -> Any:
    import torch

    model = generate.load_model(checkpoint, dtype)
    answers = []
    progress = Progress("gguf: the checkpoint answers", len(prompts))
    for prompt in prompts:
        with torch.inference_mode():
            whole = model.generate(
                input_ids=torch.tensor([prompt], device=model.device),
                max_new_tokens=TOKENS,
                do_sample=False,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        said = whole[0, len(prompt) :].tolist()
        answers.append(said[: said.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in said else said)
        progress.step()
    progress.close()
    return answers


def _asked(row: chat.Row) -> int:
    return chat.assistant_turns(row.messages)[0]


def _layers(value: Any) -> int:
    return value(f"{value('general.architecture')}.block_count") or 0


def _layers_of(checkpoint: Path) -> int:
    names = shards.read_checkpoint(checkpoint)
    numbers = [name.split(".layers.")[1].split(".")[0] for name in names if ".layers." in name]
    return 1 + max(int(number) for number in numbers if number.isdigit())


def _types(tensors: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in tensors:
        found[tensor.tensor_type.name] = found.get(tensor.tensor_type.name, 0) + 1
    return found
