"""What changed between two dumps of one MCP server, a line a change, for the reader of `make schemas`."""

import json
from collections.abc import Iterator
from typing import Any

LONGEST = 40
"""Characters of a value that a line still shows."""
ABSENT = object()
"""Stands for a keyword that a schema does not have: null is a value."""


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The differences between two answers of a server, each naming the part: `git_log.max_count: type …`.

    Two answers that differ have at least one line.
    """
    lines = [*_server_changes(old, new), *_tool_changes(old, new)]
    if not lines and json.dumps(old) != json.dumps(new):
        lines = ["the order, or a detail that no line names, changed"]
    return lines


def _server_changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    before, after = (dump["server_info"] or {} for dump in (old, new))
    if before != after:
        yield f"version: {before.get('version')} -> {after.get('version')}"
    if old["protocol_version"] != new["protocol_version"]:
        yield f"protocol: {old['protocol_version']} -> {new['protocol_version']}"
    for part in ("instructions", "overview"):
        if old.get(part) != new.get(part):
            yield f"{part} changed"


def _tool_changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    before, after = ({tool["name"]: tool for tool in dump["tools"]} for dump in (old, new))
    yield from (f"{name} added" for name in after if name not in before)
    yield from (f"{name} removed" for name in before if name not in after)
    for name, tool in after.items():
        if name in before and before[name]["sha256"] != tool["sha256"]:
            if before[name]["description"] != tool["description"]:
                yield f"{name}: description changed"
            yield from _schema_changes(before[name]["inputSchema"], tool["inputSchema"], name)


def _schema_changes(old: Any, new: Any, path: str) -> Iterator[str]:
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield f"{path}: {_brief(old, new)}"
        return
    before, after = old.get("properties", {}), new.get("properties", {})
    needed, needs = old.get("required", []), new.get("required", [])
    yield from (f"{path}.{name} removed" for name in before if name not in after)
    for name, schema in after.items():
        if name not in before:
            yield f"{path}.{name} added{', required' if name in needs else ''}"
            continue
        if (name in needed) != (name in needs):
            yield f"{path}.{name}: {'now required' if name in needs else 'no longer required'}"
        yield from _schema_changes(before[name], schema, f"{path}.{name}")
    if "items" in old and "items" in new:
        yield from _schema_changes(old["items"], new["items"], f"{path}[]")
    for key in dict.fromkeys([*old, *new]):
        seen_above = key in ("properties", "required") or (key == "items" and key in old and key in new)
        before, after = old.get(key, ABSENT), new.get(key, ABSENT)
        if not seen_above and before != after:
            yield f"{path}: {key} {'changed' if key == 'description' else _brief(before, after)}"


def _brief(old: Any, new: Any) -> str:
    texts = ["none" if value is ABSENT else json.dumps(value, ensure_ascii=False) for value in (old, new)]
    return "changed" if max(map(len, texts)) > LONGEST else " -> ".join(texts)
