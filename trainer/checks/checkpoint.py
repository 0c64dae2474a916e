"""The base checkpoint by its config and headers: shards, class, MTP, vision, dtypes."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import shards
from core.errors import UserError
from core.profile import Profile
from core.shards import TensorInfo
from trainer.checks.check import Check, size

CONFIG = "config.json"
FLOAT32_TOO = ("linear_attn.A_log", "linear_attn.norm.weight")  # in F32 in Qwen3.5, in BF16 in Qwen3.6
FLOATS = ("BF16", "F16", "F32")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What the files say; a part that cannot be read is empty and its fault says why."""

    path: Path
    config: Mapping[str, Any]
    config_fault: str | None
    tensors: Mapping[str, TensorInfo]
    shards_fault: str | None

    @property
    def text(self) -> Mapping[str, Any]:
        """The language model's part of the config."""
        return self.config.get("text_config") or self.config

    @property
    def bytes(self) -> int:
        """Of all tensors."""
        return sum(info.stop - info.start for info in self.tensors.values())


def exists(path: Path) -> bool:
    """Whether there is a checkpoint, or a part of one."""
    return any((path / name).exists() for name in (CONFIG, shards.INDEX, shards.SINGLE))


def read(path: Path) -> Checkpoint:
    """The checkpoint in the directory `path`; no tensor is loaded."""
    config, config_fault, tensors, shards_fault = {}, None, {}, None
    try:
        config = read_json(path / CONFIG)
    except UserError as error:
        config_fault = str(error)
    try:
        tensors = shards.read_checkpoint(path)
    except UserError as error:
        shards_fault = str(error)
    return Checkpoint(
        path=path, config=config, config_fault=config_fault, tensors=tensors, shards_fault=shards_fault
    )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; UserError where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except ValueError:
        raise UserError(f"{path}: broken JSON") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object")
    return content


def mend(profile: Profile, path: Path) -> str:
    """The command that gets the checkpoint anew."""
    if profile.embedded:
        return f"rm -r {path}, then make base"
    return f"hf download {profile.base} --local-dir {path}"


def check_shards(profile: Profile, base: Checkpoint) -> Check:
    """Every shard whole, and the index at one with them."""
    if base.shards_fault:
        return Check("shards", "fail", base.shards_fault, mend(profile, base.path))
    files = len({info.file for info in base.tensors.values()})
    return Check("shards", "ok", f"{files} whole, {len(base.tensors)} tensors, {size(base.bytes)}")


def check_config(profile: Profile, base: Checkpoint) -> Check:
    """The model's class: the one with the vision tower where the profile has one."""
    if base.config_fault:
        return Check("config", "fail", base.config_fault, mend(profile, base.path))
    architecture = next(iter(base.config.get("architectures") or []), "no architecture")
    found = f"{base.config.get('model_type', 'no model_type')}, {architecture}"
    if profile.vision_prefix and not architecture.endswith("ForConditionalGeneration"):
        advice = f"expected a …ForConditionalGeneration, with the vision tower: {mend(profile, base.path)}"
        return Check("config", "fail", found, advice)
    return Check("config", "ok", found)


def check_mtp(profile: Profile, base: Checkpoint) -> Check:
    """As many layers under the profile's MTP prefix as config.json promises."""
    prefix = profile.mtp_prefix or ""
    names = [name for name in base.tensors if name.startswith(prefix)]
    layers = {match[1] for name in names if (match := re.match(rf"{re.escape(prefix)}layers\.(\d+)\.", name))}
    promised = base.text.get("mtp_num_hidden_layers") or 0
    experts = "per expert" if any(re.search(r"\.experts\.\d+\.", name) for name in names) else "fused"
    found = f"{len(names)} tensors under {prefix}" + (f", experts {experts}" if names else "")
    if len(layers) < promised:
        advice = f"mtp_num_hidden_layers is {promised}, found {len(layers)}: {mend(profile, base.path)}"
        return Check("MTP", "fail", found, advice)
    if not promised:
        return Check("MTP", "warn", found, "mtp_num_hidden_layers is 0: the server will not draft tokens")
    return Check("MTP", "ok", found)


def check_vision(profile: Profile, base: Checkpoint) -> Check:
    """Tensors under the profile's vision prefix."""
    count = sum(name.startswith(profile.vision_prefix or "") for name in base.tensors)
    found = f"{count} tensors under {profile.vision_prefix}"
    if count:
        return Check("vision", "ok", found)
    return Check("vision", "fail", found, f"the server loads them: {mend(profile, base.path)}")


def check_dtypes(profile: Profile, base: Checkpoint) -> Check:
    """BF16 throughout, but for what Qwen3.5 keeps in F32."""
    count = Counter(info.dtype for info in base.tensors.values())
    found = ", ".join(f"{dtype} {number}" for dtype, number in count.most_common())
    odd = [
        info
        for info in base.tensors.values()
        if info.dtype != "BF16" and not (info.dtype == "F32" and info.name.endswith(FLOAT32_TOO))
    ]
    if not odd:
        return Check("dtypes", "ok", found)
    first = f"{odd[0].name} is {odd[0].dtype}"
    if all(info.dtype in FLOATS for info in odd):
        return Check("dtypes", "warn", found, f"expected BF16, {first}")
    advice = f"{first}: the base must be the BF16 original: {mend(profile, base.path)}"
    return Check("dtypes", "fail", found, advice)
