"""A model whose blocks take and return dataclasses, as does the model itself, made by copying a layer
(torch.nn.TransformerEncoder does so), with a parameter of its own beside those of its modules."""
import copy
import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, DIM, LAYERS, LENGTH = 96, 32, 3, 64


@dataclasses.dataclass
class State:
    hidden: torch.Tensor
    penalty: torch.Tensor


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(DIM, 4, 64, batch_first=True, norm_first=True, dropout=0.0)

    def forward(self, state):
        hidden = self.layer(state.hidden)
        return State(hidden, state.penalty + hidden.float().pow(2).mean())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.zeros(1, LENGTH, DIM))
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        block = Block()
        self.layers = nn.ModuleList(copy.deepcopy(block) for _ in range(LAYERS))
        self.head = nn.Linear(DIM, VOCABULARY)

    def forward(self, tokens):
        state = State(self.embedding(tokens) + self.position[:, :tokens.shape[1]], torch.zeros(1))
        for layer in self.layers:
            state = layer(state)
        return State(self.head(state.hidden), state.penalty.sum())


def loss(state):
    logits = state.hidden.flatten(0, 1).float()
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64)) + 0.1 * state.penalty


def build(batch, seq):
    return Model(), (torch.zeros(batch, seq, dtype=torch.int64),), loss
