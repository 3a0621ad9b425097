"""Autocast with CUDA's lists of operators, on CPU tensors.

Autocast of CPU tensors knows other operators than CUDA's does (it leaves pow, softmax and layer_norm
alone).  CUDA's lists are read from torch's own header and put in place of the CPU's; the operators
of lower precision that the CPU also has keep their C++ kernels, which alone know the cache of weights.
"""
import contextlib
import os
import re

import torch

import recorder

CPU = torch._C.DispatchKey.AutocastCPU
HEADER = os.path.join(os.path.dirname(torch.__file__), "include", "ATen", "autocast_mode.h")


def listed(name):
    """The overloads of one of the header's lists."""
    body = re.search(rf"#define {name}\(_\)((?:.*\\\n)*.*\n)", open(HEADER).read()).group(1)
    for op, overload in re.findall(r"_\((\w+)(?:, (\w+))?\)", body):
        packet = getattr(torch.ops.aten, op, None)
        overload = overload or "default"
        if packet is not None and overload in packet.overloads():
            yield getattr(packet, overload)


def floating(x):
    return isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64


def cast_all(x, dtype):
    if isinstance(x, (list, tuple)):
        return type(x)(cast_all(y, dtype) for y in x)
    return x.to(dtype) if floating(x) else x


def in_float32(op, args, kwargs):
    return op(*cast_all(args, torch.float32), **cast_all(kwargs, torch.float32))


def into_float32(op, args, kwargs):
    if floating(args[0]) and kwargs.get("dtype") is None and len(args) < len(op._schema.arguments):
        kwargs = {**kwargs, "dtype": torch.float32}
    return op(*args, **kwargs)


def in_lower_precision(op, args, kwargs):
    dtype = torch.get_autocast_dtype("cpu")
    return op(*cast_all(args, dtype), **cast_all(kwargs, dtype))


def kernel(op, policy):
    def call(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(CPU)):
            return policy(op, args, kwargs)
    return call


def of_the_cpu_alone():
    """Operators that autocast of CPU tensors treats and CUDA's leaves alone (cat, cross_entropy_loss, ...)."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::") and has(name, "AutocastCPU") and not has(name, "AutocastCUDA"):
            yield name


def install():
    library = torch.library.Library("aten", "IMPL", "AutocastCPU")
    for name in of_the_cpu_alone():
        library.impl(name, torch.library.fallthrough_kernel, allow_override=True)
    for name, policy in (("AT_FORALL_FP32", in_float32), ("AT_FORALL_FP32_SET_OPT_DTYPE", into_float32)):
        for op in listed(name):
            library.impl(op, kernel(op, policy), allow_override=True)
    flash = torch.ops.aten._scaled_dot_product_flash_attention.default
    library.impl(flash, kernel(flash, in_lower_precision))
    return library


LIBRARY = []
_clear = torch.clear_autocast_cache


def clear_autocast_cache():
    """The cache is a hash table of pointers."""
    log = recorder.Log.current
    with log.ordered_deaths() if log else contextlib.nullcontext():
        _clear()


torch.clear_autocast_cache = clear_autocast_cache


@contextlib.contextmanager
def cuda_autocast(dtype):
    if not LIBRARY:
        LIBRARY.append(install())
    with torch.autocast("cpu", dtype):
        yield
