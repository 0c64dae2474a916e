"""Whether the labels of a rendered row are what the model should learn: its turns, whole, and nothing else.

Judged from the labels alone: what they decode to is read as the server would read it, and must give back the
messages that the row trains.
"""

from collections.abc import Sequence
from typing import Any

from core import toolcalls
from core.chat import Message, Row
from core.render import IGNORE, Rendered, labelled_texts, trained_messages
from core.toolcalls import Reply
from dataset_builder.verifying.checks import calls


def fault_in_mask(row: Row, samples: Sequence[Rendered], tokenizer: Any) -> str | None:
    """What is wrong with the labels of a row's samples, or None.

    They must be the input's tokens, not empty, and cover reasoning, content, calls and end of turn of each
    trained message in order: nothing of the system's, the user's or a tool's text.
    """
    for sample in samples:
        for token, label in zip(sample.input_ids, sample.labels, strict=True):
            if label not in (IGNORE, token):
                return "a label is not the token at its place"
    found = [labelled_texts(sample, tokenizer) for sample in samples]
    if not all(found):
        return "the mask is empty"
    texts = [text for sample in found for text in sample]
    trained = [row.messages[position] for position in trained_messages(row)]
    if len(texts) != len(trained):
        return f"{len(texts)} labelled spans for {len(trained)} trained turns"
    for text, message in zip(texts, trained, strict=True):
        fault = _fault_in_turn(text, message, row, str(tokenizer.eos_token))
        if fault:
            return fault
    return None


def _fault_in_turn(text: str, message: Message, row: Row, end_of_turn: str) -> str | None:
    if text.find(end_of_turn) != len(text) - len(end_of_turn):
        return "a labelled turn does not end at the end of turn"
    if not row.meta.get("thinking", True):
        text = f"</think>{text}"  # which stood in the prompt
    reasoning = (message.get("reasoning_content") or "").strip()
    written = Reply(reasoning or None, message.get("content", "").strip(), tuple(calls(message)))
    read = toolcalls.parse(text, row.tools)
    if read.calls != written.calls:
        return "a call that the text format cannot carry"
    if read != written or not text.startswith(reasoning):
        return "the labels are not the assistant's turn"
    return None
