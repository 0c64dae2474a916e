"""Texts as a model generates them, right and wrong, and the tools that they call: made from a seed."""

import json
import random
from collections.abc import Iterator
from typing import Any

from core import chat

TYPES: list[Any] = [
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "object"},
    {"type": "object", "properties": {"k": {"type": "integer"}}},
    {"type": "array", "items": {"type": "integer"}},
    {"type": ["integer", "null"]},
    {"type": ["string", "number"]},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"oneOf": [{"type": "array"}, {"anyOf": [{"type": "boolean"}]}]},
    {"allOf": [{"type": "number"}]},
    {"enum": ["a", "1", 1]},
    {"enum": [None, 2.5]},
    {"type": "int"},
    {"type": "Float"},
    {"type": " list "},
    {"type": "date"},
    {"type": None},
    {"enum": []},
    {},
    True,
    None,
]
"""Schemas of an argument, some of them no JSON Schema: servers send such."""
VALUES = """3|-7|3.5|2.0|1e3|1e999|nan|Infinity|0x10|1_000| 3 |٣|true|True|FALSE|0|1|yes|null|NULL| null|None|
{"k": 1}|{"k": "1"}|{'k': 1}|["a", "3"]|["3", 4]|[1, 2|[NaN]|[1e999]|"text"|""||\n|\na\n|  a  |a\n\n  b\n|
<b>&amp;</b>|a < b > c|</b>|C:\\dir\\n|"quoted|ñandú €|𝒳|a{"b": [1]}c|--- a\n+++ b|a\r\nb|\r\n|  \n x \n  |
2025-01-31|12345678901234567890|-0|-0.0|+5|007|1.10|.5|5.""".replace("|\n", "|").split("|")
SAID = ["", "\n\n", "Hola.", " \n", "Voy a ello:\n\n", "a < b", "<b>", "{", "1 > 0", "¿Sí?"]
THOUGHT = ["", "\n", "I think.", "Pienso…\n", "<think>", "a\n\nb ", "use <function=x>", "</parameter>"]
PIECES = [
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    ">",
    "\n",
]
PIECES += ["<think>", "</think>", "f", "g>", "s", "n>", "3", " ", "<", "</", "=", "a", "<function=f>", "{}"]
PIECES += ["<parameter=n>", "< parameter = n >", "</ parameter >", "<|im_start|>", "<tool_response>"]


def tools(draw: random.Random) -> list[chat.Tool]:
    """Two tools, f and g, whose arguments s, n, ... have types at random."""
    made = []
    for name in ("f", "g"):
        properties = {key: draw.choice(TYPES) for key in draw.sample("snabcd", draw.randint(0, 4))}
        parameters = {"type": "object", "properties": properties}
        made.append(chat.tool(name, "d", {} if draw.random() < 0.05 else parameters))
    return made


def call(draw: random.Random) -> str:
    """A call as the chat template writes it."""
    keys = draw.sample("snabcdx", draw.randint(0, 4))
    inner = "".join(f"<parameter={key}>\n{draw.choice(VALUES)}\n</parameter>\n" for key in keys)
    return f"<tool_call>\n<function={draw.choice('ffgh')}>\n{inner}</function>\n</tool_call>"


def turn(draw: random.Random) -> str:
    """A whole turn: thinking, words, up to three calls."""
    calls = [draw.choice(["", "\n", "\n\n"]) + call(draw) for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))]
    end = draw.choice(["</think>", "\n</think>\n\n"])
    return draw.choice(THOUGHT) + end + draw.choice(SAID) + "".join(calls)


def broken(draw: random.Random) -> str:
    """A turn with a piece of its markup lost, doubled, swapped, moved or put in, or cut short."""
    text = turn(draw)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(text) + 1)
        piece = draw.choice(PIECES)
        where = text.find(piece)
        match draw.randrange(5):
            case 0:
                text = text.replace(piece, "", 1)
            case 1 if where >= 0:
                text = text[:where] + piece + text[where:]
            case 2:
                text = text[:at]
            case 3:
                text = text.replace(piece, draw.choice(PIECES), 1)
            case _:
                text = text[:at] + piece + text[at:]
    return text


def soup(draw: random.Random) -> str:
    """Pieces of markup in any order."""
    return "".join(draw.choices(PIECES, k=draw.randint(1, 14)))


def cases(seed: int, number: int) -> Iterator[tuple[str, list[chat.Tool]]]:
    """Texts with their tools: whole turns, broken ones and soup, in equal parts."""
    draw = random.Random(seed)
    for i in range(number):
        yield (turn, broken, soup)[i % 3](draw), tools(draw)


def as_line(text: str, shown: list[chat.Tool], cuts: list[int]) -> str:
    """A case as vllm_parser.py reads it."""
    return json.dumps({"text": text, "tools": shown, "cuts": cuts}, ensure_ascii=False) + "\n"
