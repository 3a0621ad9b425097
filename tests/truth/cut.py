"""Cut cross entropy without a GPU: what axolotl's fork of it allocates (cut-cross-entropy of its commit 5f0c7a7, which
`pip install git+https://github.com/axolotl-ai-cloud/ml-cross-entropy` has).

It allocates in Python, around Triton kernels that write what they are handed (linear_attention.py launches none). Two of its functions
are compiled; what Inductor makes of them for a GPU is written out here: the sort of the logits' averages is PyTorch's, of which the
values die at once, and one kernel casts the indices; capped logits are one kernel.
"""
import importlib
import sys

import torch

from liger import keep


def sort_logit_avg(x):
    values, indices = torch.ops.aten.sort.stable(x, stable=False, dim=0, descending=False)
    del values
    out = torch.empty_strided(x.shape, (1,), dtype=torch.int32, device=x.device)
    del indices
    return out


def softcapping(x, cap):
    return torch.empty_strided(x.shape, (1,), dtype=x.dtype, device=x.device)


def prepare():
    """Before anything is written down: what is made when it is imported is no part of a step."""
    cce = importlib.import_module("cut_cross_entropy.cce")
    cce.sort_logit_avg = sort_logit_avg
    importlib.import_module("cut_cross_entropy.indexed_dot").softcapping = softcapping
    importlib.import_module("cut_cross_entropy.transformers.patch")
    torch.cuda.is_bf16_supported = lambda *args, **kwargs: True


def apply(model, model_type):
    """What axolotl's CutCrossEntropyPlugin does before a model is loaded, which is put back by liger.undo()."""
    prepare()
    patch = sys.modules["cut_cross_entropy.transformers.patch"]
    keep(type(model))
    patch.cce_patch(model_type)
