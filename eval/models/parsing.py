"""Which parser reads a generated text: vLLM's own where it is installed beside us, else ours."""

from collections.abc import Callable, Sequence
from typing import Any

from core import toolcalls, vllm_parser
from core.chat import Tool
from core.toolcalls import Reply

OURS = "core/toolcalls.py, equal to vLLM's qwen3_coder by test"
THINKING = "<think>"

Parse = Callable[[str, Sequence[Tool]], Reply]


def parser(tokenizer: Any) -> tuple[str, Parse]:
    """The name of the parser that judges here, and the parser."""
    if vllm_parser.is_there():
        return f"vLLM {vllm_parser.version()}, {vllm_parser.NAME}", vllm_parser.load(tokenizer)
    return OURS, toolcalls.parse


def after_thinking(prompt: str, text: str) -> str:
    """A text as it reads after a prompt that opens the thinking, which parsers expect."""
    return text if prompt.rstrip().endswith(THINKING) else f"</think>{text}"
