"""What vLLM's own parsers make of generated texts: JSON lines in, JSON lines out. It runs in .venv-serve.

    python vllm_parser.py <tokenizer's directory> < cases > answers

A case is {"text", "tools", "cuts"}: `cuts` are positions in the text between two chunks of a stream, none for
a whole answer. An answer is {"reasoning", "content", "calls": [[name, arguments as JSON text], ...]}, or
{"error"}. Chunks carry text and token ids, as the server's detokenizer hands them over. What is not streamed
is read by `core/vllm_parser.py` as well, which judges where vLLM is installed: it must read the same.
"""

# pyright: reportMissingImports=false

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionRequest,
)
from vllm.parser import ParserManager

sys.path.insert(0, str(Path(__file__).parents[2]))
from core import vllm_parser

PARSER = ParserManager.get_parser(
    tool_parser_name="qwen3_coder", reasoning_parser_name="qwen3", enable_auto_tools=True
)


def main() -> None:
    """Answer every case in turn."""
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    judge = vllm_parser.load(tokenizer)
    for line in sys.stdin:
        case = json.loads(line)
        question = {"role": "user", "content": "x"}
        request = ChatCompletionRequest(model="m", messages=[question], tools=case["tools"])
        parser = PARSER(tokenizer, request.tools)
        try:
            found = (
                streamed(parser, tokenizer, request, case)
                if case["cuts"]
                else whole(parser, request, case, judge)
            )
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found, ensure_ascii=False))


def whole(parser: Any, request: Any, case: dict[str, Any], judge: Any) -> dict[str, Any]:
    """An answer that is not streamed."""
    reasoning, content, calls = parser.parse(case["text"], request, enable_auto_tools=True)
    reply = judge(case["text"], case["tools"])
    read = [(call.name, json.loads(call.arguments or "{}")) for call in calls or []]
    assert [(call.name, call.arguments) for call in reply.calls] == read
    assert reply.content == (content or "").strip()
    return {
        "reasoning": reasoning or "",
        "content": content or "",
        "calls": [[call.name, call.arguments] for call in calls or []],
    }


def streamed(parser: Any, tokenizer: Any, request: Any, case: dict[str, Any]) -> dict[str, Any]:
    """The chunks of a stream put together again, as a client does."""
    text, cuts = case["text"], [0, *case["cuts"], len(case["text"])]
    reasoning, content, calls = "", "", {}
    for start, stop in itertools.pairwise(cuts):
        chunk = text[start:stop]
        delta = parser.parse_delta(
            delta_text=chunk,
            delta_token_ids=tokenizer.encode(chunk, add_special_tokens=False),
            request=request,
            prompt_token_ids=[],
            finished=stop == len(text),
        )
        if delta is None:
            continue
        reasoning += delta.reasoning or ""
        content += delta.content or ""
        for one in delta.tool_calls or []:
            call = calls.setdefault(one.index, ["", ""])
            call[0] += one.function.name or ""
            call[1] += one.function.arguments or ""
    return {"reasoning": reasoning, "content": content, "calls": [calls[i] for i in sorted(calls)]}


if __name__ == "__main__":
    main()
