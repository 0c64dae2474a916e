"""NAME=value words of a command line -> one typed, frozen settings object. The only parser.

A blank value means "the profile's". Precedence, strongest first: command line, Makefile, profile,
default of the stage.
"""

import dataclasses
import math
import typing
from collections.abc import Iterable, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from core import profile as profiles
from core.errors import UserError, did_you_mean
from core.profile import Profile

T = TypeVar("T")

KINDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "1 or blank",
    Path: "a path",
    tuple[Path, ...]: "paths, separated by spaces",
    tuple[str, ...]: "names, separated by spaces",
    dict[str, int]: "name=<number> pairs, separated by spaces",
    Profile: "a profile",
}


def setting(
    default: Any = MISSING, *, profile: str | None = None, recorded: bool = True, positive: bool = False
) -> Any:
    """A field of a settings class.

    `profile` is the dotted path of the profile value that a blank takes. `recorded=False` marks
    what does not change the result (places, switches): it stays out of the manifest's comparison.
    `positive` refuses 0.
    """
    metadata = {"profile": profile, "recorded": recorded, "positive": positive}
    if default is MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Resolved:
    """One value with where it came from: `given`, `profile` or `default`."""

    value: Any
    origin: str


def split_words(words: Iterable[str]) -> dict[str, str]:
    """`["A=1", "B="]` -> `{"A": "1", "B": ""}`; UserError on a word without `=`, or given twice."""
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"{word!r}: expected NAME=value")
        if name in values:
            raise UserError(f"{name}: given twice")
        values[name] = value.strip()
    return values


def setting_names(schema: type) -> tuple[str, ...]:
    """Make's names of a settings class, in order: `lora_rank` -> `LORA_RANK`."""
    return tuple(f.name.upper() for f in dataclasses.fields(schema))


def resolve(schema: type, words: Sequence[str]) -> dict[str, Resolved]:
    """Every field of `schema` with its value and origin.

    What the profile lacks is None. Raises UserError on an unknown name, a value of the wrong type,
    a missing value.
    """
    given = split_words(words)
    fields = {f.name.upper(): f for f in dataclasses.fields(schema)}
    for name in given:
        if name not in fields:
            raise UserError(unknown_setting(name, fields))
    if "PROFILE" in fields and not given.get("PROFILE"):
        raise UserError(f"PROFILE is blank; have {', '.join(profiles.names())}")
    profile = profiles.load(given["PROFILE"]) if "PROFILE" in fields else None
    hints = typing.get_type_hints(schema)
    return {
        field.name: _resolve_one(name, field, hints[field.name], given.get(name, ""), profile)
        for name, field in fields.items()
    }


def parse(schema: type[T], words: Sequence[str]) -> T:
    """The settings object of one stage.

    Raises as `resolve`, and UserError where the profile lacks what a blank would take from it.
    """
    values = {name: found.value for name, found in resolve(schema, words).items()}
    for name, value in values.items():
        if value is None:
            profile = values["profile"].name
            raise UserError(f"{name.upper()}: PROFILE={profile} has none, so not this stage")
    return schema(**values)


def parse_part(schema: type[T], words: Sequence[str]) -> T:
    """As `parse`, of the words that `schema` reads: a stage with two ways of work gets the words of both."""
    names = setting_names(schema)
    return parse(schema, [word for word in words if word.partition("=")[0] in names])


def recorded(settings: Any) -> dict[str, Any]:
    """The values that decide a stage's result, as JSON types, for its manifest."""
    return {
        f.name.upper(): _plain(getattr(settings, f.name))
        for f in dataclasses.fields(settings)
        if f.metadata.get("recorded", True)
    }


def unknown_setting(name: str, known: Iterable[str]) -> str:
    """The message for a misspelt setting."""
    known = sorted(known)
    return f"{name}: no such setting{did_you_mean(name, known)}; have {', '.join(known)}"


def _resolve_one(name: str, field: Any, kind: Any, text: str, profile: Profile | None) -> Resolved:
    path = field.metadata.get("profile")
    found: Any = profile if path else None
    for part in path.split(".") if path else ():
        found = getattr(found, part, None)
    if text:
        value = _numbers(name, text, found) if kind == dict[str, int] else _convert(name, text, kind)
        if field.metadata.get("positive") and not value:
            raise UserError(f"{name}={text}: must be more than 0")
        return Resolved(value, "given")
    if path and profile:
        return Resolved(found, "profile")
    if field.default is not MISSING:
        return Resolved(field.default, "default")
    raise UserError(f"{name} is blank: expected {KINDS[kind]}")


def _convert(name: str, text: str, kind: Any) -> Any:
    if kind is Profile:
        return profiles.load(text)
    if kind is bool:
        if text not in ("0", "1"):
            raise UserError(f"{name}={text}: expected 1 or blank")
        return text == "1"
    if kind == tuple[Path, ...]:
        return tuple(Path(part).expanduser() for part in text.split())
    if kind == tuple[str, ...]:
        return tuple(text.split())
    if kind is Path:
        return Path(text).expanduser()
    try:
        value = kind(text)
    except ValueError:
        raise UserError(f"{name}={text}: expected {KINDS[kind]}") from None
    if kind is float and not math.isfinite(value):
        raise UserError(f"{name}={text}: expected {KINDS[kind]}")
    if kind in (int, float) and value < 0:
        raise UserError(f"{name}={text}: must not be negative")
    return value


def _numbers(name: str, text: str, base: dict[str, int] | None) -> dict[str, int] | None:
    """The profile's numbers with those of `text` in their place; None where the profile has none."""
    if base is None:
        return None
    given = split_words(text.split())
    for key in given:
        if key not in base:
            raise UserError(f"{name}: {key}: unknown{did_you_mean(key, base)}; have {', '.join(base)}")
    return base | {key: _convert(f"{name}: {key}", number, int) for key, number in given.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Profile):
        return value.name
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
