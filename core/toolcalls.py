"""Tool calls in Qwen's XML format: generated text -> calls, and what is wrong with a call.

The text carries no types: every argument is read by the JSON schema of its tool. The rules are
those of vLLM's `qwen3_coder` tool parser and `qwen3` reasoning parser (`vllm/parser/qwen3.py`, and
`coerce_to_schema_type` in `vllm/tool_parsers/utils.py`), faults included, so that a score here is
of what the server would have sent; `make test-serve` compares the two. One is added: a local
`$ref` is followed to its types, which vLLM reads as strings.

What the format cannot carry: `</parameter>`, `<parameter=`, `</function>` or `</think>` inside a
value; a string that reads as another type which its schema allows as well (`null` where null is
allowed).
"""

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from core import chat
from core.chat import Message, Tool
from core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import jsonschema

_END_OF_TURN = re.compile(r"<\|im_end\|>|<\|endoftext\|>")
_END_OF_THINKING = re.compile(r"</think>|(?=<tool_call>)")
_NAME = r"(?>(?:</?think>|</?tool_call>|</parameter>|(?!</function>)[^>])*)"
"""Up to the first `>` that is not one of another tag."""
_TAG = re.compile(
    r"<tool_call>|</tool_call>"
    rf"|<function=(?P<name>{_NAME})(?:</function>|>(?P<body>.*?)(?:</function>|\Z)|\Z)",
    re.DOTALL,
)
_NEXT_PARAMETER = r"<\s*parameter\s*=\s*"
_PARAMETER = re.compile(
    rf"{_NEXT_PARAMETER}([^>]*)>(.*?)(?:<\s*/\s*parameter\s*>|(?={_NEXT_PARAMETER}))", re.DOTALL
)


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """An assistant turn taken apart; a turn that never ends its thinking is reasoning alone."""

    reasoning: str | None
    """Without surrounding whitespace, which the chat template drops as well; None where empty."""
    content: str
    """What is said before the first call, without surrounding whitespace."""
    calls: tuple[ToolCall, ...]

    def message(self) -> Message:
        """The turn as a server sends it."""
        message = chat.say(self.content, think=self.reasoning or "")
        if self.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        return message


def parse(text: str, tools: Sequence[Tool]) -> Reply:
    """What a server makes of `text`, generated after a prompt that ends in `<think>` and a newline.

    No text makes it raise: broken markup costs arguments or calls, as it does in production.
    """
    text = _END_OF_TURN.split(text, maxsplit=1)[0]
    end = _END_OF_THINKING.search(text)
    thinking, rest = (text[: end.start()], text[end.end() :]) if end else (text, "")
    content, calls = _take_apart(rest.replace("</think>", ""), tools)
    return Reply(thinking.replace("<think>", "").strip() or None, content, calls)


def faults(call: ToolCall, tools: Sequence[Tool]) -> list[str]:
    """What is wrong with a call to one of the `tools` shown, a line each; empty when it is valid.

    Arguments that the schema does not name are faults unless it declares `additionalProperties`.
    Formats and defaults are not checked, nor a `pattern` that Python cannot compile. Raises
    UserError where the tool's own schema is invalid or refers to another document.
    """
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    schemas = _schemas(tools)
    if call.name not in schemas:
        return [f"{call.name}: no such tool{did_you_mean(call.name, schemas)}"]
    try:
        validator = _validator(json.dumps(schemas[call.name]))
        errors = sorted(validator.iter_errors(call.arguments), key=lambda error: error.json_path)
    except SchemaError as error:
        raise UserError(f"{call.name}: its schema is invalid: {error.message}") from None
    except Unresolvable as error:
        raise UserError(f"{call.name}: its schema refers to {error.ref}, not in it") from None
    return [".".join(map(str, (call.name, *e.absolute_path))) + f": {e.message}" for e in errors]


def _take_apart(text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
    said: list[str] = []
    named: list[tuple[str, str]] = []
    inside, last = False, 0
    for tag in _TAG.finditer(text):
        if tag[0] == "</tool_call>" and not inside:
            continue
        if not inside:
            said.append(text[last : tag.start()])
        last = tag.end()
        inside = tag[0] != "</tool_call>"
        if tag["name"]:
            named.append((tag["name"].strip(), tag["body"] or ""))
    if not inside:
        said.append(text[last:])
    content = said[0] if named else "".join(said)
    return content.strip(), tuple(
        ToolCall(name, _arguments(name, body, tools)) for name, body in named if name
    )


def _arguments(name: str, body: str, tools: Sequence[Tool]) -> dict[str, Any]:
    schema = _schemas(tools).get(name, {})
    properties = schema.get("properties", {})
    return {
        key: _read(_unwrap(value), _types(properties.get(key), schema))
        for key, value in _PARAMETER.findall(body)
    }


def _unwrap(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")


def _schemas(tools: Sequence[Tool]) -> dict[str, dict[str, Any]]:
    return {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}


def _types(schema: Any, root: dict[str, Any], seen: frozenset[str] = frozenset()) -> set[str]:
    """The types that a schema allows, unions and local references flattened; string where it says none."""
    if not isinstance(schema, dict):
        return {"string"}
    named, choices = schema.get("type"), schema.get("enum")
    words: list[str] = [
        word.strip().lower() for word in (named if isinstance(named, list) else [named]) if word
    ]
    types = {_ALIASES.get(word, word) for word in words}
    types |= {_NAMES[type(value)] for value in (choices if isinstance(choices, list) else [])}
    for union in ("anyOf", "oneOf", "allOf"):
        for choice in schema.get(union, []):
            types |= _types(choice, root, seen)
    ref = schema.get("$ref")
    if ref is not None and ref not in seen:
        types |= _types(_resolve(ref, root), root, seen | {ref})
    return types or {"string"}


def _resolve(ref: str, root: dict[str, Any]) -> Any:
    """The part of `root` at a JSON pointer such as `#/$defs/point`; None where there is none."""
    document, *parts = ref.split("/")
    node: Any = root if document == "#" else None
    for part in parts:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = {str(i): item for i, item in enumerate(node)}
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _read(text: str, types: set[str]) -> Any:
    """The value of an argument by the first rung of the ladder that is allowed and fits.

    Where none does, anything that is JSON counts as such, and the rest stays a text.
    """
    allowed = [rung for name, rung in _LADDER.items() if name in types]
    for rung in (*allowed, _json):
        try:
            return rung(text)
        except ValueError:
            continue
    return text


def _null(text: str) -> None:
    if text.lower() != "null":
        raise ValueError


def _number(text: str) -> float | int:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return int(value) if value.is_integer() else value


def _boolean(text: str) -> bool:
    word = text.lower().strip()
    if word not in ("true", "1", "false", "0"):
        raise ValueError
    return word in ("true", "1")


def _json(text: str) -> Any:
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError from None
    json.dumps(value, allow_nan=False)  # ValueError on what JSON proper cannot say
    return value


_LADDER: dict[str, Callable[[str], Any]] = {
    "null": _null,
    "integer": int,
    "number": _number,
    "boolean": _boolean,
    "object": _json,
    "array": _json,
    "string": str,
}
_ALIASES = {
    alias: name
    for name, aliases in {
        "string": "str text varchar char enum",
        "integer": "int int32 int64 uint uint32 uint64 long short unsigned",
        "number": "float float32 float64 double",
        "boolean": "bool",
        "object": "dict",
        "array": "arr list sequence",
    }.items()
    for alias in aliases.split()
}
"""Names of types in schemas that are no JSON Schema; servers send them."""
_NAMES = {
    type(None): "null",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    str: "string",
}


@functools.lru_cache(maxsize=1024)
def _validator(schema_json: str) -> "jsonschema.Draft202012Validator":
    from jsonschema import Draft202012Validator, FormatChecker, validators
    from referencing import Registry

    schema = json.loads(schema_json)
    Draft202012Validator.check_schema(schema, format_checker=FormatChecker(()))
    if "additionalProperties" not in schema:
        schema = {"unevaluatedProperties": False} | schema
    lenient = validators.extend(Draft202012Validator, {"pattern": _pattern})
    return lenient(schema, registry=Registry())  # an empty registry fetches nothing


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Any:
    from jsonschema import ValidationError

    try:
        if isinstance(instance, str) and not re.search(pattern, instance):
            yield ValidationError(f"{instance!r} does not match {pattern!r}")
    except re.error:
        return
