"""`make base`: the base checkpoint under MODELS_DIR, made here for an embedded profile, else looked for.

`REBUILD=1` trains the embedded base anew instead of copying the shipped weights.
"""

import shutil
from pathlib import Path

from core import artifacts, config, errors, shards
from core.errors import UserError
from core.profile import PROFILES, Profile
from core.settings import BaseSettings
from trainer import download, packaged
from trainer.checks import tokenizer
from trainer.tiny import SHIPPED

MEASURED_ROWS = 100


def main(words: list[str]) -> int:
    """Make or find the base; exit code 0. UserError where a hub base is not there."""
    settings = config.parse(BaseSettings, words)
    if settings.profile.package:
        return packaged.make(settings)
    return _make(settings) if settings.profile.embedded else _find(settings)


def _make(settings: BaseSettings) -> int:
    profile, path = settings.profile, settings.base_dir
    shipped = {"path": str(SHIPPED), "sha256": artifacts.tree_sha256(SHIPPED)}
    recorded = {**config.recorded(settings), "CHAT_TEMPLATE": profile.chat_template}
    there = artifacts.read_manifest(path)
    rebuilt_here = bool(there and there["backend"].get("name") == "rebuilt")
    if there and artifacts.complete(path, there) and not settings.rebuild:
        if rebuilt_here:
            print(f"base: up to date ({path}, rebuilt here; rm -r {path} to return to the shipped one)")
            return errors.DONE
        if not artifacts.differences(there, recorded, {"shipped weights": shipped}):
            print(f"base: up to date ({path})")
            return errors.DONE

    from trainer.tiny import build, pretrain

    template = build.chat_template(profile)
    with artifacts.create(
        path,
        kind="checkpoint",
        profile=profile.name,
        run=settings.run,
        settings=recorded,
        inputs={} if settings.rebuild else {"shipped weights": shipped},
    ) as draft:
        if settings.rebuild:
            draft.backend = {"name": "rebuilt"}
            draft.counts |= build.train(draft.path, template, pretrain.Plan())
        else:
            draft.backend = {"name": "shipped"}
            for file in sorted(SHIPPED.iterdir()):
                shutil.copyfile(file, draft.path / file.name)
        build.complete_checkpoint(draft.path, template)
        tensors = shards.read_checkpoint(draft.path)
        draft.counts |= {"tensors": len(tensors), "bytes": sum(t.stop - t.start for t in tensors.values())}
        if settings.rebuild:
            draft.counts["measured"] = build.measure(draft.path, MEASURED_ROWS)
            for name, rate in draft.counts["measured"].items():
                print(f"base: {name} tools {rate['k']}/{rate['n']} right")
    print(f"base: {len(tensors)} tensors, {draft.counts['bytes'] / 1e6:.1f} MB at {path}")
    return errors.DONE


def _find(settings: BaseSettings) -> int:
    profile, path = settings.profile, settings.base_dir
    remote = None if _is_whole(path) else download.fetch(profile, path)
    shards.read_checkpoint(path)
    _give_template(profile, path)
    template = tokenizer.check_template(profile, path)
    if template.verdict == "fail":
        raise UserError(f"{path}: the chat template is not production's, {template.found}, {template.advice}")
    manifest = artifacts.record(path, kind="checkpoint", profile=profile.name)
    if remote:
        download.check_digests(remote, path, manifest)
    origin = f", {profile.base} at {commit[:12]}" if (commit := download.pinned(path)) else ""
    sha256 = artifacts.digest(manifest)[:12]
    print(f"base: {path}{origin}, {len(manifest['files'])} files, sha256 {sha256}")
    return errors.DONE


def _give_template(profile: Profile, path: Path) -> None:
    """Put the profile's own chat template into a base that is published without one."""
    if not profile.template_file or (path / tokenizer.TEMPLATE).exists():
        return
    shutil.copyfile(PROFILES / profile.template_file, path / tokenizer.TEMPLATE)
    print(f"base: it has no chat template; {tokenizer.TEMPLATE} is the profile's own")


def _is_whole(path: Path) -> bool:
    """Whether a checkpoint is there that needs no download."""
    try:
        shards.read_checkpoint(path)
    except UserError:
        return False
    if download.unfinished(path):
        return False
    return (path / "config.json").exists() and (path / "tokenizer.json").exists()


if __name__ == "__main__":
    errors.run(main)
