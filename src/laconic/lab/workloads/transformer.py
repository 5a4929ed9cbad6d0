"""A small GPT on characters, 3.2 million parameters."""

import torch
from torch import Tensor, nn

from laconic.lab.workloads.text import VOCABULARY, Text
from laconic.lab.workloads.workload import Workload


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        packed = self.attention(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.mlp(self.before_mlp(x))
        return out


class SmallGPT(nn.Module):
    def __init__(self, width: int = 256, layers: int = 4, heads: int = 4, length: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, characters: Tensor) -> Tensor:
        x = self.tokens(characters) + self.positions(torch.arange(characters.shape[1]))
        scores: Tensor = self.head(self.norm(self.blocks(x)))
        return scores


GPT = Workload(
    name="gpt",
    summary="character GPT, 4 blocks of 256",
    model=SmallGPT,
    data=lambda path: Text(path, length=64),
    batch=8,
    learning_rate=1e-3,
    clip=1.0,
    optimizer="adam",
)
