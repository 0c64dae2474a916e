"""A base from a model hub: at one revision, resumable, with room on the disk made sure of first.

The commit that the first attempt found is written down, so that an interrupted download goes on with the same
one. HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are huggingface_hub's own.
"""

import fnmatch
import functools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from core import artifacts
from core.errors import UserError
from core.profile import Profile
from trainer.checks.check import size

WANTED = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "LICENSE*")
PINNED = ".cache/forja/commit"
"""Inside the checkpoint, where `artifacts.payload` does not look."""
WHOLE = ".cache/forja/whole"
PARTS = ".cache/forja/parts"
AGAIN = "what has come is kept, make base goes on with it"


@dataclass(frozen=True)
class Remote:
    """What the hub says of one revision."""

    commit: str
    bytes: dict[str, int]
    """By file."""
    sha256: dict[str, str]
    """Of the large files."""


def fetch(profile: Profile, path: Path) -> Remote:
    """Download what is missing of the profile's base into `path`; what the hub says of it.

    UserError without a network, without access, without room on the disk, or where a file is not the hub's.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise UserError(
            f"{path} is not there and HF_HUB_OFFLINE is set: unset it, or copy {profile.base} there"
        )
    remote = _asked(lambda: look(profile.base, pinned(path) or profile.revision), profile)
    missing = sum(_missing(path, name, count) for name, count in remote.bytes.items())
    _check_disk(path, missing)
    (path / PINNED).parent.mkdir(parents=True, exist_ok=True)
    (path / WHOLE).unlink(missing_ok=True)
    artifacts.write_atomically(path / PINNED, remote.commit)
    print(f"base: {size(missing)} to fetch of {profile.base} at {remote.commit[:12]}", flush=True)
    for name, count in sorted(remote.bytes.items()):
        if not _whole(path / name, count):
            _asked(functools.partial(_get, profile.base, remote.commit, name, path, count), profile)
    (path / WHOLE).touch()
    return remote


def check_digests(remote: Remote, path: Path, manifest: dict[str, Any]) -> None:
    """Compare the files' digests with the hub's; UserError naming the first that differs, which goes."""
    for name, sha256 in remote.sha256.items():
        if manifest["files"][name]["sha256"] != sha256:
            (path / name).unlink()
            raise UserError(f"{path / name} came damaged and was removed: make base fetches it again")


def look(repository: str, revision: str) -> Remote:
    """The wanted files of a revision, with their sizes."""
    from huggingface_hub import HfApi

    info = HfApi().model_info(repository, revision=revision, files_metadata=True)
    files = [s for s in info.siblings or [] if any(fnmatch.fnmatch(s.rfilename, one) for one in WANTED)]
    return Remote(
        commit=str(info.sha),
        bytes={file.rfilename: file.size or 0 for file in files},
        sha256={file.rfilename: file.lfs.sha256 for file in files if file.lfs},
    )


def pinned(path: Path) -> str | None:
    """The commit that the checkpoint at `path` is of; None for one of another origin."""
    try:
        return (path / PINNED).read_text(encoding="utf-8")
    except OSError:
        return None


def _get(repository: str, commit: str, name: str, path: Path, count: int) -> None:
    """Fetch one file of `count` bytes, from where an earlier attempt ended.

    huggingface_hub's own download begins a file anew in every process (1.33, _download_to_tmp_and_move).
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    url = hf_hub_url(repository, name, revision=commit)
    location, headers = get_hf_file_metadata(url).location, build_hf_headers()
    if urlsplit(location).netloc != urlsplit(url).netloc:
        headers.pop("authorization", None)
    part = path / PARTS / name
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as file:
        if file.tell() > count:
            file.truncate(0)
        http_get(
            location,
            file,
            resume_size=file.tell(),
            headers=headers,
            expected_size=count,
            displayed_filename=name,
        )
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    part.replace(path / name)


def unfinished(path: Path) -> bool:
    """Whether a download into `path` was begun and not ended."""
    return (path / PINNED).exists() and not (path / WHOLE).exists()


def _asked(question: Any, profile: Profile) -> Any:
    """What the hub answers; UserError where it does not."""
    import httpx
    from huggingface_hub import constants, errors

    hub, base = constants.ENDPOINT, profile.base
    try:
        return question()
    except errors.RevisionNotFoundError:
        raise UserError(f"{base} has no revision {profile.revision} on {hub}: correct the profile") from None
    except (errors.GatedRepoError, errors.RepositoryNotFoundError):
        raise UserError(f"{hub} shows no {base} to you: accept its terms there, and set HF_TOKEN") from None
    except (httpx.HTTPError, errors.HfHubHTTPError, errors.LocalEntryNotFoundError, ConnectionError) as error:
        reason = str(error).splitlines()[0][:120]
        raise UserError(f"{hub} cannot be reached ({reason}): check the network; {AGAIN}") from None


def _check_disk(path: Path, needed: int) -> None:
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise UserError(
            f"{path}: {size(free)} free, {size(needed)} to fetch: free some, or point MODELS_DIR elsewhere"
        )


def _missing(path: Path, name: str, count: int) -> int:
    if _whole(path / name, count):
        return 0
    part = path / PARTS / name
    return count - (min(count, part.stat().st_size) if part.exists() else 0)


def _whole(file: Path, count: int) -> bool:
    return file.is_file() and file.stat().st_size == count
