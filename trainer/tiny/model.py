"""The tiny Qwen3_5Moe: configuration, starting weights, and tensors in the hub's layout."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import (
    Qwen3_5MoeDecoderLayer,
    Qwen3_5MoeRMSNorm,
)

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 128, 4, 2, 64
LAYERS = ("linear_attention", "full_attention") * 2
EMBEDDING_STD = 0.5
MEANING = 0.9
"""Cosine between a token's starting embedding and that of its meaning."""


def make_config(tokenizer: Any) -> Qwen3_5MoeConfig:
    """The configuration for a tokenizer, its vocabulary padded up to a multiple of 64."""
    ids: Any = tokenizer.convert_tokens_to_ids
    quarter = HEAD_DIM // 4
    text = {
        "vocab_size": -(-len(tokenizer) // 64) * 64,
        "hidden_size": HIDDEN,
        "num_hidden_layers": len(LAYERS),
        "layer_types": list(LAYERS),
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "attn_output_gate": True,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 128,
        "max_position_embeddings": 4096,
        "mtp_num_hidden_layers": 1,
        "tie_word_embeddings": False,
        "eos_token_id": ids("<|im_end|>"),
        "pad_token_id": ids("<|endoftext|>"),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
            "mrope_section": [quarter - 2 * (quarter // 3), quarter // 3, quarter // 3],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 2,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 64,
        "in_channels": 3,
        "deepstack_visual_indexes": [],
    }
    config = Qwen3_5MoeConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    config.architectures = ["Qwen3_5MoeForConditionalGeneration"]
    return config


def make_model(
    config: Qwen3_5MoeConfig, tokenizer: Any, meanings: Mapping[str, Sequence[str]], seed: int
) -> Qwen3_5MoeForConditionalGeneration:
    """A model with starting weights from which copying appears within minutes of CPU time.

    Mimetic initialisation (Trockman and Kolter, arXiv:2305.09828): value-output products near the
    identity, query-key products partly so, and the output head close to the embeddings. Tokens of one
    meaning start near each other (see `_start_words`): what large models learn from much text.
    """
    torch.manual_seed(seed)
    model = Qwen3_5MoeForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "visual" not in name:
                _start(name, parameter)
        language = model.model.language_model
        _start_words(language.embed_tokens.weight, model.lm_head.weight, tokenizer, meanings)
        for layer in language.layers:
            if hasattr(layer, "self_attn"):
                _start_attention(layer.self_attn)
    return model


class MtpHead(nn.Module):
    """The multi-token-prediction head as Qwen3.5/3.6 store it: `mtp.*`, one full-attention layer.

    From the hidden state of position t and the embedding of token t+1 it predicts token t+2.
    """

    def __init__(self, config: Qwen3_5MoeConfig) -> None:
        super().__init__()
        text: Any = config.text_config
        self.fc = nn.Linear(2 * text.hidden_size, text.hidden_size, bias=False)
        self.pre_fc_norm_embedding = Qwen3_5MoeRMSNorm(text.hidden_size, eps=text.rms_norm_eps)
        self.pre_fc_norm_hidden = Qwen3_5MoeRMSNorm(text.hidden_size, eps=text.rms_norm_eps)
        self.layers = nn.ModuleList([Qwen3_5MoeDecoderLayer(text, LAYERS.index("full_attention"))])
        self.norm = Qwen3_5MoeRMSNorm(text.hidden_size, eps=text.rms_norm_eps)

    def forward(self, hidden: Tensor, embedded: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """`hidden`, `embedded` (B, T, H), additive `mask` (1, 1, T, T) -> states (B, T, H)."""
        both = torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], dim=-1)
        states = self.layers[0](self.fc(both), position_embeddings=rope, attention_mask=mask)
        return self.norm(states)


def make_mtp(config: Qwen3_5MoeConfig, seed: int) -> MtpHead:
    """An MTP head with starting weights."""
    torch.manual_seed(seed)
    head = MtpHead(config)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            _start(name, parameter)
    return head


def checkpoint_tensors(model: nn.Module, mtp: MtpHead) -> dict[str, Tensor]:
    """Every tensor in BF16 under the name that the hub's checkpoint gives it; experts stay fused."""
    tensors = dict(model.state_dict())
    tensors |= {f"mtp.{name}": tensor for name, tensor in mtp.state_dict().items()}
    return {name: tensor.detach().to(torch.bfloat16) for name, tensor in tensors.items()}


def _start_words(
    embeddings: Tensor, head: Tensor, tokenizer: Any, meanings: Mapping[str, Sequence[str]]
) -> None:
    """Embeddings (V, H) of what a token means and of the token itself; the head (V, H) tells tokens apart.

    A word with or without a space before it, or a capital, means the same; so do words of one concept.
    """
    shared: dict[str, Tensor] = {}
    for token in range(len(tokenizer)):
        own = embeddings[token].clone()
        word = tokenizer.decode([token]).strip().casefold()
        if len(word) > 1 and word.isalpha():
            for name in meanings.get(word, [word]):
                shared.setdefault(name, torch.randn_like(own) * EMBEDDING_STD)
            concepts = [shared[name] for name in meanings.get(word, [word])]
            meaning = sum(concepts[1:], concepts[0]) * len(concepts) ** -0.5
        else:
            meaning = own
        for weight, share, size in ((embeddings, MEANING, 1.0), (head, MEANING / 2, 0.1 / EMBEDDING_STD)):
            mixed = share * meaning + (1 - share**2) ** 0.5 * own if meaning is not own else own
            weight[token] = mixed * size


def _start(name: str, parameter: Any) -> None:
    residual = re.search(r"o_proj|out_proj|down_proj", name)
    if name.endswith(("experts.gate_up_proj", "experts.down_proj")) or re.search(
        r"proj\w*\.weight$|fc\.weight$", name
    ):
        parameter.normal_(0, parameter.shape[-1] ** -0.5 * (0.5 if residual else 1.0))
    elif name.endswith("mlp.gate.weight"):
        parameter.normal_(0, 0.4 * HIDDEN**-0.5)
    elif "embed_tokens" in name:
        parameter.normal_(0, EMBEDDING_STD)
    elif name.endswith("A_log"):
        parameter.copy_(torch.empty_like(parameter).uniform_(0.02, 2.0).log())
    elif name.endswith("dt_bias"):
        parameter.fill_(-3.0)


def _start_attention(attention: Any) -> None:
    shared = HEADS // KV_HEADS
    value = attention.v_proj.weight.view(KV_HEADS, HEAD_DIM, HIDDEN)
    output = attention.o_proj.weight.view(HIDDEN, HEADS, HEAD_DIM)
    query = attention.q_proj.weight.view(HEADS, 2 * HEAD_DIM, HIDDEN)
    key = attention.k_proj.weight.view(KV_HEADS, HEAD_DIM, HIDDEN)
    for head in range(HEADS):
        output[:, head] = value[head // shared].t() * 0.7 / shared**0.5
        query[head, :HEAD_DIM] = 0.7 * key[head // shared] + 0.7 * query[head, :HEAD_DIM]
