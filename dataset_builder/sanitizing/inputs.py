"""What the user tells the scrubber: known values, names of hosts, and the key of the placeholders."""

import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from core.errors import UserError
from dataset_builder.sanitizing import judge, words
from dataset_builder.sanitizing.known_values import SHORTEST

ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][\w.-]*)\s*=\s*(.*)")
VARIABLE = re.compile(r"\$\{(\w+)(?::-[^}]*)?\}")
SCHEME = re.compile(r"(?i)^(?:bearer|basic|token|apikey)\s+")
USER_INFO = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
KEY_BYTES = 32


def read_known(secrets_file: Path | None, mcp_config: Path | None) -> dict[str, str]:
    """Name -> value, from the lines of SECRETS_FILE and from what `.mcp.json` and its variables hold.

    A line of SECRETS_FILE is `NAME=value` or a bare value; `#` begins a comment line. UserError where the
    file is missing, not UTF-8, or has a value too short to look for; the value is never in the message.
    """
    known = dict(_lines(secrets_file)) if secrets_file else {}
    return known | (dict(_of_servers(mcp_config)) if mcp_config else {})


def read_hosts(path: Path | None) -> tuple[str, ...]:
    """Host names, one a line, `#` begins a comment line."""
    lines = _text(path, "HOSTS_FILE").splitlines() if path else []
    return tuple(line.strip().lower() for line in lines if line.strip() and not line.startswith("#"))


def read_key(path: Path) -> bytes:
    """The key of the placeholders: 32 random bytes, made at first use in a file that only the user may read.

    The same sources give the same bytes on every machine that has the same key: copy the file there. Without
    a secret in the sources it changes nothing. It is random, and derived from nothing public, so that nobody
    can try passwords against the placeholders of a dataset that is passed on.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
    except FileExistsError:
        pass
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UserError(f"{path}: expected 64 hex digits; delete it to get a new key (placeholders change)")
    return key


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(_text(path, "SECRETS_FILE").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        found = ASSIGNMENT.fullmatch(line)
        value = _unquoted(found[2]) if found else ""
        # `abcDEF0123==` is a bare value, not a name with `=` for its value.
        named = found is not None and value.strip("=") != ""
        name, value = (found[1], value) if found and named else (f"known_{number}", _unquoted(line))
        if len(value) < SHORTEST:
            raise UserError(
                f"{path}:{number}: a value of {len(value)} characters would be found everywhere; "
                f"the shortest that can be looked for has {SHORTEST}"
            )
        yield name, value


def _of_servers(path: Path) -> Iterator[tuple[str, str]]:
    """`server.NAME` -> value of every secret in the entries of `mcpServers`, variables looked up."""
    try:
        servers = json.loads(_text(path, "MCP_CONFIG")).get("mcpServers", {})
    except (ValueError, AttributeError):
        return  # `make schemas` says what is wrong with it
    for server, entry in sorted(servers.items()) if isinstance(servers, dict) else ():
        for field, text in _texts(entry, ""):
            values = {name: os.environ.get(name, "") for name in VARIABLE.findall(text)}
            if not values:
                values = {field: SCHEME.sub("", text)}
                values |= {f"{field}_password": found[1] for found in USER_INFO.finditer(text)}
                values |= dict(parse_qsl(urlsplit(text).query)) if "://" in text else {}
            for name, value in values.items():
                if _is_secret(name, value):
                    yield f"{server}.{name}", value


def _texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """`(name of the field, text)` of every text in a JSON value."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, key)
    elif isinstance(value, list):
        for before, item in zip([None, *value], value, strict=False):
            option = before if isinstance(before, str) and before.startswith("-") else name
            yield from _texts(item, option)


def _is_secret(name: str, value: str) -> bool:
    """Not `true`, a path, an address without a password or a time zone: those may stand in the rows."""
    plain = value.startswith(("/", "./", "~", "http"))
    return len(value) >= SHORTEST and not plain and (bool(words.kind_of(name)) or judge.looks_random(value))


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _text(path: Path, setting: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{setting}: {path}: no such file") from None
    except (UnicodeDecodeError, IsADirectoryError):
        raise UserError(f"{setting}: {path}: expected a text in UTF-8") from None
