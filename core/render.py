"""Rows -> token ids and labels; only what the model would generate is labelled.

The chat template writes the text. Qwen's drops the reasoning of turns before the last user message, so a
conversation with several user turns becomes several samples: each shows the history as the server would
send it, and trains the assistant turns after its last user message.
"""

import itertools
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


def text(messages: list[Message], tools: list[Tool], tokenizer: Any, **how: bool) -> str:
    """A conversation as the chat template writes it; `how` are the template's own switches.

    Raises RenderError where the template refuses it.
    """
    from jinja2 import TemplateError

    try:
        return str(tokenizer.apply_chat_template(messages, tools=tools or None, tokenize=False, **how))
    except TemplateError as error:
        raise RenderError(f"the chat template refuses the conversation ({error})") from None


def prompt_text(messages: list[Message], tools: list[Tool], tokenizer: Any, **how: bool) -> str:
    """The text that the server sends for a history whose next turn is the assistant's; `how` as in `text`."""
    return text(messages, tools, tokenizer, add_generation_prompt=True, **how)


def render(row: Row, tokenizer: Any) -> list[Rendered]:
    """The training samples of a row, one for each user turn that is followed by a trained assistant turn.

    Where the row's `meta` says `thinking: false`, its turns have no reasoning and their prompts are those of
    a server that is asked not to think.

    Raises RenderError where the prompt is not a prefix of the rendered conversation, where a token
    straddles the border of a labelled span, where a turn holds the end-of-turn token before its end, or
    where no turn is trained.
    """
    trained = trained_messages(row)
    how = {} if row.meta.get("thinking", True) else {"enable_thinking": False}
    users = [i for i, message in enumerate(row.messages) if message["role"] == "user"]
    samples = []
    for start, stop in zip(users, [*users[1:], len(row.messages)], strict=True):
        here = [i for i in trained if start < i < stop]
        if here:
            end = max(i for i in assistant_turns(row.messages) if i < stop) + 1
            samples.append(_sample(row.messages[:end], row.tools, here, tokenizer, how))
    if not samples:
        raise RenderError("no assistant turn is trained")
    return samples


def trained_messages(row: Row) -> list[int]:
    """Positions of the messages that carry loss."""
    turns = assistant_turns(row.messages)
    return [turns[i] for i in (row.train_turns if row.train_turns is not None else range(len(turns)))]


def labelled_texts(sample: Rendered, tokenizer: Any) -> list[str]:
    """What each labelled span decodes to, in order: the turns that the sample trains."""
    spans = [
        [label for _, label in run]
        for labelled, run in itertools.groupby(
            zip(sample.input_ids, sample.labels, strict=True), key=lambda pair: pair[1] != IGNORE
        )
        if labelled
    ]
    return [str(tokenizer.decode(span)) for span in spans]


def _sample(
    messages: list[Message], tools: list[Tool], trained: list[int], tokenizer: Any, how: dict[str, bool]
) -> Rendered:
    whole = text(messages, tools, tokenizer)
    encoded = tokenizer(whole, add_special_tokens=False)
    ids = encoded["input_ids"]
    labels = [IGNORE] * len(ids)
    for turn in trained:
        prompt = prompt_text(messages[:turn], tools, tokenizer, **how)
        last_turn = turn + 1 == len(messages)
        ended = (whole if last_turn else text(messages[: turn + 1], tools, tokenizer)).rstrip("\n")
        if not (whole.startswith(ended) and ended.startswith(prompt)):
            raise RenderError("the prompt is not a prefix of the conversation")
        if not ended.endswith(str(tokenizer.eos_token)):
            raise RenderError("the assistant turn does not end with the end-of-turn token")
        first, last = _token_after(prompt, encoded, tokenizer), _token_at(encoded, len(ended) - 1) + 1
        if encoded.token_to_chars(last - 1).end != len(ended):
            raise RenderError("a token straddles the border of the assistant's text")
        if tokenizer.eos_token_id in ids[first : last - 1]:
            raise RenderError("the assistant's text holds the end-of-turn token before its end")
        if tokenizer.decode(ids[first:last]) != ended[len(prompt) :]:
            raise RenderError("the labelled tokens do not decode to the assistant's text")
        labels[first:last] = ids[first:last]
    return Rendered(ids, labels)


def _token_after(prompt: str, encoded: Any, tokenizer: Any) -> int:
    """Index of the first token after a prompt that the encoded text begins with.

    RenderError where the prompt by itself has other tokens. A tokenizer first cuts a text at its added
    tokens (`<|im_start|>`, `<think>`), so that only what follows the prompt's last one can differ.
    """
    first = _token_at(encoded, len(prompt))
    borders = [
        token
        for token, added in tokenizer.added_tokens_decoder.items()
        if not (added.normalized or added.lstrip or added.rstrip or added.single_word)
    ]
    ids = encoded["input_ids"]
    border = next((i for i in range(first - 1, -1, -1) if ids[i] in borders), None)
    begin, start = (0, 0) if border is None else (border + 1, encoded.token_to_chars(border).end)
    same = ids[begin:first] == tokenizer(prompt[start:], add_special_tokens=False)["input_ids"]
    # Llama's and Mistral's treat the beginning of a text apart, so that a part of it says too little.
    if not same and ids[:first] != tokenizer(prompt, add_special_tokens=False)["input_ids"]:
        raise RenderError("a token straddles the border of the assistant's text")
    return first


def _token_at(encoded: Any, position: int) -> int:
    token = encoded.char_to_token(position)
    if token is None:
        raise RenderError("a character of the assistant's text has no token")
    return token
