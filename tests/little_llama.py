"""A Llama of a few thousand parameters with a tokenizer of Mistral's kind, made on the spot."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from core import artifacts, profile
from core.profile import PROFILES, Profile
from core.profiles import formal_mistral, formal_smollm

NAME = "little"
LAYERS = 2
EXAMPLES = Path(__file__).parents[1] / "examples"
TEXTS = sorted([*EXAMPLES.glob("formal/*.jsonl"), EXAMPLES / "general.jsonl"])


def texts() -> Iterator[str]:
    """What the tokenizer is made from."""
    for file in TEXTS:
        for line in file.read_text(encoding="utf-8").splitlines():
            yield from (value for value in json.loads(line).values() if isinstance(value, str))


def make(path: Path) -> None:
    """Write the base checkpoint: LlamaForCausalLM in BF16, its tokenizer, Mistral's chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaTokenizerFast

    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    inner.train_from_iterator(texts(), trainer)
    raw = json.loads(inner.to_str())
    raw["added_tokens"] = raw["added_tokens"][:3]
    tokenizer = LlamaTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(raw)),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="</s>",
        chat_template=(PROFILES / "mistral_instruct.jinja").read_text(encoding="utf-8"),
    )
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    LlamaForCausalLM(shape).bfloat16().save_pretrained(path)


def install(monkeypatch: pytest.MonkeyPatch, models_dir: Path) -> Profile:
    """Make PROFILE=little known for a test, its base in `models_dir`."""
    own = formal_mistral.PROFILE
    little = replace(
        own,
        name=NAME,
        base=NAME,
        backends=("plain",),
        lora=replace(own.lora, rank=2, alpha=4, layers=""),
        train=replace(
            own.train, dtype="float32", gradient_checkpointing=False, lr=1e-2, batch=8, max_steps=0
        ),
        data=replace(formal_smollm.DATA, answer_tokens=4),
    )
    monkeypatch.setitem(sys.modules, f"core.profiles.{NAME}", SimpleNamespace(PROFILE=little))
    known = profile.names()
    monkeypatch.setattr(profile, "names", lambda: [*known, NAME])
    path = models_dir / NAME
    if not path.exists():
        make(path)
        artifacts.record(path, kind="checkpoint", profile=NAME)
    return little
