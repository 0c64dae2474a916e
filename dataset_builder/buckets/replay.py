"""What the model does well already, in its own words, so that training does not make it forget.

On the training side the base answers the prompts itself; an answer that is not a valid turn is left out.
On the held-out side the file's reference answer stays, to measure what was forgotten.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

from core import chat, generate, toolcalls
from core.chat import Row
from core.render import prompt_text


def divide(rows: list[Row], train: int, held_out: int) -> tuple[list[Row], list[Row]]:
    """Which prompts are answered anew for training and which are held out, by a digest of their group."""
    order = sorted(rows, key=lambda row: hashlib.sha256(row.group.encode()).digest())
    return order[:train], [replace(row, split="eval") for row in order[train : train + held_out]]


def answered(rows: list[Row], base: Path, dtype: str, max_new_tokens: int) -> list[Row]:
    """The rows with the base's own greedy answer as their last turn; invalid answers are left out."""
    tokenizer, model = generate.load_tokenizer(base), generate.load_model(base, dtype)
    histories = [row.messages[: chat.assistant_turns(row.messages)[0]] for row in rows]
    prompts = [prompt_text(h, row.tools, tokenizer) for h, row in zip(histories, rows, strict=True)]
    answers = generate.generate(
        model, tokenizer, prompts, max_new_tokens=max_new_tokens, what="replay: the base answers"
    )
    made = []
    for row, history, answer in zip(rows, histories, answers, strict=True):
        reply = toolcalls.parse(answer, row.tools)
        valid = (reply.content or reply.calls) and not any(
            toolcalls.faults(c, row.tools) for c in reply.calls
        )
        if valid and reply.reasoning:
            turn = chat.say(reply.content, think=reply.reasoning)
            if reply.calls:
                turn["tool_calls"] = [
                    {"type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                    for c in reply.calls
                ]
            made.append(replace(row, messages=[*history, turn], source="the base"))
    return made
