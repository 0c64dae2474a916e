"""Copies of the user's sources without their secrets: what `data/<PROFILE>/raw/` holds.

The text is scrubbed in memory; nothing unscrubbed is written, not even for a moment.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError

if TYPE_CHECKING:
    from dataset_builder.sanitize import Sanitizer

SKIPPED = (".git", "node_modules", "__pycache__")
PROBE = 8192
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def scrub_tree(source: Path, target: Path, sanitizer: "Sanitizer") -> Counter[str]:
    """Scrub every file under `source` into `target`; counts of `written` and of what was `skipped: …`.

    Directories of version control and links are skipped. UserError where `source` is no directory.
    """
    if not source.is_dir():
        raise UserError(f"{source}: no such directory")
    counts: Counter[str] = Counter()
    for directory, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            file = Path(directory, name)
            counts[scrub_file(file, target / file.relative_to(source), sanitizer)] += 1
    return counts


def scrub_file(source: Path, target: Path, sanitizer: "Sanitizer") -> str:
    """Scrub one file; `written`, or why it was skipped. The target appears whole, or not at all.

    Bytes that are no UTF-8 are kept as they are. In `.json` and `.jsonl` the texts are scrubbed as they read,
    not as they are escaped; a line without secrets keeps its bytes.
    """
    if source.is_symlink() or not source.is_file():
        return "skipped: no plain file"
    data = source.read_bytes()
    if data[:2] in UTF16:
        text, encoding, errors = data.decode("utf-16", "replace"), "utf-16", "strict"
    elif b"\0" in data[:PROBE]:
        return "skipped: binary"
    else:
        text, encoding, errors = data.decode("utf-8", "surrogateescape"), "utf-8", "surrogateescape"
    name = source.as_posix()
    if source.suffix == ".jsonl":
        clean = "\n".join(_scrub_json(line, sanitizer, name) for line in text.split("\n"))
    elif source.suffix == ".json":
        clean = _scrub_json(text, sanitizer, name)
    else:
        clean = sanitizer.scrub(text, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".tmp")
    temporary.write_bytes(clean.encode(encoding, errors))
    temporary.replace(target)
    return "written"


def _scrub_json(text: str, sanitizer: "Sanitizer", name: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return sanitizer.scrub(text, name)
    clean = sanitizer.scrub_value(value, name)
    if clean != value:
        indent = 2 if "\n" in text.strip() else None
        text = json.dumps(clean, ensure_ascii=False, indent=indent)
    # Keys, numbers and what stands on both sides of a brace are seen only now.
    return sanitizer.scrub(text, name)
