"""What the model says around its calls when no teacher writes it: short thoughts, answers from results."""

import json
import random
import re
from collections.abc import Mapping
from typing import Any

from dataset_builder.schemas import ToolSchema
from dataset_builder.talking import results
from dataset_builder.talking.tool_names import RESULT, Noun, head_of, plural_of, verb_and_words
from dataset_builder.talking.wording import fenced, product_of

LINES = 6
"""The most entries of a list that an answer repeats."""
LONG = 120
"""Characters of a field that still stands within a sentence."""
TEXT = 700
"""Characters of a text that an answer repeats."""


def thought(tool: ToolSchema, arguments: Mapping[str, Any], spanish: bool, rng: random.Random) -> str:
    """Why this tool, and where its values come from."""
    named = [name for name, value in arguments.items() if not isinstance(value, bool)][:3]
    values = " y ".join([", ".join(named[:-1]), *named[-1:]] if named[1:] else named)
    values = values if spanish else values.replace(" y ", " and ")
    if spanish:
        why = rng.choice(
            (
                f"Es cosa de {product_of(tool)}: `{tool.name}` hace justo eso.",
                f"Para esto está `{tool.name}`.",
                f"De las herramientas que tengo, `{tool.name}` es la que lo hace.",
            )
        )
        source = rng.choice(
            (f"{values}: tal como vienen en el mensaje.", f"Tomo {values} de lo que me dicen.")
        )
        return f"{why} {source}" if named else f"{why} No necesita nada más."
    why = rng.choice(
        (
            f"This is about {product_of(tool)}; `{tool.name}` does just that.",
            f"`{tool.name}` is there for this.",
            f"Of the tools at hand, `{tool.name}` is the one.",
        )
    )
    source = rng.choice((f"{values}: as the message gives them.", f"I take {values} from what was said."))
    return f"{why} {source}" if named else f"{why} It needs nothing else."


def answer(tool: ToolSchema, arguments: Mapping[str, Any], result: str, spanish: bool) -> str:
    """A closing text that says what came out, in the result's own words and numbers."""
    verb, words = verb_and_words(tool, arguments)
    thing = head_of(words) or RESULT
    entries = entries_of(result)
    if entries is not None:
        return _list(entries, thing, spanish)
    data = _json(result)
    if isinstance(data, dict) and data.keys() != {"success"}:
        return _object(data, thing, verb in results.READS, spanish)
    if isinstance(data, dict) or "\n" not in result:
        text = "" if isinstance(data, dict) else f" {result}"
        return (f"Hecho.{text}" if spanish else f"Done.{text}").strip()
    cut = result if len(result) <= TEXT else result[:TEXT].rsplit("\n", 1)[0] + "\n[…]"
    return ("Esto es lo que devuelve:\n\n" if spanish else "This is what came back:\n\n") + fenced(cut)


def _object(data: dict[str, Any], thing: Noun, is_read: bool, spanish: bool) -> str:
    """One thing by its short fields; a long text of it follows in a block."""
    short = [f"{key}: {results.plain(value)}" for key, value in data.items() if not _is_long(value)]
    about = f"{thing.es if spanish else thing.en} ({', '.join(short[:5])})"
    text = f"{about[0].upper()}{about[1:]}." if is_read else f"{'Hecho' if spanish else 'Done'}: {about}."
    content = next((value for value in data.values() if isinstance(value, str) and _is_long(value)), None)
    return text if content is None or not is_read else f"{text}\n\n{fenced(content)}"


def _is_long(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, str) and ("\n" in value or len(value) > LONG))


def entries_of(result: str) -> list[str] | None:
    """The entries of a result that is a list, a line of text each; None where it is none."""
    data = _json(result)
    if isinstance(data, dict):
        data = next((value for value in data.values() if isinstance(value, list)), None)
    if isinstance(data, list):
        return [
            ", ".join(f"{key}: {results.plain(value)}" for key, value in entry.items())
            if isinstance(entry, dict)
            else str(entry)
            for entry in data
        ]
    lines = result.splitlines()
    if lines and all(re.match(r"- \w+: ", line) for line in lines):
        return [line.removeprefix("- ") for line in lines]
    return None


def _list(entries: list[str], thing: Noun, spanish: bool) -> str:
    if not entries:
        return f"No hay {thing.plural}." if spanish else f"There are no {plural_of(thing.en)}."
    named = (
        (thing.es if spanish else thing.en)
        if len(entries) == 1
        else thing.plural
        if spanish
        else plural_of(thing.en)
    )
    lines = "\n".join(f"- {entry}" for entry in entries[:LINES])
    return (f"Hay {len(entries)} {named}:\n\n" if spanish else f"Found {len(entries)} {named}:\n\n") + lines


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def closing(spanish: bool, rng: random.Random) -> str:
    """The thought before an answer that closes."""
    if spanish:
        return rng.choice(
            ("Ya tengo la respuesta; la cuento tal cual.", "Ha salido bien. Lo resumo.", "Con esto está.")
        )
    return rng.choice(
        ("I have the answer; I tell it as it is.", "It went well. I sum it up.", "That settles it.")
    )


def found(called: str, field: str, value: Any, spanish: bool) -> str:
    """The thought that takes a value from a result: where it came from."""
    if spanish:
        return f"En la lista, «{called}» es {field} {value}. Con ese valor hago la siguiente llamada."
    return f'In the list, "{called}" is {field} {value}. That goes into the next call.'


def search_first(tool: ToolSchema, argument: str, called: str, spanish: bool) -> str:
    """The thought before looking for what the user calls by its name."""
    if spanish:
        return f"Falta `{argument}`: solo sé que se llama «{called}». Primero lo busco con `{tool.name}`."
    return (
        f'`{argument}` is missing: I only know the name, "{called}". First I look it up with `{tool.name}`.'
    )


def several(count: int, spanish: bool) -> str:
    """The thought before calls that do not depend on each other."""
    if spanish:
        return f"Son {count} cosas que no dependen una de otra: las llamadas van juntas."
    return f"These are {count} things that do not depend on each other: the calls go together."
