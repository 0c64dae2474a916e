"""core/toolcalls.py against the parsers of vLLM itself, which run in .venv-serve."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core import chat
from core.toolcalls import ToolCall, parse
from tests.conftest import ROOT
from tests.serving import bfcl, generated_texts
from tests.test_toolcalls_template import generated, same

pytestmark = [pytest.mark.slow, pytest.mark.serve]

SERVE = ROOT / ".venv-serve"
TEXTS, STREAMED = 2400, 30
WHOLE_TOKENS = re.compile(r"</?think>|</?tool_call>|</?tool_response>|<\|\w+\|>")
"""What is one token, and never cut between two chunks."""
OPEN_VALUE = re.compile(
    r"<\s*parameter\s*=[^>]*>(?:(?!<\s*/\s*parameter\s*>).)*(?:</function>|\Z)", re.DOTALL
)
"""An argument that its function's end, or the text's, leaves open: vLLM streams what there is of it, but
leaves it out of a whole answer."""

Case = tuple[str, list[chat.Tool], list[int]]


def ask(tokenizer_dir: Path, cases: list[Case]) -> list[dict[str, Any]]:
    """What vLLM makes of the cases."""
    script = Path(__file__).with_name("vllm_parser.py")
    done = subprocess.run(
        [SERVE / "bin/python", script, tokenizer_dir],
        input="".join(generated_texts.as_line(*case) for case in cases),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return answers


def normal(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as core.toolcalls has it: no outer whitespace, arguments as they are after JSON."""
    calls = [(name, json.dumps(json.loads(arguments))) for name, arguments in answer["calls"]]
    return {"reasoning": answer["reasoning"].strip(), "content": answer["content"].strip(), "calls": calls}


def ours(text: str, tools: list[chat.Tool]) -> dict[str, Any]:
    """What core.toolcalls makes of a text."""
    reply = parse(text, tools)
    calls = [(call.name, json.dumps(call.arguments)) for call in reply.calls]
    return {"reasoning": reply.reasoning or "", "content": reply.content, "calls": calls}


def test_texts_right_and_wrong_are_read_as_vllm_reads_them(base_dir: Path) -> None:
    texts = list(generated_texts.cases(0, TEXTS))
    answers = ask(base_dir, [(text, tools, []) for text, tools in texts])
    different = [
        (text, ours(text, tools), answer)
        for (text, tools), answer in zip(texts, answers, strict=True)
        if "error" in answer or ours(text, tools) != normal(answer)
    ]
    assert different == []
    assert sum(bool(answer["calls"]) for answer in answers) > TEXTS / 3


def cuts(text: str) -> list[int]:
    """The positions at which a stream may break."""
    inside = {i for token in WHOLE_TOKENS.finditer(text) for i in range(token.start() + 1, token.end())}
    return [i for i in range(1, len(text)) if i not in inside]


def test_a_stream_brings_what_the_whole_answer_has_wherever_it_is_cut(base_dir: Path) -> None:
    """At each position once, and everywhere at once. A client of a stream sees also the whitespace and the
    text after a call, which vLLM leaves out of a whole answer."""
    texts = [
        (text, tools)
        for text, tools in generated_texts.cases(1, 3 * STREAMED)
        if cuts(text) and not OPEN_VALUE.search(text)
    ][:STREAMED]
    cases = [
        (text, tools, some) for text, tools in texts for some in ([], *([i] for i in cuts(text)), cuts(text))
    ]
    answers, whole = ask(base_dir, cases), {}
    for (text, _, some), answer in zip(cases, answers, strict=True):
        read = normal(answer)
        if not some:
            whole[text] = read
            continue
        shown = read | {"content": whole[text]["content"] if read["calls"] else read["content"]}
        assert shown == whole[text], (text, some)
        assert read["content"].startswith(whole[text]["content"]), (text, some)
    assert len(texts) == STREAMED and sum(bool(one["calls"]) for one in whole.values()) > STREAMED / 3


def test_every_bfcl_answer_that_the_format_can_carry_comes_back(base_dir: Path) -> None:
    (package,) = SERVE.glob("lib/*/site-packages/bfcl_eval")
    cases, wanted, left_out = [], [], 0
    for tools, calls in bfcl.questions(package):
        kept = [call for call in calls if bfcl.expressible(call, tools)]
        left_out += len(calls) - len(kept)
        if not kept:
            continue
        turn = chat.say("", think="x") | {
            "tool_calls": [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in kept
            ]
        }
        cases.append((generated([chat.user("x"), turn], tools), tools, []))
        wanted.append(kept)
    for (text, tools, _), answer, calls in zip(cases, ask(base_dir, cases), wanted, strict=True):
        read = [ToolCall(name, json.loads(arguments)) for name, arguments in answer["calls"]]
        assert ours(text, tools) == normal(answer)
        assert same([[c.name, c.arguments] for c in read], [[c.name, c.arguments] for c in calls]), text
    carried = sum(map(len, wanted))
    print(f"BFCL: {carried} calls come back, {left_out} are of a type that the format cannot say")
    assert carried >= 3000 and left_out <= 0.06 * carried


def test_a_reference_is_read_as_a_string_by_vllm_and_followed_by_us(base_dir: Path) -> None:
    """The one difference that we keep. vLLM's coercion looks at `type`, `enum` and unions alone; an agent
    that checks arguments before it sends them would be right to follow the reference."""
    schema = {"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    text, tools = (
        "</think><tool_call>\n<function=f>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>",
        [chat.tool("f", "d", {"type": "object", **schema})],
    )
    (answer,) = ask(base_dir, [(text, tools, [])])
    assert (normal(answer)["calls"], ours(text, tools)["calls"]) == (
        [("f", '{"n": "3"}')],
        [("f", '{"n": 3}')],
    )
