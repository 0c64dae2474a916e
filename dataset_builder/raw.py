"""Stage `sources`: the user's skills, agents, plans and transcripts without their secrets.

Everything after it reads the copies in data/<PROFILE>/raw/, never the originals.
"""

import contextlib
import hmac
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from core import artifacts, config, errors
from core.errors import UserError
from core.settings import ConversationsSettings, ReplaySettings, SourcesSettings, ValidateSettings
from dataset_builder.sanitize import Sanitizer
from dataset_builder.sanitizing.inputs import read_hosts, read_key, read_known
from dataset_builder.sanitizing.trees import scrub_tree

KINDS = ("skills", "agents", "plans", "transcripts")
KEY = ".sanitize-key"
"""Beside the dataset: the key of the placeholders, for the user alone to read."""


def main(words: list[str]) -> int:
    """Scrub and copy; exit code 0. UserError on a directory or a file of secrets that is not there."""
    settings = config.parse(SourcesSettings, words)
    path, roots = settings.data_dir / "raw", _roots(settings)
    for kind, directories in roots.items():
        for directory in directories:
            if not directory.is_dir():
                raise UserError(f"{kind.upper()}_DIRS: {directory}: no such directory; correct the path")
    key, known = read_key(settings.data_dir / KEY), read_known_values(settings)
    hosts = read_hosts(Path(settings.hosts_file) if settings.hosts_file else None)
    hidden = json.dumps([sorted(known.items()), hosts]).encode()
    inputs = {
        kind: {"path": " ".join(map(str, directories)), "sha256": artifacts.tree_sha256(*directories)}
        for kind, directories in roots.items()
    }
    # Keyed: the digest of a short password could be tried against a list.
    inputs["known values"] = {
        "path": settings.secrets_file,
        "sha256": hmac.digest(key, hidden, "sha256").hex(),
    }
    sanitizer, counts = Sanitizer(key, hosts, known), Counter[str]()
    recorded = config.recorded(settings) | {"SCRUBBERS": ["rules", *filter(None, [sanitizer.library])]}
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"sources: up to date ({path})")
        return errors.DONE
    with artifacts.create(
        path,
        kind="sources",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        for kind, directories in roots.items():
            for number, directory in enumerate(directories):
                counts += scrub_tree(directory, draft.path / kind / str(number), sanitizer)
        draft.counts = {
            "files": dict(counts),
            "replaced": sanitizer.report.by_type(),
            "reused": sanitizer.report.reused,
        }
    print(*sanitizer.report.lines(), sep="\n", end="\n" if sanitizer.report.counts else "")
    left_out = ", ".join(f"{count} {what}" for what, count in counts.items() if what != "written")
    print(f"sources: {counts['written']} files at {path}{f' ({left_out})' if left_out else ''}")
    return errors.DONE


def directories(path: Path, kind: str) -> tuple[Path, ...]:
    """The scrubbed copies of the directories that the user named for `kind`, in their order."""
    manifest = artifacts.require(path, "sources")
    count = len(manifest["inputs"][kind]["path"].split())
    return tuple(path / kind / str(number) for number in range(count))


def of_originals(text: str, path: Path) -> str:
    """A text that names the files which the user edits, in place of their copies."""
    for kind in KINDS:
        named = artifacts.require(path, "sources")["inputs"][kind]["path"].split()
        for copy, original in zip(directories(path, kind), named, strict=True):
            text = text.replace(f"{copy}/", f"{original}/").replace(f"{copy};", f"{original};")
    return text


@contextlib.contextmanager
def naming_originals(path: Path) -> Iterator[None]:
    """Within it, a UserError names the user's own files, in place of their copies."""
    try:
        yield
    except UserError as error:
        raise UserError(of_originals(str(error), path)) from None


Settings = SourcesSettings | ReplaySettings | ConversationsSettings | ValidateSettings


def read_known_values(settings: Settings) -> dict[str, str]:
    """The values that must be found wherever they stand: those of SECRETS_FILE and of MCP_CONFIG."""
    secrets_file = Path(settings.secrets_file) if settings.secrets_file else None
    return read_known(secrets_file, settings.mcp_config)


def _roots(settings: SourcesSettings) -> dict[str, tuple[Path, ...]]:
    return {kind: getattr(settings, f"{kind}_dirs") for kind in KINDS}


if __name__ == "__main__":
    errors.run(main)
