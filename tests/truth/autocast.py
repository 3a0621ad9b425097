"""Autocast with CUDA's lists of operators, on CPU tensors.

Autocast of CPU tensors knows other operators than CUDA's does (it leaves pow, softmax and layer_norm
alone, and casts for cat).  CUDA's lists are read from torch's own header and put in place of the
CPU's; the operators of lower precision that the CPU also has keep their C++ kernels, which alone know
the cache of weights.
"""
import contextlib
import os
import re

import torch
from torch.utils._pytree import tree_flatten

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
    """Last argument first, as gcc evaluates the arguments of the C++ kernels."""
    if isinstance(x, (list, tuple)):
        return type(x)([cast_all(y, dtype) for y in reversed(x)][::-1])
    return x.to(dtype) if floating(x) else x


def cast_call(op, args, kwargs, dtype):
    kwargs = {k: cast_all(kwargs[k], dtype) for k in reversed(kwargs)}
    return op(*cast_all(args, dtype), **kwargs)


def in_float32(op, args, kwargs):
    return cast_call(op, args, kwargs, torch.float32)


def into_float32(op, args, kwargs):
    if floating(args[0]) and kwargs.get("dtype") is None and len(args) < len(op._schema.arguments):
        kwargs = {**kwargs, "dtype": torch.float32}
    return op(*args, **kwargs)


def in_lower_precision(op, args, kwargs):
    return cast_call(op, args, kwargs, torch.get_autocast_dtype("cpu"))


def in_widest(op, args, kwargs):
    tensors = [x for x in tree_flatten((args, kwargs))[0] if floating(x)]
    wide = any(t.dtype == torch.float32 for t in tensors)
    return cast_call(op, args, kwargs, torch.float32) if wide else op(*args, **kwargs)


def kernel(op, policy):
    def call(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(CPU)):
            return policy(op, args, kwargs)
    return call


def install():
    """The CPU's operators that CUDA does not cast are let through, CUDA's others get their policy.

    Those of lower precision that the CPU has too keep their kernels (none of the rest is called on
    a parameter by the models here, so none needs the cache).
    """
    library = torch.library.Library("aten", "IMPL", "AutocastCPU")
    cpu, cuda = (set(torch._C._dispatch_get_registrations_for_dispatch_key(k))
                 for k in ("AutocastCPU", "AutocastCUDA"))
    for name in cpu - cuda:
        library.impl(name.removeprefix("aten::"), torch.library.fallthrough_kernel, allow_override=True)
    for name, policy in (("AT_FORALL_FP32", in_float32), ("AT_FORALL_FP32_SET_OPT_DTYPE", into_float32),
                         ("AT_FORALL_PROMOTE", in_widest), ("AT_FORALL_LOWER_PRECISION_FP", in_lower_precision)):
        for op in listed(name):
            registered = op.name().removesuffix(".default")
            if registered in cuda and (policy is not in_lower_precision or registered not in cpu):
                library.impl(op, kernel(op, policy), allow_override=True)
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
