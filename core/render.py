"""Rows -> token ids and labels; only what the model would generate is labelled.

The chat template writes the text. Qwen's drops the reasoning of turns before the last user message, so a
conversation with several user turns becomes several samples: each shows the history as the server would
send it, and trains the assistant turns after its last user message.
"""

from dataclasses import dataclass
from typing import Any

from core.chat import Message, Row, Tool, assistant_turns

IGNORE = -100


class RenderError(Exception):
    """A row that cannot be rendered truly; the dataset drops and counts it."""


@dataclass(frozen=True)
class Rendered:
    """One training sample: `input_ids` and `labels` of equal length T; label -100 carries no loss."""

    input_ids: list[int]
    labels: list[int]


def prompt_text(messages: list[Message], tools: list[Tool], tokenizer: Any) -> str:
    """The text that the server sends for a history whose next turn is the assistant's."""
    return str(
        tokenizer.apply_chat_template(
            messages, tools=tools or None, add_generation_prompt=True, tokenize=False
        )
    )


def render(row: Row, tokenizer: Any) -> list[Rendered]:
    """The training samples of a row, one for each user turn that is followed by a trained assistant turn.

    Raises RenderError where the prompt is not a prefix of the rendered conversation, where a token
    straddles the border of a labelled span, or where no turn is trained.
    """
    turns = assistant_turns(row.messages)
    trained = [turns[i] for i in (row.train_turns if row.train_turns is not None else range(len(turns)))]
    users = [i for i, message in enumerate(row.messages) if message["role"] == "user"]
    samples = []
    for start, stop in zip(users, [*users[1:], len(row.messages)], strict=True):
        here = [i for i in trained if start < i < stop]
        if here:
            samples.append(_sample(row.messages[: turns_end(turns, stop)], row.tools, here, tokenizer))
    if not samples:
        raise RenderError("no assistant turn is trained")
    return samples


def turns_end(turns: list[int], stop: int) -> int:
    """Position just after the last assistant turn before `stop`."""
    return max(i for i in turns if i < stop) + 1


def _sample(messages: list[Message], tools: list[Tool], trained: list[int], tokenizer: Any) -> Rendered:
    def text(upto: int) -> str:
        return str(tokenizer.apply_chat_template(messages[:upto], tools=tools or None, tokenize=False))

    whole = text(len(messages))
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    labels = [IGNORE] * len(ids)
    for turn in trained:
        prompt = prompt_text(messages[:turn], tools, tokenizer)
        ended = text(turn + 1).rstrip("\n")
        if not (whole.startswith(ended) and ended.startswith(prompt)):
            raise RenderError("the prompt is not a prefix of the conversation")
        if not ended.endswith(str(tokenizer.eos_token)):
            raise RenderError("the assistant turn does not end with the end-of-turn token")
        prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        first = len(prompt_ids)
        last = next(i for i in range(first, len(ids) + 1) if i == len(ids) or offsets[i][1] > len(ended))
        if ids[:first] != prompt_ids or offsets[last - 1][1] != len(ended):
            raise RenderError("a token straddles the border of the assistant's text")
        if tokenizer.decode(ids[first:last]) != ended[len(prompt) :]:
            raise RenderError("the labelled tokens do not decode to the assistant's text")
        labels[first:last] = ids[first:last]
    return Rendered(ids, labels)
