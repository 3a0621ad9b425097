"""A small diffusion transformer (Peebles and Xie 2022, adaLN-Zero), for tools/record.py: a model that
no library has, with a loss behind it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, HEADS, BLOCKS, CHANNELS = 192, 3, 3, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)

    def forward(self, x, condition):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(condition)).chunk(6, dim=1)
        y = self.norm1(x) * (1 + scale1.unsqueeze(1)) + shift1.unsqueeze(1)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(y).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate1.unsqueeze(1) * self.out(y)
        y = self.norm2(x) * (1 + scale2.unsqueeze(1)) + shift2.unsqueeze(1)
        return x + gate2.unsqueeze(1) * self.down(F.gelu(self.up(y), approximate="tanh"))


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(CHANNELS, WIDTH, 2, stride=2)
        self.time = nn.Sequential(nn.Linear(64, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.label = nn.Embedding(1000, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * CHANNELS)

    def forward(self, images, times, labels):
        x = self.patches(images).flatten(2).transpose(1, 2)
        condition = self.time(times) + self.label(labels)
        for block in self.blocks:
            x = block(x, condition)
        return self.head(self.norm(x))


def build(batch, seq):
    """seq: patches of an image, a square number."""
    side = 2 * int(seq ** 0.5)
    inputs = (torch.zeros(batch, CHANNELS, side, side), torch.zeros(batch, 64),
              torch.zeros(batch, dtype=torch.int64))
    return DiT(), inputs, lambda noise: noise.float().pow(2).mean()
