"""Arguments for a tool call: which of the tool's parameters a request would give, and their values.

An optional argument is left out rather than null, whatever its default says.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from core import toolcalls
from core.toolcalls import ToolCall
from dataset_builder.drawing import methods, texts
from dataset_builder.drawing.json_schema import Undrawable, as_dict, listed
from dataset_builder.drawing.schema_values import QUOTED, Context, named_values, one_of, value
from dataset_builder.schemas import ToolSchema

TRIES = 60
UNASKED = re.compile(
    r"cursor|page_token|(?<!page_)after$|(?<!page_)before$|base64|expected_head|secret|passw|credential|api_?key"
)
"""Arguments that only an earlier answer can give, that no person writes, or whose name speaks of secrets."""
DATED = re.compile(r"date|8601|3339", re.I)
WRITES = re.compile(r"create|update|write|edit|move|set_|add|upload|comment|submit|assign|transition", re.I)
ENDS = re.compile(r"^(delete|remove|clear|cancel|dismiss|mark|stop|unresolve|resolve)")
SUBSTANCE = re.compile(
    r"^(owner|org|project_number|space_key|page_id|issue_number|title|summary|body|content|name|description|"
    r"file_path|target_\w+|parent_page_id|assignees?|labels|state)$"
)
"""Optional arguments that give a write something to write; they come before others."""


def draw(
    schema: Any, rng: random.Random, split: str, *, name: str = "", root: dict[str, Any] | None = None
) -> Any:
    """A JSON value that `schema` accepts, written as people write what is called `name`.

    `root` is the document that local `$ref`s point into, by default the schema itself. Raises Undrawable.
    """
    return value(schema, name, Context(rng, split, root if root is not None else as_dict(schema)))


def draw_call(
    tool: ToolSchema,
    rng: random.Random,
    split: str,
    *,
    given: Mapping[str, Any] | None = None,
    sparse: bool = False,
) -> dict[str, Any]:
    """Valid arguments for a call: the required ones and some others, in the schema's order.

    They survive the text format that the model writes. `given` values are taken as they are; a `sparse` call
    has no argument that nothing asks for. Raises Undrawable where none came out.
    """
    for tries in range(TRIES):
        ctx = Context(rng, split, tool.parameters, tool.name)
        try:
            arguments = _arguments(tool, ctx, given or {}, sparse or tries > TRIES // 2)
        except Undrawable:
            continue
        if tool.fault_in(arguments) is None and survives(tool, arguments):
            return arguments
    raise Undrawable(tool.shown_name)


def survives(tool: ToolSchema, arguments: dict[str, Any]) -> bool:
    """Whether the arguments, written as Qwen's XML, are read back as they were; a null does not."""
    parts = "".join(f"<parameter={name}>\n{_text(one)}\n</parameter>\n" for name, one in arguments.items())
    text = f"\n</think>\n\n<tool_call>\n<function={tool.shown_name}>\n{parts}</function>\n</tool_call>"
    calls = toolcalls.parse(text, [tool.shown]).calls
    return calls == (ToolCall(tool.shown_name, arguments),) and not _has_null(arguments)


def fixed(tool: ToolSchema, one: Any) -> bool:
    """Whether the tool's schema spells a value out, so that it may stand on both sides of the split."""
    if isinstance(one, bool):
        return True
    return any(
        one
        in (
            schema.get("default"),
            schema.get("const"),
            *listed(schema.get("enum", ())),
            *named_values(schema),
        )
        for schema in _subschemas(tool.parameters)
    )


def _arguments(tool: ToolSchema, ctx: Context, given: Mapping[str, Any], sparse: bool) -> dict[str, Any]:
    schema = one_of(tool.parameters, ctx)
    properties, required = schema.get("properties", {}), list(schema.get("required", ()))
    chosen = {name: given[name] for name in properties if name in given}

    def choose(name: str) -> None:
        part = properties.get(name, schema.get("additionalProperties", True))
        chosen[name] = _distinct(part, name, ctx.deeper, chosen)

    for name in required:
        if name not in chosen:
            choose(name)
    chooser = methods.selector(properties)
    method = chosen.get(chooser or "")
    others = [name for name in properties if name not in chosen]
    wants = {name: methods.wants(name, method, properties) if method else None for name in others}
    more = ctx.rng.choice([0, 1, 1, 2, 2, 3])
    ctx.rng.shuffle(others)
    if WRITES.search(method or tool.name) or not required:
        more = max(more, 1)
        others.sort(key=lambda name: not SUBSTANCE.search(texts.snake(name)))
    if sparse or (method and ENDS.search(method)):
        more = 0
    for name in sorted(others, key=lambda name: not wants[name]):
        free = wants[name] is None and more > 0 and _is_fit(name, properties, chosen)
        if name in chosen or not (wants[name] or free):
            continue
        more -= free
        try:
            choose(name)
            for other in _companions(properties[name], properties):
                if other not in chosen:
                    choose(other)
        except Undrawable:
            continue
    return {name: chosen[name] for name in [*properties, *required] if name in chosen}


def _distinct(schema: Any, name: str, ctx: Context, chosen: dict[str, Any]) -> Any:
    """A value unlike those of the other arguments: a branch is not merged into itself."""
    found = value(schema, name, ctx)
    for _ in range(TRIES if isinstance(found, str) else 0):
        if found not in chosen.values():
            break
        found = value(schema, name, ctx)
    return found


def _is_fit(name: str, properties: dict[str, Any], chosen: dict[str, Any]) -> bool:
    """Whether an optional argument is one that a person would give beside the chosen ones."""
    said = as_dict(properties[name]).get("description", "")
    if UNASKED.search(texts.snake(name)) and not DATED.search(said):
        return False
    excluded = re.search(r"utually exclusive|annot be combined|instead of|\bOR\b", said)
    return not excluded or not any(re.search(rf"\b{re.escape(other)}\b", said) for other in chosen)


def _companions(schema: Any, properties: dict[str, Any]) -> list[str]:
    """Parameters that a description wants beside its own (`... also needs to be provided`)."""
    said = as_dict(schema).get("description", "")
    if not re.search(r"also needs|equired (when|if) using|equired with|together with|(when|if) using", said):
        return []
    return [other for other in QUOTED.findall(said) if other in properties]


def _text(one: Any) -> str:
    """A value as the chat template writes it."""
    return json.dumps(one, ensure_ascii=False) if isinstance(one, dict | list) else str(one)


def _has_null(one: Any) -> bool:
    parts = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return one is None or any(_has_null(part) for part in parts)


def _subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _subschemas(part)
