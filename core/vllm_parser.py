"""vLLM's own parsers over one generated text, where vLLM can be imported: what production would send."""

import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from core.chat import Tool
from core.toolcalls import Reply, ToolCall

NAME = "qwen3_coder"
REASONING = "qwen3"


def is_there() -> bool:
    """Whether vLLM is installed in this environment; imports nothing of it."""
    return importlib.util.find_spec("vllm") is not None


def version() -> str:
    """vLLM's version, whatever its build is called."""
    owners = importlib.metadata.packages_distributions()["vllm"]
    return importlib.metadata.version(owners[0])


def load(tokenizer: Any) -> Callable[[str, Sequence[Tool]], Reply]:
    """The parser of a text that follows `<think>` and a newline, as `core.toolcalls.parse`."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm.entrypoints.openai.chat_completion.protocol import (  # pyright: ignore[reportMissingImports]
        ChatCompletionRequest,
    )
    from vllm.parser import ParserManager  # pyright: ignore[reportMissingImports]

    made = ParserManager.get_parser(
        tool_parser_name=NAME, reasoning_parser_name=REASONING, enable_auto_tools=True
    )

    def parse(text: str, tools: Sequence[Tool]) -> Reply:
        request = ChatCompletionRequest(
            model="m", messages=[{"role": "user", "content": "x"}], tools=list(tools) or None
        )
        reasoning, content, calls = made(tokenizer, request.tools).parse(
            text, request, enable_auto_tools=True
        )
        return Reply(
            (reasoning or "").strip() or None,
            (content or "").strip(),
            tuple(ToolCall(call.name, json.loads(call.arguments or "{}")) for call in calls or []),
        )

    return parse
