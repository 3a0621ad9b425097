"""The model of tests/data/gpu/allocator/wl_medium_*: a Transformer written out in elementary
operations, whose training step one GPU recorded (README.md there)."""
import math

import torch
import torch.nn as nn

LAYERS, DIM, HEADS, FFN, VOCABULARY, BATCH = 24, 1024, 16, 4096, 10000, 4


def linear(x, weight):
    return torch.einsum("...a,ba->...b", x, weight)


def softmax(x):
    x = x - torch.max(x, dim=-1, keepdim=True)[0]
    exps = torch.exp(x)
    return exps / torch.sum(exps, dim=-1, keepdim=True)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        rms = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * rms
        return self.weight * x


def matrix(rows, columns):
    return nn.Parameter(torch.randn(rows, columns) * 0.02)


class Attention(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.q, self.k, self.v, self.o = (matrix(DIM, DIM) for _ in range(4))
        self.table = table

    def rotate(self, x):
        b, h, s, d = x.shape
        x1, x2 = x.view(b, h, s, d // 2, 2).permute(4, 0, 1, 2, 3)
        cos, sin = self.table
        first = cos * x1 - sin * x2
        second = sin * x1 + cos * x2
        return torch.cat((first.unsqueeze(-1), second.unsqueeze(-1)), dim=-1).view(b, h, s, d)

    def heads(self, x):
        b, s, _ = x.shape
        return x.view(b, s, HEADS, DIM // HEADS).transpose(1, 2)

    def attend(self, q, k, v, mask):
        scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(DIM // HEADS)
        scores = torch.where(mask, scores, float("-inf"))
        weights = softmax(scores)
        return torch.einsum("...qk,...kd->...qd", weights, v)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = linear(x, self.q), linear(x, self.k), linear(x, self.v)
        q, k, v = (self.heads(t) for t in (q, k, v))
        q = self.rotate(q)
        k = self.rotate(k)
        places = torch.arange(s)
        mask = places.view(1, 1, s, 1) >= places.view(1, 1, 1, s)
        out = self.attend(q, k, v, mask)
        out = out.transpose(1, 2).reshape(b, s, DIM)
        result = linear(out, self.o)
        return result


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = matrix(FFN, DIM), matrix(DIM, FFN), matrix(FFN, DIM)

    def silu(self, x):
        return x * torch.sigmoid(x)

    def forward(self, x):
        return linear(self.silu(linear(x, self.w1)) * linear(x, self.w3), self.w2)


class Block(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.attention, self.ffn = Attention(table), FeedForward()
        self.norm1, self.norm2 = Norm(), Norm()

    def forward(self, x):
        attended = self.attention(self.norm1(x))
        middle = x + attended
        fed = self.ffn(self.norm2(middle))
        return middle + fed


class Model(nn.Module):
    def __init__(self, context):
        super().__init__()
        angles = torch.outer(torch.arange(context), 1e4 ** -(torch.arange(0, 64, 2) / 64))
        table = torch.cos(angles), torch.sin(angles)
        self.embedding, self.head = matrix(VOCABULARY, DIM), matrix(VOCABULARY, DIM)
        self.layers = nn.ModuleList(Block(table) for _ in range(LAYERS))
        self.norm = Norm()

    def forward(self, tokens):
        x = self.embedding[tokens]
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return linear(x, self.head)


def log_softmax(x):
    top = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - top
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def loss_of(logits, targets):
    negative = -log_softmax(logits)
    return torch.mean(torch.gather(negative, -1, targets.unsqueeze(-1)))


def build(batch, seq):
    tokens, targets = (torch.zeros(batch, seq, dtype=torch.int64) for _ in range(2))
    held = []

    def loss(logits):
        held[:] = [logits]      # the script's variable, until the next step
        return loss_of(logits, targets)
    return Model(seq), (tokens,), loss
