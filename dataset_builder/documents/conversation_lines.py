"""Conversations that a user wrote, one JSON object a line, each in any of three forms.

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}
    {"prompt": "…", "completion": "…"}
    {"text": "<s>[INST] … [/INST] …</s>"}

The form is recognised line by line, so that a file may mix them.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core import chat
from core.chat import Message
from core.errors import UserError

EXPECTED = "messages, prompt with completion, or text with [INST]"
SPEAKERS = ("user", "assistant")
_SYSTEM = re.compile(r"\s*<<SYS>>(.*?)<</SYS>>", re.DOTALL)
_TURN = re.compile(r"\s*\[INST\](.*?)\[/INST\](.*?)(?=\[INST\]|\Z)", re.DOTALL)


class Fault(Exception):
    """What is wrong with one line."""


def read(path: Path) -> list[tuple[int, list[Message]]]:
    """The conversations of a file, each with the number of its line.

    Blank lines are passed over, and so is a byte order mark. UserError with file and line of the first line
    that is wrong, and how many more are.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; correct DATA") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory; DATA names one .jsonl file") from None
    found, faults = [], []
    for number, line in _lines(path, raw):
        try:
            found.append((number, conversation(_object(line))))
        except Fault as fault:
            faults.append(f"{path}:{number}: {fault}")
    if faults:
        more = f" (and {len(faults) - 1} more lines are wrong)" if len(faults) > 1 else ""
        raise UserError(faults[0] + more)
    if not found:
        raise UserError(f"{path}: no conversation in it; expected a JSON object a line with {EXPECTED}")
    return found


def conversation(entry: dict[str, Any]) -> list[Message]:
    """The messages of one entry, in whichever form; Fault where it has none or is wrong.

    A system message may open it; then user and assistant take turns, and the assistant has the last word.
    """
    forms: dict[str, Callable[[dict[str, Any]], list[Message]]] = {
        "messages": lambda entry: entry["messages"],
        "prompt": _pair,
        "text": _instructions,
    }
    present = [name for name in forms if name in entry]
    if len(present) != 1:
        has = ", ".join(map(str, entry)) or "nothing"
        raise Fault(f"expected {EXPECTED}; it has {has}")
    messages = forms[present[0]](entry)
    fault = chat.fault_in(messages) or _fault_in_turns(messages)
    if fault:
        raise Fault(fault)
    return [{"role": one["role"], "content": one["content"].strip()} for one in messages]


def _lines(path: Path, raw: bytes) -> Iterator[tuple[int, str]]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = raw[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{number}: not UTF-8; save the file as UTF-8") from None
    if _spread(text):
        raise UserError(
            f"{path}:1: JSON spread over several lines; expected one object a line: "
            f"jq -c '.[]? // .' {path} > one-a-line.jsonl"
        )
    # Not splitlines: JSON may hold U+2028 and the like unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def _spread(text: str) -> bool:
    """Whether the whole file is JSON, or begins as JSON that goes on in the next line."""
    first = text.lstrip().split("\n", 1)[0].strip()
    return first in ("{", "[") or first.startswith(("[{", '["'))


def _object(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        reason = getattr(error, "msg", "too large a number")
        column = getattr(error, "colno", 1)
        raise Fault(f"broken JSON ({reason}, column {column}); mend or delete the line") from None
    except RecursionError:
        raise Fault("JSON nested too deeply") from None
    if not isinstance(entry, dict):
        raise Fault(f"expected a JSON object with {EXPECTED}, found {type(entry).__name__}")
    return entry


def _pair(entry: dict[str, Any]) -> list[Message]:
    for name in ("prompt", "completion"):
        if name not in entry:
            raise Fault(f"prompt without {name}")
        if not isinstance(entry[name], str):
            raise Fault(f"{name} must be a text, found {type(entry[name]).__name__}")
    return [chat.user(entry["prompt"]), {"role": "assistant", "content": entry["completion"]}]


def _instructions(entry: dict[str, Any]) -> list[Message]:
    """Llama's and Mistral's written-out form: `[INST] user [/INST] assistant</s>[INST] …`."""
    text = entry["text"]
    if not isinstance(text, str):
        raise Fault(f"text must be a text, found {type(text).__name__}")
    plain = re.sub(r"</?s>", "", text)
    turns = list(_TURN.finditer(plain))
    if not turns or "".join(turn[0] for turn in turns) != plain.rstrip("\n"):
        raise Fault("text: expected [INST] … [/INST] and the answer after it, turn by turn")
    messages: list[Message] = []
    for turn in turns:
        asked, answer = turn[1], turn[2]
        system = _SYSTEM.match(asked)
        if system:
            messages += chat.system(system[1].strip())
            asked = asked[system.end() :]
        messages += [chat.user(asked), {"role": "assistant", "content": answer}]
    return messages


def _fault_in_turns(messages: list[Message]) -> str | None:
    start = 1 if messages[0]["role"] == "system" else 0
    for i, message in enumerate(messages):
        if not message.get("content", "").strip():
            return f"messages[{i}]: content is empty"
        due = SPEAKERS[(i - start) % 2] if i >= start else "system"
        if message["role"] != due:
            return f"messages[{i}]: {message['role']} where {due} is due; they take turns, user first"
    if messages[-1]["role"] != "assistant":
        return "messages: the last turn is the user's; nothing follows to be learnt"
    return None
