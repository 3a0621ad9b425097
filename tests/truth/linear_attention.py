"""Kernels of linear attention without a GPU: what flash-linear-attention and causal-conv1d allocate.

Both allocate in Python, around kernels that write what they are handed: fla's are Triton's, causal-conv1d's are of an
extension. Here every launch does nothing, so their own Python code runs on fake tensors as it does on a GPU. What
depends on the card is its shared memory: an A100's and more is taken (heads of up to 128 in one piece).
(causal-conv1d is installed without its extension; deterministic algorithms, which have it allocate in C++, are off.)
"""
import sys
import types

import torch
import triton


def launches_nothing(self, *args, **kwargs):
    return None


def without_kernels():
    """To be called before transformers is imported, which takes the packages if they are there."""
    extension = types.ModuleType("causal_conv1d_cuda")
    for name in ("causal_conv1d_fwd", "causal_conv1d_bwd", "causal_conv1d_update"):
        setattr(extension, name, launches_nothing)
    sys.modules["causal_conv1d_cuda"] = extension
    for runner in (triton.runtime.jit.JITFunction, triton.runtime.autotuner.Autotuner, triton.runtime.autotuner.Heuristics):
        runner.run = launches_nothing
    try:
        import causal_conv1d.cpp_functions as functions
        import fla.ops.common.chunk_o
        import fla.ops.gated_delta_rule.wy_fast
    except ImportError:
        return
    for name in ("_causal_conv1d_fwd_cpp", "_causal_conv1d_bwd_cpp"):
        setattr(functions, name, lambda **kwargs: None)
    for module in (fla.ops.common.chunk_o, fla.ops.gated_delta_rule.wy_fast):
        module.check_shared_mem = lambda *args, **kwargs: True
