"""`make chat`: talk with a checkpoint of the run in the terminal; with PROMPT one answer, and out.

Greedy, so that the same words get the same answer. Ctrl-C ends an answer, or at the prompt the talk.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from core import chat, config, errors, generate, gguf_model
from core.chat import Message
from core.errors import UserError, did_you_mean
from core.render import prompt_text
from core.settings import ChatSettings

CONTEXT = 4096
"""Tokens of talk that a GGUF file is loaded for."""
TOKENS = 512
"""The most that one answer takes where the profile has no data."""

Speaker = Callable[[list[Message]], str]
"""Writes the answer to a conversation on stdout as it comes, and returns it."""


def main(words: list[str]) -> int:
    """Talk until the input ends; exit code 0. UserError where the checkpoint is not there."""
    settings = config.parse(ChatSettings, words)
    name, path = place(settings)
    speak = _gguf(path, settings) if path.suffix == ".gguf" else _checkpoint(path, settings)
    if settings.prompt:
        speak([chat.user(settings.prompt)])
        print()
        return errors.DONE
    if sys.stdin.isatty():
        import readline  # noqa: F401  gives input() its history and editing

        print(f"chat: {name} ({path}); an empty line starts anew, Ctrl-D ends", file=sys.stderr)
    talk(speak)
    return errors.DONE


def place(settings: ChatSettings) -> tuple[str, Path]:
    """Name and path of the checkpoint: a stage's, or a directory or GGUF file that CHECKPOINT names.

    Blank is the merged one, or the base before there is one. UserError where it is not there.
    """
    stages = {
        "merged": (settings.merged_dir, "merge"),
        "base": (settings.base_dir, "base"),
        "gguf": (settings.gguf_file, "gguf"),
        "nvfp4-bf16": (settings.dequantized_dir, "dequantize"),
    }
    name = settings.checkpoint or ("merged" if settings.merged_dir.exists() else "base")
    if name in stages:
        path, target = stages[name]
        if not path.exists():
            raise UserError(f"{path} is not there yet: make {target}")
        return name, path
    path = Path(name).expanduser()
    if (path.suffix == ".gguf" and path.is_file()) or (path / "config.json").is_file():
        return path.name, path
    raise UserError(
        f"CHECKPOINT={name}: no such checkpoint{did_you_mean(name, stages)}; have {', '.join(stages)}, "
        f"or a directory with config.json, or a .gguf file"
    )


def talk(speak: Speaker) -> None:
    """Read a line, answer it, and so on to the end of the input; an empty line forgets what was said."""
    said: list[Message] = []
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if not line:
            said = []
            continue
        try:
            answer = speak([*said, chat.user(line)])
        except KeyboardInterrupt:
            print(" …")
            continue
        print()
        said += [chat.user(line), {"role": "assistant", "content": answer}]


def _most(settings: ChatSettings) -> int:
    return settings.profile.data.answer_tokens if settings.profile.data else TOKENS


def _checkpoint(path: Path, settings: ChatSettings) -> Speaker:
    import torch
    from transformers import TextStreamer

    tokenizer = generate.load_tokenizer(path)
    model = generate.load_model(path, settings.profile.train.dtype)

    def speak(messages: list[Message]) -> str:
        text = prompt_text(messages, [], tokenizer)
        encoded = tokenizer(text, return_tensors="pt", add_special_tokens=False).to(model.device)
        with torch.inference_mode():
            whole = model.generate(
                **encoded,
                max_new_tokens=_most(settings),
                do_sample=False,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                streamer=_Printed(tokenizer, skip_prompt=True, skip_special_tokens=True),
            )
        return str(tokenizer.decode(whole[0, encoded["input_ids"].shape[1] :], skip_special_tokens=True))

    class _Printed(TextStreamer):
        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            print(text, end="", flush=True)

    return speak


def _gguf(path: Path, settings: ChatSettings) -> Speaker:
    model = gguf_model.load(path, CONTEXT)

    def speak(messages: list[Message]) -> str:
        parts = []
        try:
            for part in gguf_model.answer(model, messages, _most(settings)):
                print(part, end="", flush=True)
                parts.append(part)
        except ValueError as error:
            raise UserError(f"{path}: {error}; an empty line starts anew") from None
        return "".join(parts)

    return speak


if __name__ == "__main__":
    errors.run(main)
