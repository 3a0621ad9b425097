"""The loss of LLaMA-Factory v1's SFTTrainer, which has cross-entropy of each token by itself.

The model is handed the labels, so it has a loss of its own, whose backward nobody calls: what that node keeps goes with what
the model returned. The trainer's is of another copy of the logits in fp32, weighted token by token, and then by the tokens
that count, here all of them. (In v1/core/base_trainer.py the weights are there before the model is called.)
"""
import torch
import torch.nn.functional as F


def log_probs(call, inputs, labels):
    """Of each target. What the model returned goes when this returns."""
    rows = labels.shape[0]
    outputs = call(inputs)
    logits = outputs.logits.float()
    targets = labels[..., 1:].contiguous().view(-1)
    scores = logits[..., :-1, :].contiguous().view(targets.size(0), -1)
    return -F.cross_entropy(scores, targets, reduction="none").view(rows, -1)


def mean(call, inputs):
    """Over the weights."""
    weights = []

    def then(given):
        output = call(given)
        weights.append(torch.ones(given["labels"].shape))
        return output

    found = log_probs(then, inputs, inputs["labels"])
    weight = weights.pop()[..., 1:]
    return (-found * weight).sum() / (weight.sum() + 1e-6)


def loss(call, inputs, ranks):
    """What backward is called of: the mean over the tokens of all ranks and micro-batches."""
    tokens = inputs["labels"].numel()
    found = mean(call, inputs)
    found = found * tokens * ranks / (tokens * ranks + 1e-6)
    return found
