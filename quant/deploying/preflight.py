"""Whether a checkpoint can take the place of the one that is served; looks only, changes nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

from core import artifacts, shards
from core.errors import UserError
from quant.deploying import swap

VISION = "vision_config"
ROLES = {
    "tokenizer": (("tokenizer.json",), ""),
    "chat template": (("chat_template.jinja", "chat_template.json"), ""),
    "image processor": (("preprocessor_config.json", "processor_config.json"), VISION),
    "video processor": (("video_preprocessor_config.json", "processor_config.json"), VISION),
}
"""What a server reads beside weights and config: the files that it may stand in (the processors together in
one since transformers 5), and the key of config.json that asks for it."""
SCHEME = ("num_bits", "type", "strategy", "group_size", "dynamic", "symmetric")
"""What decides how a server reads quantised values; the rest of a scheme is how they were found."""


def require_complete(checkpoint: Path, manifest: dict[str, Any], target: str) -> None:
    """UserError where a file of the manifest is missing or has another size."""
    if not artifacts.complete(checkpoint, manifest):
        raise UserError(
            f"{checkpoint}: files are missing or cut short; remove the checkpoint, then make {target}"
        )


def require_space(served: Path, manifest: dict[str, Any]) -> None:
    """UserError where the disk of `served` has no room for a copy of the payload beside it."""
    needed, free = payload_bytes(manifest), shutil.disk_usage(served.parent).free
    if free < needed:
        old = swap.backups(served)
        hint = f", or remove a backup that you do not need, as {old[0]}" if old else ""
        raise UserError(
            f"{served.parent}: {megabytes(free)} free, the copy takes {megabytes(needed)}: free some{hint}"
        )


def require_readable(checkpoint: Path) -> None:
    """UserError where the server's user, whoever that is, could not read a file."""
    for path in (checkpoint, *sorted(checkpoint.rglob("*"))):
        needed = 0o005 if path.is_dir() else 0o004
        if path.stat().st_mode & needed != needed:
            raise UserError(f"{path}: only its owner can read it, not the server: chmod -R a+rX {checkpoint}")


def require_files(checkpoint: Path, mtp_prefix: str | None) -> None:
    """UserError where the checkpoint lacks what its own config.json promises a server.

    That is a file of `ROLES`, or a layer of the MTP head.
    """
    config = read_config(checkpoint)
    for role, (files, key) in ROLES.items():
        if (not key or key in config) and not any((checkpoint / name).is_file() for name in files):
            raise UserError(
                f"{checkpoint}: no {role} ({' or '.join(files)}), without which no server loads it;"
                " remove the checkpoint, then make quantize"
            )
    tensors = shards.read_checkpoint(checkpoint)
    for layer in range(_text(config).get("mtp_num_hidden_layers") or 0):
        prefix = f"{mtp_prefix}layers.{layer}."
        if mtp_prefix and not any(name.startswith(prefix) for name in tensors):
            raise UserError(
                f"{checkpoint}: no {prefix}* although config.json declares it, so the server would not draft"
                " tokens; remove the checkpoint, then make quantize"
            )


def difference(new: Path, reference: Path) -> str:
    """The first thing in which `new` is no drop-in for `reference`; empty where it is one.

    Compared are architecture and MTP layers, the scheme of quantisation, every tensor's name, dtype and
    shape. A reference that is not there is none; UserError where either is no checkpoint.
    """
    if not reference.is_dir():
        return ""
    ours, theirs = _declared(new), _declared(reference)
    for key, value in theirs.items():
        if ours[key] != value:
            return f"{new}: config.json says {key} {ours[key]}, {reference} says {value}"
    mine, there = shards.read_checkpoint(new), shards.read_checkpoint(reference)
    for name in sorted(mine.keys() ^ there.keys()):
        have, lack = (new, reference) if name in mine else (reference, new)
        return f"{lack} has no {name}, {have} has it"
    for name, info in mine.items():
        one, two = (info.dtype, info.shape), (there[name].dtype, there[name].shape)
        if one != two:
            return f"{new}: {name} is {one}, in {reference} {two}"
    return ""


def payload_bytes(manifest: dict[str, Any]) -> int:
    """Bytes of all files that a manifest describes."""
    return sum(entry["bytes"] for entry in manifest["files"].values())


def tree_bytes(directory: Path) -> int:
    """Bytes of all files in a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def megabytes(count: int) -> str:
    """`22000000000` -> `22,000 MB`."""
    return f"{count / 1e6:,.0f} MB"


def read_config(checkpoint: Path) -> dict[str, Any]:
    """The checkpoint's config.json; UserError where there is none."""
    path = checkpoint / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError
        return config
    except FileNotFoundError:
        raise UserError(f"{path}: no such file, so {checkpoint} is no checkpoint; check DEPLOY_DIR") from None
    except ValueError:
        raise UserError(f"{path}: not a model's configuration; check DEPLOY_DIR") from None


def _declared(checkpoint: Path) -> dict[str, Any]:
    config = read_config(checkpoint)
    found = {key: config.get(key) for key in ("model_type", "architectures")}
    found["mtp_num_hidden_layers"] = _text(config).get("mtp_num_hidden_layers") or 0
    return found | {"quantization_config": _quantization(config.get("quantization_config") or {})}


def _quantization(config: dict[str, Any]) -> dict[str, Any]:
    """What must be alike in two quantised checkpoints; versions and the ignore list's spelling may differ."""
    groups = [
        {
            part: {k: (scheme.get(part) or {}).get(k) for k in SCHEME}
            for part in ("weights", "input_activations")
        }
        for scheme in (config.get("config_groups") or {}).values()
    ]
    found = {key: config.get(key) for key in ("quant_method", "format", "kv_cache_scheme")}
    return {**found, "config_groups": groups} if config else {}


def _text(config: dict[str, Any]) -> dict[str, Any]:
    found = config.get("text_config", config)
    return found if isinstance(found, dict) else {}
