"""A first gate against secrets: detect-secrets over the text of every row."""

import json
from dataclasses import asdict

from core.chat import Row

QUIET = ("Base64HighEntropyString", "HexHighEntropyString")
"""Detectors of mere randomness: they flag commit ids and sha256 sums, which rows are full of."""


def secrets_in(rows: list[Row]) -> list[tuple[str, str]]:
    """`(row id, kind of secret)` for every finding; the secret itself is never returned."""
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    found = []
    with default_settings() as settings:
        settings.disable_plugins(*QUIET)
        for row in rows:
            for line in _texts(asdict(row)):
                found += [(row.id, secret.type) for secret in scan_line(line)]
    return found


def _texts(value: object) -> list[str]:
    """Every text in a JSON value, by lines; keys are not secrets."""
    if isinstance(value, str):
        return value.splitlines()
    if isinstance(value, dict):
        return [
            line
            for key, item in value.items()
            for line in ([f"{key}: {json.dumps(item)}"] if isinstance(item, str) else _texts(item))
        ]
    if isinstance(value, list):
        return [line for item in value for line in _texts(item)]
    return []
