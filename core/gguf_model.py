"""llama.cpp in this process, where llama-cpp-python is installed: runs and quantises GGUF files."""

import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.errors import UserError

MEND = "make llama-cpp builds it into .venv (about 11 minutes of CPU)"
TYPES = {"q4_k_m": 15}
"""`llama_ftype` of the types that llama.cpp quantises to and its converter cannot write (llama.h)."""


def installed() -> bool:
    """Whether GGUF files can be run here; imports nothing."""
    return find_spec("llama_cpp") is not None


def require(why: str) -> None:
    """UserError, with `why` it is needed, where it is not installed."""
    if not installed():
        raise UserError(f"{why} needs llama.cpp, which is not installed: {MEND}")


def load(file: Path, context: int) -> Any:
    """The model in a GGUF file with room for `context` tokens; UserError where llama.cpp refuses the file."""
    require(f"{file}")

    threads = max(1, (os.cpu_count() or 2) // 2)
    try:
        return import_module("llama_cpp").Llama(
            str(file), n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False
        )
    except ValueError as error:
        raise UserError(f"{file}: llama.cpp refuses it ({error}); make gguf again") from None


def ids(model: Any, text: str) -> list[int]:
    """The tokens of a text that already has its special tokens written out."""
    return model.tokenize(text.encode(), add_bos=False, special=True)


def greedy(model: Any, prompt: Sequence[int], most: int) -> Iterator[int]:
    """The likeliest token again and again, up to the end of the turn, which is left out, or `most` tokens."""
    model.reset()
    tokens = model.generate(list(prompt), top_k=1, temp=0.0, repeat_penalty=1.0)
    for _, token in zip(range(most), tokens, strict=False):
        if token == model.token_eos():
            return
        yield token


def answer(model: Any, messages: Sequence[Any], most: int) -> Iterator[str]:
    """The likeliest answer to a conversation, piece by piece, by the chat template inside the file.

    ValueError where the conversation is longer than the context.
    """
    chunks = model.create_chat_completion(
        messages=list(messages), max_tokens=most, temperature=0.0, top_k=1, repeat_penalty=1.0, stream=True
    )
    for chunk in chunks:
        yield chunk["choices"][0]["delta"].get("content") or ""


def quantize(source: Path, target: Path, kind: str) -> None:
    """Write `source`, a GGUF file of 16 bits, as one of TYPES; UserError where llama.cpp fails."""
    require(f"GGUF_TYPE={kind}")
    llama_cpp = import_module("llama_cpp")

    llama_cpp.llama_log_set(_silence(), ctypes.c_void_p(0))
    plan = llama_cpp.llama_model_quantize_default_params()
    plan.ftype, plan.nthread = TYPES[kind], os.cpu_count() or 1
    failed = llama_cpp.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(plan))
    if failed:
        raise UserError(f"{source}: llama.cpp cannot write it as {kind} (code {failed}); try GGUF_TYPE=q8_0")


@functools.cache  # llama.cpp keeps the address
def _silence() -> Any:
    llama_cpp = import_module("llama_cpp")

    return llama_cpp.llama_log_callback(lambda level, text, user: None)
