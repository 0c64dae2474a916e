"""Text and YAML files that users write: what is wrong with one is said in one line, with its place."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.errors import UserError, did_you_mean


def read_text(path: Path) -> str:
    """The content of a text file, line ends as `\\n`; UserError where it is missing or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; correct the path") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; save it as UTF-8 text") from None


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; UserError where it is missing or broken."""
    return parse_yaml(read_text(path), path)


def parse_yaml(content: str, path: Path, first_line: int = 1) -> Any:
    """YAML that starts at `first_line` of `path`; UserError with the line where it is broken."""
    import yaml

    try:
        return yaml.safe_load(content)
    except yaml.MarkedYAMLError as error:
        line = first_line + (error.problem_mark.line if error.problem_mark else 0)
        raise UserError(f"{path}:{line}: broken YAML ({error.problem}); quote or mend that line") from None
    # A date such as 2026-13-01 is a ValueError, an endless nesting a RecursionError.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: broken YAML ({' '.join(str(error).split())}); mend it") from None


def mapping(value: Any, where: str) -> dict[str, Any]:
    """`value` as a non-empty mapping from texts; UserError otherwise."""
    if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
        raise UserError(f"{where}: expected `name: value` lines, got {value!r}")
    return value


def known(value: Any, keys: Sequence[str], where: str) -> dict[str, Any]:
    """`value` as a mapping of no other keys than these; UserError otherwise."""
    entry = mapping(value, where)
    for key in entry:
        if key not in keys:
            raise UserError(f"{where}: unknown key {key!r}{did_you_mean(key, keys)}; have {', '.join(keys)}")
    return entry


def text(value: Any, where: str) -> str:
    """`value` as a text that is not blank; UserError otherwise."""
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{where}: expected a text, got {value!r}; put it in quotes")
    return value.strip()
