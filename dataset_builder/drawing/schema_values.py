"""A JSON value from a JSON schema (draft 2020-12), written as people write what is called by its name.

Every free text and number belongs to one side (`values.side`), so training, development and evaluation share
none; what the schema itself spells out (enum, const, the words that a description quotes) may stand on all of
them. A null is never drawn: what may be null and nothing else has no value.
"""

import random
import re
from dataclasses import dataclass, replace
from typing import Any

from dataset_builder.drawing import json_texts, number_values, patterns, texts, values
from dataset_builder.drawing.json_schema import Undrawable, as_dict, listed, merged, resolved
from dataset_builder.talking import penpot

TRIES = 60
DEPTH = 5
"""Levels of nesting below which optional parts and further items are left out."""
CATEGORICAL = re.compile(
    r"(^|_)(state|status|type|kind|mode|format|sort|order|order_by|direction|operation|method|priority|severity|"
    r"position|layout|subtype|width|activity|access|level|role|do|action|visibility|event|reaction|expand|fields|"
    r"include|metrics|detail|properties)$"
)
QUOTED = re.compile(r"""(?<!\w)['"`]([A-Za-z][\w ,/*.-]{0,40})['"`](?!\w)""")
BARE_CHOICES = re.compile(r"\((\w+(?:\s?[|/]\s?\w+)+)\)")


@dataclass(frozen=True)
class Context:
    """What every part of a value is drawn with."""

    rng: random.Random
    split: str
    root: dict[str, Any]
    """The document that local `$ref`s point into."""
    tool: str = ""
    """Bare name of the tool that the value is for."""
    depth: int = 0

    @property
    def deeper(self) -> "Context":
        """One level of nesting down."""
        return replace(self, depth=self.depth + 1)


def named_values(schema: dict[str, Any]) -> list[str]:
    """The words that a description gives as the possible values of a text parameter, in its order."""
    said = schema.get("description")
    said = said if isinstance(said, str) else ""  # a parameter may be called so
    found = QUOTED.findall(said)
    for choices in BARE_CHOICES.findall(said):
        found += re.split(r"\s?[|/]\s?", choices)
    default = schema.get("default")
    return list(dict.fromkeys([*found, default] if isinstance(default, str) and default else found))


def value(schema: Any, name: str, ctx: Context) -> Any:
    """A value that `schema` accepts as far as its keywords can be followed; Undrawable where none is found.

    `not`, `if` and the like are left to validation: who needs certainty validates and draws again.
    """
    if schema is True or schema == {}:
        schema = {"type": "string"}
    if not isinstance(schema, dict) or ctx.depth > 4 * DEPTH:
        raise Undrawable(name)
    choices = [choice for union in ("anyOf", "oneOf") for choice in schema.get(union, ())]
    if choices:
        rest = {key: part for key, part in schema.items() if key not in ("anyOf", "oneOf")}
        return _first(choices, rest, name, ctx)
    schema = resolved(schema, ctx.root)
    if any(union in schema for union in ("anyOf", "oneOf")):
        return value(schema, name, ctx.deeper)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        named = [one for one in schema["enum"] if one is not None]
        if not named:
            raise Undrawable(name)
        return ctx.rng.choice(named)
    return _TYPES[_type(schema, name, ctx)](schema, name, ctx)


def one_of(schema: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """An object's schema with one branch of its unions folded in."""
    schema = resolved(schema, ctx.root)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            rest = {key: part for key, part in schema.items() if key != union}
            return one_of(merged(rest, as_dict(ctx.rng.choice(schema[union]))), ctx)
    return schema


def _first(choices: list[Any], rest: dict[str, Any], name: str, ctx: Context) -> Any:
    """A value of one of the choices; simple ones first where nesting has gone deep."""
    order = [c for c in choices if as_dict(c).get("type") != "null"]
    ctx.rng.shuffle(order)
    if ctx.depth > DEPTH:
        order.sort(
            key=lambda choice: any(k in as_dict(choice) for k in ("$ref", "properties", "items", "allOf"))
        )
    for choice in order:
        try:
            return value(merged(rest, choice) if isinstance(choice, dict) else rest, name, ctx.deeper)
        except Undrawable:
            continue
    raise Undrawable(name)


def _type(schema: dict[str, Any], name: str, ctx: Context) -> str:
    named = [t for t in listed(schema.get("type", ())) if t != "null"]
    if not named and schema.get("type") in ("null", ["null"]):
        raise Undrawable(name)
    if named:
        return ctx.rng.choice(named)
    for kind, keys in _IMPLIED.items():
        if any(key in schema for key in keys):
            return kind
    return "string"


def _string(schema: dict[str, Any], name: str, ctx: Context) -> str:
    said, plain = schema.get("description", ""), texts.snake(name)
    is_json = json_texts.is_due(said)
    spelled = [word for word in named_values(schema) if word not in ctx.root.get("properties", {})]
    if CATEGORICAL.search(plain) and not is_json and "format" not in schema:
        fitting = [word for word in spelled if _fits(word, schema)]
        if fitting:
            return ctx.rng.choice(fitting)
    if is_json:
        make: texts.Maker = lambda _: json_texts.draw(said, name, lambda n, part: value(part, n, ctx))  # noqa: E731
    else:
        make = (
            KNOWN.get((ctx.tool, name))
            or texts.FORMATS.get(schema.get("format", ""))
            or texts.maker(name, f"{said} {ctx.tool.replace('_', ' ')}")
        )
        if plain.endswith("s") and re.search(r"omma.separated", said):
            make = _joined(make)
    narrow = None
    for _ in range(4 * TRIES):
        text = make(ctx.rng)
        if "pattern" in schema and not _fits(text, schema):
            text = _of_pattern(schema["pattern"], ctx)
        text = _of_length(text, schema, ctx.rng)
        if _fits(text, schema):
            if values.side(text) == ctx.split:
                return text
            narrow = text
    # A pattern or a length may leave so few texts that none is of this side.
    if narrow is None or not schema.keys() & {"pattern", "maxLength"}:
        raise Undrawable(name)
    return narrow


def _joined(make: texts.Maker) -> texts.Maker:
    return lambda rng: ",".join(make(rng) for _ in range(rng.choice([1, 2, 2, 3])))


def _of_length(text: str, schema: dict[str, Any], rng: random.Random) -> str:
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    while len(text) < low:
        text = f"{text} {texts.sentence(rng)}"
    return text if high is None or len(text) <= high else text[:high]


def _of_pattern(pattern: str, ctx: Context) -> str:
    try:
        return patterns.draw(pattern, ctx.rng) or ""
    except re.error:  # an expression of ECMAScript alone; the validator lets any text through
        return texts.title(ctx.rng)


def _fits(text: str, schema: dict[str, Any]) -> bool:
    long = len(text) >= schema.get("minLength", 0) and len(text) <= schema.get("maxLength", len(text))
    try:
        return long and ("pattern" not in schema or re.search(schema["pattern"], text) is not None)
    except re.error:
        return long


def _number(schema: dict[str, Any], name: str, ctx: Context) -> int | float:
    return _sided(lambda: number_values.draw(schema, name, ctx.rng), ctx)


def _sided(make: Any, ctx: Context) -> Any:
    """What `make` gives, of the split's side where its range has such a value."""
    found = make()
    for _ in range(TRIES):
        if values.side(found) == ctx.split:
            break
        found = make()
    return found


def _array(schema: dict[str, Any], name: str, ctx: Context) -> list[Any]:
    prefix, low = schema.get("prefixItems", []), schema.get("minItems", 0)
    high = schema.get("maxItems", max(low, len(prefix), 3))
    count = max(low, min(ctx.rng.choice([1, 1, 2, 2, 3]) if ctx.depth <= DEPTH else low, high))
    if schema.get("items") is False:
        count = min(count, len(prefix))
    items: list[Any] = []
    rest = schema.get("items", schema.get("contains", True))
    singular = re.sub(r"(?<=[^s])s$", "", name)
    for position in range(count):
        part = prefix[position] if position < len(prefix) else rest
        item = value(part, singular, ctx.deeper)
        for _ in range(TRIES if schema.get("uniqueItems") or position < 3 else 0):
            if item not in items:
                break
            item = value(part, singular, ctx.deeper)
        if item not in items or (not schema.get("uniqueItems") and len(items) < low):
            items.append(item)
    if len(items) < low:
        raise Undrawable(name)
    return items


def _object(schema: dict[str, Any], name: str, ctx: Context) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    found: dict[str, Any] = {}
    for key, part in properties.items():
        if key in required:
            found[key] = value(part, key, ctx.deeper)
        elif ctx.depth <= DEPTH and ctx.rng.random() < (0.5 if not required else 0.3):
            try:
                found[key] = value(part, key, ctx.deeper)
            except Undrawable:
                continue
    for key in required:
        if key not in found:
            found[key] = value(schema.get("additionalProperties", True), key, ctx.deeper)
    if not properties and schema.get("additionalProperties") is not False:
        named = next(iter(schema.get("patternProperties", {}).items()), None)
        part = named[1] if named else schema.get("additionalProperties", True)
        least = max(schema.get("minProperties", 0), ctx.depth <= DEPTH)
        for _ in range(ctx.rng.randint(least, max(least, 2))):
            key = _of_pattern(named[0], ctx) if named else _sided(lambda: values.KINDS["word"](ctx.rng), ctx)
            found[key] = value(part, key, ctx.deeper)
    return found


def _boolean(schema: dict[str, Any], name: str, ctx: Context) -> bool:
    default = schema.get("default")
    return not default if isinstance(default, bool) else ctx.rng.random() < 0.7


_TYPES = {
    "string": _string,
    "integer": _number,
    "number": _number,
    "boolean": _boolean,
    "array": _array,
    "object": _object,
}
_IMPLIED = {
    "object": ("properties", "additionalProperties", "patternProperties", "required"),
    "array": ("items", "prefixItems", "minItems"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""The type that keywords speak of, where none is named."""
KNOWN: dict[tuple[str, str], texts.Maker] = {
    ("execute_code", "code"): penpot.code,
    ("export_shape", "filePath"): texts.image,
    ("penpot_api_info", "type"): lambda rng: rng.choice(penpot.TYPES),
    ("penpot_api_info", "member"): lambda rng: rng.choice(penpot.MEMBERS),
}
"""(tool, parameter) whose values only the server's own API can tell."""
