"""Kernels of linear attention without a GPU: what flash-linear-attention, causal-conv1d and mamba-ssm allocate.

All allocate in Python, around kernels that write what they are handed: fla's and mamba-ssm's are Triton's, causal-conv1d's are
of an extension. Here no kernel is launched, so their own Python code runs on fake tensors as it does on a GPU. What depends
on the card is its shared memory: an A100's and more is taken (heads of up to 128 in one piece); and, of mamba-ssm, the
number of its multiprocessors: an A100's.
(They are installed without their extensions; deterministic algorithms, which have more allocated, are off.)
"""
import contextlib
import importlib.util
import sys
import types


def nothing(*args, **kwargs):
    return None


def launch_nothing(triton):
    """Triton's kernels write what they are handed: none is launched."""
    for runner in (triton.runtime.jit.JITFunction, triton.runtime.autotuner.Autotuner, triton.runtime.autotuner.Heuristics):
        runner.run = nothing


def without_kernels():
    """To be called before transformers is imported, which takes the packages if they are there."""
    if not all(importlib.util.find_spec(name) for name in ("fla", "causal_conv1d")):
        return
    import triton
    extension = types.ModuleType("causal_conv1d_cuda")
    for name in ("causal_conv1d_fwd", "causal_conv1d_bwd", "causal_conv1d_update"):
        setattr(extension, name, nothing)
    sys.modules["causal_conv1d_cuda"] = extension
    launch_nothing(triton)
    import causal_conv1d.cpp_functions as functions
    import fla.ops.common.chunk_o
    import fla.ops.gated_delta_rule.wy_fast
    for name in ("_causal_conv1d_fwd_cpp", "_causal_conv1d_bwd_cpp"):
        setattr(functions, name, nothing)
    for module in (fla.ops.common.chunk_o, fla.ops.gated_delta_rule.wy_fast):
        module.check_shared_mem = lambda *args, **kwargs: True
    if importlib.util.find_spec("mamba_ssm"):
        without_kernels_of_mamba(triton)


MULTIPROCESSORS = 108


def without_kernels_of_mamba(triton):
    """What the best of several blocks leaves unused of a buffer is summed without: any block will do."""
    sys.modules["selective_scan_cuda"] = types.ModuleType("selective_scan_cuda")
    triton.runtime.autotuner.Autotuner.best_config = triton.Config({"BLOCK_SIZE": 64, "BLOCK_SIZE_M": 64})
    import torch
    torch.cuda.device = lambda index: contextlib.nullcontext()
    torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(multi_processor_count=MULTIPROCESSORS)
