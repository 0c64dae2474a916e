"""What a forward pass keeps for the backward pass, counted from the sizes in config.json.

Autograd keeps what the gradient of an operation needs (pytorch.org, "Autograd mechanics", saved tensors); the
lines below follow transformers' modeling_qwen3_5_moe.py, modeling_llama.py and integrations/moe.py (5.17),
core/gated_delta.py and peft's LoRA layer (0.21), where frozen weights keep no input and an adapter keeps its
input, shared by the layers that read the same one. tests/test_memory.py counts the real models' saved tensors
against this.
"""

from collections.abc import Mapping
from typing import Any

READ_TOGETHER = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.in_proj_b", "linear_attn.in_proj_a"),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"),
)
"""Layers with one input."""
OUTPUT = "self_attn.o_proj"


def layer_floats(text: Mapping[str, Any], kind: str, targets: Mapping[str, int], rank: int) -> float:
    """Numbers that one decoder layer keeps for each token.

    `text` is the language model's part of config.json, `kind` full_attention or linear_attention, `targets`
    the input sizes of the trained layers by their path inside the decoder layer.
    """
    hidden = text["hidden_size"]
    floats = 2 * (hidden + 1)  # two norms: the input and its root mean square
    floats += _gated_delta(text) if kind == "linear_attention" else _attention(text)
    floats += _experts(text) if text.get("num_experts") else _gated(text["intermediate_size"])
    blocks = ("linear_attn.", "mlp.") if kind == "linear_attention" else ("self_attn.", "mlp.")
    trained = {path: size for path, size in targets.items() if path.startswith(blocks)}
    inputs = {_reads(path): size for path, size in trained.items()}
    if not text.get("attn_output_gate"):
        inputs.pop((OUTPUT,), None)  # the attention's own output, which is kept already
    return floats + sum(inputs.values()) + rank * len(trained)


def _reads(path: str) -> tuple[str, ...]:
    """The layers that share this one's input."""
    return next((group for group in READ_TOGETHER if path in group), (path,))


def _attention(text: Mapping[str, Any]) -> float:
    """Query, key, value, the output and its log-sum-exp; norms of query and key, and an output gate."""
    heads, kv_heads = text["num_attention_heads"], text["num_key_value_heads"]
    size = text.get("head_dim") or text["hidden_size"] // heads
    queries, keys = heads * size, kv_heads * size
    floats = 2 * queries + 2 * keys + heads
    if text.get("attn_output_gate"):
        # The projection of query and gate, the keys, their norms; the gate's sigmoid and what it multiplies.
        floats += 2 * queries + heads + keys + kv_heads + 2 * queries
    return floats


def _gated_delta(text: Mapping[str, Any]) -> float:
    """The convolution and its activation, core/gated_delta.py's `_Block` and states, the gated norm."""
    heads, key, value = (text[f"linear_{n}"] for n in ("num_value_heads", "key_head_dim", "value_head_dim"))
    convolved = 2 * text["linear_num_key_heads"] * key + heads * value
    chunk = min(64, max(16, key // 2))
    rule = 2 * key + 5 + 3 * chunk + value + key * value / chunk
    return 2 * convolved + heads * (rule + 2) + 4 * heads * value + heads


def _experts(text: Mapping[str, Any]) -> float:
    """The shared expert and its gate, the router, and the chosen experts."""
    chosen, hidden = text["num_experts_per_tok"], text["hidden_size"]
    shared = _gated(text["shared_expert_intermediate_size"]) + hidden + 1
    return shared + text["num_experts"] + chosen * (_gated(text["moe_intermediate_size"]) + hidden + 12)


def _gated(size: int) -> int:
    """down(act(gate) * up): the gate, its activation, and up."""
    return 3 * size
