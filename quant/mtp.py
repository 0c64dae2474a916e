"""`python -m quant.mtp`: give a checkpoint the MTP head back that another tool lost, from its base.

transformers neither loads nor saves the `mtp.*` tensors, so whatever passed through `save_pretrained` lacks
them; vLLM's speculative decoding needs them. They go, byte for byte, into a shard of their own.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from core import artifacts, config, errors, shards
from core.errors import UserError
from core.settings import MergeSettings
from core.shards import TensorInfo

PREFIX = "mtp."
SHARD = "model-mtp.safetensors"
FIRST = "model-00001-of-00001.safetensors"
"""What the single file of a checkpoint without an index is called once it has one."""
CHUNK = 1 << 24  # bytes


def main(words: list[str]) -> int:
    """Bring the base's MTP tensors into the run's merged checkpoint, or those of BASE into MERGED.

    Exit code 0, also where nothing is missing. UserError where the base has none, and where the target has
    MTP tensors that the base lacks or that differ in dtype or shape.
    """
    settings = config.parse(MergeSettings, words)
    base = Path(settings.base).expanduser() if settings.base else settings.base_dir
    target = Path(settings.merged).expanduser() if settings.merged else settings.merged_dir
    with artifacts.locked(target.parent):
        count = inject(base, target)
    print(
        f"mtp: {count} tensors from {base} added to {target}"
        if count
        else f"mtp: nothing missing in {target}"
    )
    return errors.DONE


def inject(base: Path, target: Path) -> int:
    """Add the MTP tensors that `target` lacks; how many.

    A crash at any instant leaves a checkpoint that loads, and the next call goes on.
    """
    wanted = {n: i for n, i in shards.read_checkpoint(base).items() if n.startswith(PREFIX)}
    if not wanted:
        raise UserError(f"{base}: no tensor under {PREFIX}; expected the original download of the base")
    found = shards.read_checkpoint(target)
    if any(info.file.name == FIRST for info in found.values()):
        (target / shards.SINGLE).unlink(missing_ok=True)  # a crash came between index and unlink
    _check_alike(wanted, found, target)
    missing = {name: info for name, info in wanted.items() if name not in found}
    if not missing:
        return 0
    if any(info.file.name == SHARD for info in found.values()):
        raise UserError(
            f"{target / SHARD}: holds only some of the MTP tensors; remove it and its index entries"
        )
    write_shard(target / SHARD, missing)
    _add_to_index(target, found, missing)
    _add_to_manifest(target)
    return len(missing)


def write_shard(path: Path, tensors: Mapping[str, TensorInfo]) -> None:
    """One safetensors file with these tensors, their bytes copied from where they lie; synced."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, info in sorted(tensors.items()):
        size = info.stop - info.start
        header[name] = {"dtype": info.dtype, "shape": info.shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for _, info in sorted(tensors.items()):
            with info.file.open("rb") as source:
                for start in range(info.start, info.stop, CHUNK):
                    out.write(os.pread(source.fileno(), min(CHUNK, info.stop - start), start))
        out.flush()
        os.fsync(out.fileno())
    temporary.chmod(0o644)
    temporary.replace(path)


def _check_alike(wanted: Mapping[str, TensorInfo], found: Mapping[str, TensorInfo], target: Path) -> None:
    for name, info in found.items():
        if name.startswith(PREFIX):
            here, there = (info.dtype, info.shape), None
            if name in wanted:
                there = (wanted[name].dtype, wanted[name].shape)
            if here != there:
                raise UserError(f"{target}: {name} is {here}, in the base {there}; is it another base?")


def _add_to_index(target: Path, found: Mapping[str, TensorInfo], added: Mapping[str, TensorInfo]) -> None:
    weight_map = {name: info.file.name for name, info in found.items()}
    single = target / shards.SINGLE
    if not (target / shards.INDEX).exists():
        (target / FIRST).unlink(missing_ok=True)
        os.link(single, target / FIRST)  # both names are there until the index is
        weight_map = dict.fromkeys(weight_map, FIRST)
    weight_map |= dict.fromkeys(added, SHARD)
    total = sum(info.stop - info.start for info in (*found.values(), *added.values()))
    shards.write_index(target, weight_map, total)
    if FIRST in weight_map.values():
        single.unlink(missing_ok=True)


def _add_to_manifest(target: Path) -> None:
    """Where the checkpoint is an artefact, its manifest names its files as they are now."""
    manifest = target / artifacts.MANIFEST
    if not manifest.exists():
        return
    facts = json.loads(manifest.read_text(encoding="utf-8"))
    facts["files"] = {
        name: {"bytes": file.stat().st_size, "sha256": artifacts.file_sha256(file)}
        for name, file in artifacts.payload(target).items()
    }
    artifacts.write_atomically(manifest, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    errors.run(main)
