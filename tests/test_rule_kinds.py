"""Each kind of rule is a language: it holds in the traces that a regular expression describes, no others."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from core import rules
from core.chat import Message

Entry = dict[str, Any]

A, B, X = ({"call": name} for name in "abx")
LANGUAGES = [
    ({"kind": "must", "what": A}, ".*[aP].*", ""),
    ({"kind": "never", "what": A}, "[^aP]*", ""),
    ({"kind": "never", "what": B, "since": A}, "[^aP]*[aP][^bP]*", "[aP]"),
    ({"kind": "count", "what": A, "min": 1, "max": 2}, "[^aP]*([aP][^aP]*){1,2}", ""),
    ({"kind": "before", "first": A, "then": B}, "[^abP]*a.*", "[bP]"),
    ({"kind": "after", "first": A, "then": B}, ".*b[^aP]*", "[aP]"),
    ({"kind": "after", "first": A, "then": B, "within": 2}, "([^aP]|[aP](?=.?[bP]))*", "[aP]"),
    ({"kind": "order", "steps": [A, B, A]}, ".*[aP].*[bP].*[aP].*", ""),
    ({"kind": "must", "what": A, "when": X}, ".*[aP].*", "x"),
]
"""A rule; the traces in which it holds; what a trace has where it applies. A letter is a turn that calls the
tool of this name, `P` one that calls a and b at once."""


@pytest.mark.parametrize(("rule", "holds", "applies"), LANGUAGES)
def test_a_kind_holds_in_the_traces_of_its_language_and_in_no_other(
    tmp_path: Path, rule: Entry, holds: str, applies: str
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump([{"id": "r", "quote": "q", **rule}]), encoding="utf-8")
    (checked,) = rules.read(file)
    for length in range(6):
        for letters in map("".join, itertools.product("abxP", repeat=length)):
            trace = [calling(*("ab" if letter == "P" else letter)) for letter in letters]
            expected = rules.NOT_APPLICABLE
            if re.search(applies, letters):
                expected = rules.HOLDS if re.fullmatch(holds, letters) else rules.BROKEN
            assert rules.check([checked], trace, "")[0].verdict == expected, letters


def calling(*names: str) -> Message:
    functions = [{"type": "function", "function": {"name": name, "arguments": {}}} for name in names]
    return {"role": "assistant", "content": "", "tool_calls": functions}
