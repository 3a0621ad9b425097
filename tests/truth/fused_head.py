"""TRL's fused LM head without a GPU: what the log-probabilities of `trl.trainer.utils.add_fused_lm_head` (TRL 1.16) allocate.

It allocates in Python, around Triton kernels that write what they are handed: none is launched. Every token but the last of a sequence has a
target: as many are found as there are.
"""
import importlib
import inspect

import torch

import grpo
import linear_attention

OUTPUTS = ("log_probs", "entropy", "is_top1")      # SFTTrainer's
LOSSES = ("fused-lm-head", "dpo", "grpo")                  # whose trainers have it


def prepare(zero3=False):
    """Before anything is written down: what is made when it is imported is no part of a step."""
    linear_attention.launch_nothing(importlib.import_module("triton"))
    kernels = importlib.import_module("trl.kernels.chunked_logprob")
    source = inspect.getsource(kernels._addmm_fp32).replace('"cuda"', '"cpu"')
    exec(compile(source, kernels.__file__, "exec"), kernels.__dict__)
    for module in (kernels, importlib.import_module("trl.trainer.utils")):
        module._use_triton = lambda device: True
    importlib.import_module("transformers.integrations.deepspeed").is_deepspeed_zero3_enabled = lambda: zero3


def outputs(s):
    """What the trainer of a loss wants of the head."""
    import preferences
    return preferences.outputs(s) if s["loss"] == "dpo" else grpo.OUTPUTS if s["loss"] == "grpo" else OUTPUTS


def apply(model, outputs=OUTPUTS):
    """What a trainer does to a model, before PEFT wraps it."""
    importlib.import_module("trl.trainer.utils").add_fused_lm_head(model, outputs=outputs)


def loss(outputs):
    """SFTTrainer.compute_loss, of its own batch's tokens."""
    per_token_loss = -outputs.log_probs
    return per_token_loss.sum() / torch.as_tensor(outputs.label_mask.sum()).clamp(min=1)
