"""A tiny random Qwen3.5-MoE checkpoint in the hub's layout, vision tower and MTP included."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.shards import write_checkpoint

if TYPE_CHECKING:
    import torch
    from transformers import Qwen3_5MoeConfig

HIDDEN, EXPERTS, VOCAB = 64, 4, 96


def make(
    directory: Path,
    *,
    dtype: str = "bfloat16",
    intermediate: int = 48,
    single_experts: bool = False,
    old_norms: bool = False,
    seed: int = 100,
) -> None:
    """Write 3 shards, index and config; 3 GDN layers, 1 of attention, every tensor of `dtype`.

    `single_experts`: the experts, MTP's too, one by one instead of stacked. `old_norms`: linear_attn's A_log
    and norm in float32, as Qwen3.5 stores them.
    """
    import torch

    directory.mkdir(parents=True, exist_ok=True)
    made = config(intermediate)
    tensors = {name: t.to(getattr(torch, dtype)) for name, t in _tensors(made, seed).items()}
    if single_experts:
        tensors = unstack(tensors)
    if old_norms:
        for name in [n for n in tensors if n.endswith(("linear_attn.A_log", "linear_attn.norm.weight"))]:
            tensors[name] = tensors[name].float()
    size = sum(t.nbytes for t in tensors.values())
    write_checkpoint(directory, tensors, max_shard_bytes=size // 2)
    made.save_pretrained(directory)
    (directory / "chat_template.jinja").write_text("{{ messages }}\n", encoding="utf-8")


def unstack(tensors: "dict[str, torch.Tensor]") -> "dict[str, torch.Tensor]":
    """The same tensors with every stack of experts taken apart."""
    apart = {}
    for name, tensor in tensors.items():
        head, _, stack = name.rpartition(".")
        if not head.endswith(".experts"):
            apart[name] = tensor
            continue
        matrices = ["gate_proj", "up_proj"] if stack == "gate_up_proj" else ["down_proj"]
        for expert, whole in enumerate(tensor):
            for matrix, part in zip(matrices, whole.chunk(len(matrices)), strict=True):
                apart[f"{head}.{expert}.{matrix}.weight"] = part.contiguous()
    return apart


def config(intermediate: int = 48) -> "Qwen3_5MoeConfig":
    """The model's configuration, the class name in it."""
    from transformers import Qwen3_5MoeConfig

    text: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": intermediate,
        "shared_expert_intermediate_size": 40,
    }
    vision: dict[str, Any] = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 16,
    }
    made = Qwen3_5MoeConfig(text_config=text, vision_config=vision)
    made.architectures = ["Qwen3_5MoeForConditionalGeneration"]
    return made


def _tensors(made: "Qwen3_5MoeConfig", seed: int) -> dict[str, "torch.Tensor"]:
    import torch
    from transformers import Qwen3_5MoeForConditionalGeneration

    generator = torch.Generator().manual_seed(seed)
    tensors = dict(Qwen3_5MoeForConditionalGeneration(made).state_dict())
    last = "model.language_model.layers.3."
    for name in [name for name in tensors if name.startswith(last)]:
        tensors[name.replace(last, "mtp.layers.0.")] = tensors[name]
    tensors["mtp.fc.weight"] = torch.empty(HIDDEN, 2 * HIDDEN)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        tensors[f"mtp.{name}.weight"] = torch.empty(HIDDEN)
    return {name: torch.randn(t.shape, generator=generator) * 0.05 for name, t in tensors.items()}
