"""Consolidated tools, which choose what they do by a `method`: which of the other arguments a method wants.

Nothing in a schema says it; the descriptions do, in words.
"""

import re
from typing import Any

from dataset_builder.drawing.json_schema import as_dict
from dataset_builder.drawing.texts import snake

SELECTORS = ("method", "action", "operation")
"""Names of the parameter that chooses."""
WANTED = re.compile(r"need|requir|rovide|which|that |where ", re.I)
SUBJECT = re.compile(r"(^|_)(index|(issue|pull|discussion|project)_number|issue_key|page_id|thread_id)$")
"""Names of the argument that says which existing thing is meant."""
NEW = re.compile(r"^(create|list|search|open)")
"""Methods that are not about one existing thing."""


def selector(properties: dict[str, Any]) -> str | None:
    """The parameter by which a tool chooses what it does, or None for a tool that does one thing."""
    return next((name for name in SELECTORS if "enum" in as_dict(properties.get(name))), None)


def wants(name: str, method: str, properties: dict[str, Any]) -> bool | None:
    """Whether a method needs an optional argument (True), cannot use it (False), or may take it (None)."""
    chooser = as_dict(properties[selector(properties) or ""])
    methods, plain = chooser["enum"], snake(name)
    scope = {"owner": "repo", "repo": "repo", "org": "org"}.get(plain)
    if scope and {"repo", "org"} & set(method.split("_")):
        return scope in method.split("_")
    for line in _sentences(chooser.get("description", "")):
        if _names(line, [method]) and re.search(rf"\b{re.escape(name)}\b", line):
            return True
    answers = []
    for line in _sentences(as_dict(properties[name]).get("description", "")):
        if excepted := re.search(r"except (?:for )?\W?(\w+)", line):
            answers.append(excepted[1] != method)
        elif named := _names(line, methods):
            denied = re.search(r"\b(not|never)\b", line) is not None
            answers.append(
                None if method in named and not WANTED.search(line) else (method in named) != denied
            )
    if answers:
        return True if True in answers else None if None in answers else False
    if SUBJECT.search(plain):
        return not NEW.search(method)
    return True if plain == "title" and method == "create" else None


def _sentences(said: str) -> list[str]:
    return re.split(r"\n|(?<=[.;]) ", said)


def _names(line: str, methods: list[str]) -> list[str]:
    """The methods that a sentence names; a plain word such as `get` in quotes or after by, for, to alone."""
    found = []
    for method in methods:
        mark = re.escape(method)
        plain = rf"\b{mark}\b" if "_" in method else rf"['\"`]{mark}['\"`]|\b(?:by|for|to|with|of) {mark}\b"
        if re.search(plain, line):
            found.append(method)
    return found
