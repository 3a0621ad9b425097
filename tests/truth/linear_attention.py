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


SCAN_CHUNK = 2048       # tokens: selective_scan.cpp, n_chunks


def selective_scan():
    """Mamba-1's extension: what selective_scan.cpp (mamba-ssm 2.3.2) allocates around its kernels, of Jamba's arguments."""
    import torch
    extension = types.ModuleType("selective_scan_cuda")

    def fwd(u, delta, a, b, c, d, z, delta_bias, softplus):
        assert u.dtype == delta.dtype == b.dtype == c.dtype == z.dtype and a.dtype == torch.float32     # TORCH_CHECK there, too
        out_z = torch.empty_like(z)
        out = torch.empty_like(delta)
        chunks = (u.shape[2] + SCAN_CHUNK - 1) // SCAN_CHUNK
        x = torch.empty((u.shape[0], u.shape[1], chunks, 2 * a.shape[1]), dtype=a.dtype, device=u.device)
        return out, x, out_z

    def bwd(u, delta, a, b, c, d, z, delta_bias, dout, x, out, dz, softplus, recompute):
        assert dz is None and not recompute
        dz = torch.empty_like(z)
        du, ddelta = torch.empty_like(u), torch.empty_like(delta)
        da = torch.zeros_like(a)
        db, dc = torch.zeros_like(b, dtype=torch.float32), torch.zeros_like(c, dtype=torch.float32)
        dd, dbias = torch.zeros_like(d), torch.zeros_like(delta_bias)
        return du, ddelta, da, db.to(b.dtype), dc.to(c.dtype), dd, dbias, dz

    extension.fwd, extension.bwd = fwd, bwd
    return extension


MULTIPROCESSORS = 108


def without_kernels_of_mamba(triton):
    """What the best of several blocks leaves unused of a buffer is summed without: any block will do."""
    sys.modules["selective_scan_cuda"] = selective_scan()
    triton.runtime.autotuner.Autotuner.best_config = triton.Config({"BLOCK_SIZE": 64, "BLOCK_SIZE_M": 64})
    import torch
    torch.cuda.device = lambda index: contextlib.nullcontext()
    torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(multi_processor_count=MULTIPROCESSORS)
