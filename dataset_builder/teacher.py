"""A teacher model: it words rows as a person would, and judges them. What it may not change is checked.

Rows are made without it, calls first. The teacher rewrites their texts alone: requests, thoughts, answers.
A rewritten row stays as it was where a text is missing, a value of a call or a quoted name is gone, or
headings, lists or code blocks changed.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core import chat, phrases
from core.chat import Row
from core.endpoint import Answer, Endpoint, Question, Refusal
from dataset_builder import answers

HEADING = re.compile(r"^#{1,6} .*$", re.MULTILINE)
ITEM = re.compile(r"^ *(?:[-*]|\d+\.) .*$", re.MULTILINE)
FENCED = re.compile(r"```.*?```", re.DOTALL)
LITERAL = re.compile(r"`[^`\n]+`|«[^»\n]+»|\"[^\"\n]+\"|\d[\d:./-]*\d|\d")
Sound = Callable[[Sequence[Row]], set[str]]
"""Rows -> the ids of those that may be kept."""
MOST_TIMES_LONGER = 4
MAX_TOKENS = 4096

REWORD = """\
You improve the wording of training conversations between a user and an assistant that calls tools.
You get a JSON object: `language`, `conversation` (for your understanding), and `texts` to rewrite.
Rewrite every text so that it reads as a real person, or a careful assistant, would write it, in `language`:
- `user`: how a busy colleague asks. Vary the form. Copy every value (paths, names, numbers, code) literally.
- `think`: the assistant's short private reasoning before it acts: why this tool, where the values come from,
  which rule applies. At most three sentences. Copy quoted rules, step numbers and checklists literally.
- `say`: the assistant's answer. Keep every value, heading, code block and the order of sections literally.
Do not add facts. Answer with one JSON object that has exactly the keys of `texts`, and nothing else."""

JUDGE = """\
You check training conversations between a user and an assistant that calls tools. Decide whether a careful
reviewer would want a model to imitate every assistant turn: it does what the user asked, its reasoning is
true, it invents nothing, it follows the system prompt. Answer with one JSON object and nothing else:
{"good": true or false, "reason": "<one sentence>"}"""


def reword(
    rows: Sequence[Row], server: Endpoint, store: Path, *, what: str = "teacher"
) -> tuple[list[Row], Counter[str]]:
    """The rows with the teacher's texts where those keep what they must; and why others stay as they were.

    Answers are kept in the file `store`. Raises UserError as `answers.ask`.
    """
    questions = [_ask_to_reword(row) for row in rows]
    made, kept_back = [], Counter()
    for row, answer in zip(rows, answers.ask(server, questions, store, what=what), strict=True):
        texts = _object(answer)
        fault = "no JSON object" if texts is None else fault_in(texts, row)
        if fault:
            kept_back[fault] += 1
        made.append(row if fault else _with_texts(row, texts or {}))
    return made, kept_back


def reword_sides(
    train: Sequence[Row], held_out: Sequence[Row], server: Endpoint, store: Path, sound: Sound
) -> tuple[list[Row], list[Row]]:
    """Both sides reworded, a row staying as it was where `sound` refuses the new one, or where the new
    request of a held-out row is one of training."""
    sides = []
    for name, rows in (("train", train), ("held out", held_out)):
        made, kept_back = reword(rows, server, store, what=f"teacher: rows ({name})")
        fine = sound(made)
        sides.append([new if new.id in fine else old for old, new in zip(rows, made, strict=True)])
        kept_back["broken by the new texts"] += len(made) - len(fine)
        print(
            "".join(f"teacher: {n} rows ({name}) stay as made: {why}\n" for why, n in kept_back.items()),
            end="",
        )
    taken = {request for row in sides[0] for request in _requests(row)}
    both = zip(held_out, sides[1], strict=True)
    return sides[0], [new if taken.isdisjoint(_requests(new)) else old for old, new in both]


def judge(rows: Sequence[Row], server: Endpoint, store: Path, *, what: str = "judge") -> dict[str, str]:
    """Why the teacher would not imitate a row, by the row's id; rows without a verdict pass."""
    questions = [_question(JUDGE, {"messages": row.messages, "tools": row.tools}, number=0) for row in rows]
    found = map(_object, answers.ask(server, questions, store, what=what))
    return {
        row.id: str(one.get("reason", "no reason given"))
        for row, one in zip(rows, found, strict=True)
        if one and one.get("good") is False
    }


def texts_of(row: Row) -> dict[str, str]:
    """The texts that a teacher may reword, by `<position> <user|think|say>`."""
    texts = {}
    for position, message in enumerate(row.messages):
        if message["role"] == "user":
            texts[f"{position} user"] = message["content"]
        elif message["role"] == "assistant":
            for kind, key in (("think", "reasoning_content"), ("say", "content")):
                if message.get(key):
                    texts[f"{position} {kind}"] = message[key]
    return texts


def fault_in(texts: dict[str, Any], row: Row) -> str:
    """Why a teacher's texts cannot take the place of the row's own; empty where they can."""
    own = texts_of(row)
    if texts.keys() != own.keys():
        return "other texts than asked for"
    for name, old in own.items():
        new = texts[name]
        if not isinstance(new, str) or not new.strip():
            return "an empty text"
        if len(new) > MOST_TIMES_LONGER * max(len(old), 80):
            return "a text that is far too long"
        if any(literal not in new for literal in literals(old, row)):
            return "a value is gone"
        if any(part.findall(new) != part.findall(old) for part in (HEADING, ITEM, FENCED)):
            return "headings, lists or code blocks changed"
    return ""


def literals(text: str, row: Row) -> list[str]:
    """What a rewritten text must contain: what it quotes, its numbers, and the values of the row's calls."""
    quoted = [match.strip('`«»"') for match in LITERAL.findall(text)]
    values = [
        str(item)
        for message in row.messages
        for call in message.get("tool_calls") or []
        for value in call["function"]["arguments"].values()
        for item in (value if isinstance(value, list) else [value])
        if not isinstance(item, dict | bool)
    ]
    return [one for one in [*quoted, *values] if one and one in text]


def _requests(row: Row) -> set[str]:
    return {message["content"] for message in row.messages if message["role"] == "user"}


def _ask_to_reword(row: Row) -> Question:
    first = next(message["content"] for message in row.messages if message["role"] == "user")
    asked = {
        "language": "Spanish" if phrases.is_spanish(first) else "English",
        "conversation": row.messages,
        "texts": texts_of(row),
    }
    return _question(REWORD, asked, number=int.from_bytes(row.id.encode()[-3:]))


def _question(system: str, asked: dict[str, Any], *, number: int) -> Question:
    text = json.dumps(asked, ensure_ascii=False, indent=1)
    messages = [*chat.system(system), chat.user(text)]
    return Question(messages=messages, tools=[], max_tokens=MAX_TOKENS, seed=number)


def _object(answer: Answer | Refusal) -> dict[str, Any] | None:
    """The JSON object of an answer, out of a code fence if it stands in one."""
    if isinstance(answer, Refusal):
        return None
    text = answer.message["content"]
    try:
        found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _with_texts(row: Row, texts: dict[str, str]) -> Row:
    messages = [dict(message) for message in row.messages]
    keys = {"user": "content", "say": "content", "think": "reasoning_content"}
    for name, text in texts.items():
        position, kind = name.split()
        messages[int(position)][keys[kind]] = text.strip()
    return replace(row, messages=messages, meta=row.meta | {"worded_by": "teacher"})
