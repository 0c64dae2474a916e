"""MiniGPT: a decoder of four layers over characters, with every linear layer under its own name."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.minigpt import corpus


@dataclass(frozen=True)
class Shape:
    n_layer: int = 4
    n_head: int = 4
    d_model: int = 64
    vocabulary: int = len(corpus.CHARACTERS)
    context: int = corpus.CONTEXT


class Block(nn.Module):
    """Pre-norm attention and feed-forward (GPT-2's order), each added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, self.heads = shape.d_model, shape.n_head
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        normed = self.norm_1(x)
        q, k, v = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class MiniGPT(nn.Module):
    """Token ids (B, T), T up to the context -> logits (B, T, vocabulary); the head is the embedding's."""

    def __init__(self, shape: Shape | None = None) -> None:
        super().__init__()
        self.shape = shape = shape or Shape()
        self.tokens = nn.Embedding(shape.vocabulary, shape.d_model)
        self.positions = nn.Embedding(shape.context, shape.d_model)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layer))
        self.norm = nn.LayerNorm(shape.d_model)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.05)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits of the next character at every position, as dtype of the weights."""
        x = self.tokens(input_ids) + self.positions.weight[: input_ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


def one_thread() -> None:
    """Same result and no quarrel over cores: the lab runs in parallel by processes, one thread each."""
    torch.set_num_threads(1)
