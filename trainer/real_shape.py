"""A model of Qwen3.6-35B-A3B's real widths with few layers and random weights, and rows to train it on.

For what only a real GPU can tell and needs no trained model: speed, memory, agreement of two backends.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import artifacts, chat, generate, shards
from core.profile import Profile
from trainer.learning import samples

if TYPE_CHECKING:
    from torch import Tensor

SHARD_BYTES = 2_000_000_000
STD = 0.02


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a Qwen3.5-MoE and of the rows it is trained on."""

    hidden: int
    vocabulary: int
    heads: int
    head_dim: int
    linear_heads: int
    """Value heads of a Gated DeltaNet layer; half as many key heads."""
    linear_dim: int
    experts: int
    intermediate: int
    rows: int
    longest: int
    """Tokens."""


REAL = Shape(
    hidden=2048,
    vocabulary=248_320,
    heads=16,
    head_dim=256,
    linear_heads=32,
    linear_dim=128,
    experts=256,
    intermediate=512,
    rows=64,
    longest=4096,
)
SMALL = Shape(
    hidden=64,
    vocabulary=4096,
    heads=2,
    head_dim=32,
    linear_heads=4,
    linear_dim=16,
    experts=8,
    intermediate=32,
    rows=16,
    longest=128,
)


def config(shape: Shape) -> Any:
    """The model's configuration: three Gated DeltaNet layers, one of attention, a small vision tower."""
    from transformers import Qwen3_5MoeConfig

    text = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "num_attention_heads": shape.heads,
        "num_key_value_heads": 2,
        "head_dim": shape.head_dim,
        "linear_num_key_heads": shape.linear_heads // 2,
        "linear_num_value_heads": shape.linear_heads,
        "linear_key_head_dim": shape.linear_dim,
        "linear_value_head_dim": shape.linear_dim,
        "num_experts": shape.experts,
        "num_experts_per_tok": min(8, shape.experts // 2),
        "moe_intermediate_size": shape.intermediate,
        "shared_expert_intermediate_size": shape.intermediate,
        "tie_word_embeddings": False,
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": shape.hidden,
        "num_position_embeddings": 16,
    }
    made = Qwen3_5MoeConfig(text_config=text, vision_config=vision, tie_word_embeddings=False)
    made.architectures = ["Qwen3_5MoeForConditionalGeneration"]
    return made


def write_base(directory: Path, shape: Shape, words: Path) -> None:
    """Write a BF16 checkpoint in the hub's layout, with the tokenizer of the checkpoint `words`."""
    import torch
    from accelerate import init_empty_weights
    from transformers import Qwen3_5MoeForConditionalGeneration

    directory.mkdir(parents=True)
    made = config(shape)
    made.dtype = torch.bfloat16
    with init_empty_weights():
        empty = Qwen3_5MoeForConditionalGeneration(made)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(0)

    def values(name: str, like: "Tensor") -> "Tensor":
        if name.endswith("linear_attn.norm.weight"):
            return torch.ones(like.shape, dtype=torch.bfloat16)
        drawn = torch.randn(like.shape, generator=generator, device=device, dtype=torch.bfloat16)
        return (drawn * STD).cpu()

    tensors = {name: values(name, like) for name, like in empty.state_dict().items()}
    shards.write_checkpoint(directory, tensors, max_shard_bytes=SHARD_BYTES)
    made.save_pretrained(directory)
    generate.load_tokenizer(words).save_pretrained(directory)


def write_dataset(directory: Path, rows: list[chat.Row], base: Path, profile: Profile, longest: int) -> None:
    """Write rows as the dataset artefact that training reads; the same ones are held out."""
    facts: dict[str, Any] = {"profile": profile.name, "run": "-", "settings": {}, "inputs": {}}
    tokenizer = generate.load_tokenizer(base)
    with artifacts.create(directory, kind="dataset", **facts) as draft:
        for name in ("train", "eval"):
            chat.write_rows(draft.path / f"{name}.jsonl", rows)
        read = samples.read(draft.path / "train.jsonl", tokenizer, longest)
        draft.counts["tokens"] = {"train": {"samples": len(read), **samples.counts(read)}}


def make_rows(shape: Shape) -> list[chat.Row]:
    """Rows of many lengths: a request of random words and an answer of some of them."""
    draw = random.Random(0)
    words = "lista abre busca guarda borra crea rama nota fecha tabla error pagina".split()
    rows = []
    for number in range(shape.rows):
        size = draw.randint(shape.longest // 32, shape.longest // 4)
        said = draw.choices(words, k=size)
        answer = chat.say(" ".join(said[: size // 4 + 1]), think="Repito el principio.")
        messages = [chat.user(" ".join(said)), answer]
        rows.append(
            chat.Row(
                id=f"row-{number:03d}",
                bucket="random",
                group=str(number),
                split="train",
                messages=messages,
                tools=[],
            )
        )
    return rows
