"""The same module made in 32 and in 16 bits, for tools/record.py."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width=64, words=512):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words):
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x).float().flatten(0, 1), words.flatten())


def inputs(batch, seq):
    return (torch.zeros(batch, seq, dtype=torch.int64),)


def fp32(batch, seq):
    return Model(), inputs(batch, seq)


def half(batch, seq):
    return Model().half(), inputs(batch, seq)


def back(batch, seq):
    return Model().double().float(), inputs(batch, seq)
