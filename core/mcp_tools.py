"""MCP tools as the harness shows them to the model."""

import hashlib
import json
from typing import Any

HIDDEN = ("$schema", "title")
"""Schema keywords that the harness does not show the model."""
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords whose value maps names, not keywords, to schemas."""
DATA = ("default", "const", "enum", "examples", "dependentRequired")
"""Keywords whose value is no schema."""


def shown_name(server: str, tool: str) -> str:
    """The name under which Claude Code shows a tool: `mcp__git__git_status`."""
    return f"mcp__{server}__{tool}"


def shown(schema: Any) -> Any:
    """A JSON schema without the keywords that the model does not see; order kept, input untouched."""
    if isinstance(schema, list):
        return [shown(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key in HIDDEN:
            continue
        if key in NAMED and isinstance(value, dict):
            kept[key] = {name: shown(part) for name, part in value.items()}
        else:
            kept[key] = value if key in DATA else shown(value)
    return kept


def as_shown(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool of `tools/list` as the model sees it, with the sha256 of its canonical JSON."""
    seen = {
        "name": tool["name"],
        "description": tool.get("description") or "",
        "inputSchema": shown(tool["inputSchema"]),
    }
    canonical = json.dumps(seen, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {**seen, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}
