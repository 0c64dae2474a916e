"""JSON schemas as data: references followed, `allOf` folded in, so that one mapping says it all."""

from typing import Any

STEPS = 60
"""The most references and `allOf`s that are followed in one place."""


class Undrawable(Exception):
    """No value of a schema was found; its tool cannot be taught from the schema alone."""


def resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """A schema without `$ref` and `allOf` on its first level.

    Raises Undrawable where a reference leads out of `root`, nowhere, or to itself.
    """
    for _ in range(STEPS):
        ref = schema.get("$ref")
        if isinstance(ref, str):
            schema = merged({key: part for key, part in schema.items() if key != "$ref"}, _pointed(ref, root))
        elif "allOf" in schema:
            parts = [part for part in schema["allOf"] if isinstance(part, dict)]
            schema = {key: part for key, part in schema.items() if key != "allOf"}
            for part in parts:
                schema = merged(schema, part)
        else:
            return schema
    raise Undrawable("a $ref that leads to itself")


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both schemas at once, the narrower of their bounds; what cannot be merged is left to validation."""
    both = other | one
    for key in one.keys() & other.keys():
        left, right = one[key], other[key]
        if key == "properties":
            same = left.keys() & right.keys()
            both[key] = (
                left | right | {name: merged(as_dict(left[name]), as_dict(right[name])) for name in same}
            )
        elif key == "required":
            both[key] = list(dict.fromkeys([*left, *right]))
        elif key == "enum":
            both[key] = [value for value in left if value in right]
        elif key == "type":
            types = [
                t
                for t in listed(left)
                if t in listed(right) or (t == "integer" and "number" in listed(right))
            ]
            both[key] = types or left
        elif key.startswith(("min", "exclusiveMin")):
            both[key] = max(left, right)
        elif key.startswith(("max", "exclusiveMax")):
            both[key] = min(left, right)
        elif key == "allOf":
            both[key] = [*left, *right]
    for union in ("anyOf", "oneOf"):
        if union in one and union in other:
            both["allOf"] = [*both.get("allOf", ()), {union: other[union]}]
    return both


def as_dict(schema: Any) -> dict[str, Any]:
    """A schema as a mapping; `true` and `false` say nothing of their own."""
    return schema if isinstance(schema, dict) else {}


def listed(types: Any) -> list[Any]:
    """The types of a `type` keyword, which is one or a list."""
    return [types] if isinstance(types, str) else list(types)


def _pointed(ref: str, root: dict[str, Any]) -> dict[str, Any]:
    node: Any = root if ref.startswith("#") else None
    for part in ref.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = dict(enumerate(node)).get(int(key) if key.isdecimal() else -1)
        else:
            node = as_dict(node).get(key)
    if not isinstance(node, dict):
        raise Undrawable(ref)
    return node
