"""A checkpoint with the names, dtypes and tensor shapes of Qwen3.6-35B-A3B, few layers of it, and adapters.

Four decoder layers (three Gated DeltaNet, one attention), two vision blocks, the fused MTP layer; the number
of experts sets the size. Values are normal with a standard deviation of 0.02, repeated from a pool.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, EXPERT, VOCAB, LAYERS = 2048, 512, 32768, 4
VISION, VISION_MLP, VISION_BLOCKS = 1152, 4304, 2
RANK, ALPHA = 32, 64
SHARD_BYTES = 1_250_000_000
TARGETS = [f"self_attn.{name}_proj" for name in "qkvo"]
TARGETS += ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
TARGETS += [f"shared_expert.{name}_proj" for name in ("gate", "up", "down")]
Shape = tuple[int, ...]


def write(directory: Path, gigabytes: float) -> None:
    """Write a BF16 checkpoint of about that size, index and configuration."""
    directory.mkdir(parents=True)
    experts = max(8, round((gigabytes * 1e9 - _bytes(0)) / (_bytes(1) - _bytes(0)) / 8) * 8)
    shapes = _shapes(experts)
    pool = (np.random.default_rng(0).standard_normal(1 << 25, dtype=np.float32) * np.float32(0.02)).view(
        np.uint32
    )
    pool = ((pool + 0x8000) >> 16).astype(np.uint16)
    shards: list[list[str]] = [[]]
    filled = 0
    for name, shape in shapes.items():
        if filled + 2 * math.prod(shape) > SHARD_BYTES and shards[-1]:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += 2 * math.prod(shape)
    weight_map = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _save(directory / file, {name: shapes[name] for name in names}, pool)
        weight_map |= dict.fromkeys(names, file)
    total = sum(2 * math.prod(shape) for shape in shapes.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "config.json").write_text(json.dumps(_config(experts)))


def write_adapter(directory: Path, base: Path, *, experts: bool) -> None:
    """Write a random float32 adapter on the decoder layers' matrices, with `experts` on the stacks too."""
    from safetensors.numpy import save_file

    from core import shards

    random = np.random.default_rng(7)

    def half(rows: int, columns: int, scale: float) -> "np.ndarray[Any, Any]":
        return random.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)

    tensors = {}
    for name, info in shards.read_checkpoint(base).items():
        module = "base_model.model." + name.removesuffix(".weight")
        if not name.startswith("model.language_model.layers."):
            continue
        if module.endswith(tuple(TARGETS)):
            tensors[f"{module}.lora_A.weight"] = half(RANK, info.shape[1], info.shape[1] ** -0.5)
            tensors[f"{module}.lora_B.weight"] = half(info.shape[0], RANK, 0.002)
        if experts and ".experts." in name:
            module = module.removesuffix(".down_proj").replace(".gate_up_proj", ".base_layer")
            count, rows, columns = info.shape
            tensors[f"{module}.lora_A.weight"] = half(RANK * count, columns, columns**-0.5)
            tensors[f"{module}.lora_B.weight"] = half(rows, RANK * count, 0.002)
    directory.mkdir(parents=True)
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    config: dict[str, Any] = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": TARGETS}
    if experts:
        config["target_parameters"] = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    (directory / "adapter_config.json").write_text(json.dumps(config))


def _save(path: Path, shapes: dict[str, Shape], pool: "np.ndarray[Any, Any]") -> None:
    """One shard, its values taken from the pool at a different place for every tensor."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for number, shape in enumerate(shapes.values()):
            start, left = 4_099 * number % len(pool), math.prod(shape)
            while left:
                values = pool[start : start + left]
                file.write(values.tobytes())
                start, left = 0, left - len(values)


def _bytes(experts: int) -> int:
    return sum(2 * math.prod(shape) for shape in _shapes(experts).values())


def _shapes(experts: int) -> dict[str, Shape]:
    model = "model.language_model."
    shapes: dict[str, Shape] = {f"{model}embed_tokens.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        attention = _attention if layer % 4 == 3 else _deltanet
        shapes |= dict(attention(f"{model}layers.{layer}.")) | dict(_moe(f"{model}layers.{layer}.", experts))
    shapes |= {f"{model}norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}
    shapes |= dict(_vision("model.visual."))
    shapes["mtp.fc.weight"] = (HIDDEN, 2 * HIDDEN)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        shapes[f"mtp.{name}.weight"] = (HIDDEN,)
    return shapes | dict(_attention("mtp.layers.0.")) | dict(_moe("mtp.layers.0.", experts))


def _attention(layer: str) -> Iterator[tuple[str, Shape]]:
    for name, rows, columns in (
        ("q", 8192, HIDDEN),
        ("k", 512, HIDDEN),
        ("v", 512, HIDDEN),
        ("o", HIDDEN, 4096),
    ):
        yield f"{layer}self_attn.{name}_proj.weight", (rows, columns)
    yield from ((f"{layer}self_attn.{name}_norm.weight", (256,)) for name in "qk")


def _deltanet(layer: str) -> Iterator[tuple[str, Shape]]:
    yield f"{layer}linear_attn.A_log", (32,)
    yield f"{layer}linear_attn.dt_bias", (32,)
    yield f"{layer}linear_attn.conv1d.weight", (8192, 1, 4)
    yield f"{layer}linear_attn.norm.weight", (128,)
    for name, rows in (("qkv", 8192), ("z", 4096), ("b", 32), ("a", 32)):
        yield f"{layer}linear_attn.in_proj_{name}.weight", (rows, HIDDEN)
    yield f"{layer}linear_attn.out_proj.weight", (HIDDEN, 4096)


def _moe(layer: str, experts: int) -> Iterator[tuple[str, Shape]]:
    yield f"{layer}mlp.gate.weight", (experts, HIDDEN)
    yield f"{layer}mlp.experts.gate_up_proj", (experts, 2 * EXPERT, HIDDEN)
    yield f"{layer}mlp.experts.down_proj", (experts, HIDDEN, EXPERT)
    for name in ("gate_proj", "up_proj"):
        yield f"{layer}mlp.shared_expert.{name}.weight", (EXPERT, HIDDEN)
    yield f"{layer}mlp.shared_expert.down_proj.weight", (HIDDEN, EXPERT)
    yield f"{layer}mlp.shared_expert_gate.weight", (1, HIDDEN)
    yield f"{layer}input_layernorm.weight", (HIDDEN,)
    yield f"{layer}post_attention_layernorm.weight", (HIDDEN,)


def _vision(tower: str) -> Iterator[tuple[str, Shape]]:
    yield f"{tower}patch_embed.proj.weight", (VISION, 3, 2, 16, 16)
    yield f"{tower}patch_embed.proj.bias", (VISION,)
    yield f"{tower}pos_embed.weight", (2304, VISION)
    matrices: list[tuple[str, int, int]] = []
    for block in range(VISION_BLOCKS):
        for name in ("norm1", "norm2"):
            yield from ((f"{tower}blocks.{block}.{name}.{leaf}", (VISION,)) for leaf in ("weight", "bias"))
        matrices += [
            (f"blocks.{block}.attn.qkv", 3 * VISION, VISION),
            (f"blocks.{block}.attn.proj", VISION, VISION),
            (f"blocks.{block}.mlp.linear_fc1", VISION_MLP, VISION),
            (f"blocks.{block}.mlp.linear_fc2", VISION, VISION_MLP),
        ]
    yield from ((f"{tower}merger.norm.{leaf}", (VISION,)) for leaf in ("weight", "bias"))
    matrices += [("merger.linear_fc1", 4 * VISION, 4 * VISION), ("merger.linear_fc2", HIDDEN, 4 * VISION)]
    for name, rows, columns in matrices:
        yield f"{tower}{name}.weight", (rows, columns)
        yield f"{tower}{name}.bias", (rows,)


def _config(experts: int) -> dict[str, Any]:
    text = {
        "model_type": "qwen3_5_moe_text",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "moe_intermediate_size": EXPERT,
        "shared_expert_intermediate_size": EXPERT,
        "num_experts": experts,
        "num_experts_per_tok": 8,
        "mtp_num_hidden_layers": 1,
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
    vision = {
        "model_type": "qwen3_5_moe",
        "depth": VISION_BLOCKS,
        "hidden_size": VISION,
        "intermediate_size": VISION_MLP,
        "num_heads": 16,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 2304,
    }
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": text,
        "vision_config": vision,
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
