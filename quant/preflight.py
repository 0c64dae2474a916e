"""Whether a checkpoint can take the place of the one that is served; looks only, changes nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

from core import artifacts, shards
from core.errors import UserError

ROLES = {
    "tokenizer": ("tokenizer.json",),
    "chat template": ("chat_template.jinja", "chat_template.json"),
    "image processor": ("preprocessor_config.json", "processor_config.json"),
    "video processor": ("video_preprocessor_config.json", "processor_config.json"),
    "generation config": ("generation_config.json",),
}
"""What a server reads beside weights and config, and the files that it may stand in (the processors
together in one since transformers 5)."""


def require_complete(checkpoint: Path, manifest: dict[str, Any], target: str) -> None:
    """UserError where a file of the manifest is missing or has another size."""
    if not artifacts.complete(checkpoint, manifest):
        raise UserError(
            f"{checkpoint}: files are missing or cut short; remove the checkpoint, then make {target}"
        )


def require_space(directory: Path, manifest: dict[str, Any], hint: str = "") -> None:
    """UserError where the disk of `directory` has no room for a copy of the payload."""
    needed, free = payload_bytes(manifest), shutil.disk_usage(directory).free
    if free < needed:
        raise UserError(
            f"{directory}: {free / 1e6:,.0f} MB free, the copy takes {needed / 1e6:,.0f}: free some{hint}"
        )


def payload_bytes(manifest: dict[str, Any]) -> int:
    """Bytes of all files that a manifest describes."""
    return sum(entry["bytes"] for entry in manifest["files"].values())


def require_drop_in(new: Path, served: Path, mtp_prefix: str | None) -> None:
    """UserError where `new` lacks something that a server of `served` relies on.

    Architecture and MTP layers as declared in config.json, the MTP tensors that it declares, and the
    `ROLES` that are served today.
    """
    ours, theirs = _declared(new), _declared(served)
    for key, value in theirs.items():
        if ours[key] != value:
            raise UserError(
                f"{new}: config.json says {key} {ours[key]}, the served {served} says {value};"
                " check PROFILE and DEPLOY_DIR"
            )
    tensors = shards.read_checkpoint(new)
    for layer in range(ours["mtp_num_hidden_layers"]):
        prefix = f"{mtp_prefix}layers.{layer}."
        if mtp_prefix and not any(name.startswith(prefix) for name in tensors):
            raise UserError(
                f"{new}: no {prefix}* although config.json declares it, so the server would not draft tokens;"
                " remove the checkpoint, then make quantize"
            )
    for role, files in ROLES.items():
        if _any_file(served, files) and not _any_file(new, files):
            raise UserError(
                f"{new}: no {role} ({' or '.join(files)}), which {served} has;"
                " remove the checkpoint, then make quantize"
            )


def _any_file(checkpoint: Path, names: tuple[str, ...]) -> bool:
    return any((checkpoint / name).is_file() for name in names)


def _declared(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        text = config.get("text_config", config)
        return {
            "model_type": config["model_type"],
            "architectures": config["architectures"],
            "mtp_num_hidden_layers": text.get("mtp_num_hidden_layers") or 0,
        }
    except FileNotFoundError:
        raise UserError(f"{path}: no such file, so {checkpoint} is no checkpoint; check DEPLOY_DIR") from None
    except (ValueError, KeyError, AttributeError):
        raise UserError(f"{path}: not a model's configuration; check DEPLOY_DIR") from None
