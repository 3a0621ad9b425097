"""FSDP2 of torch 2.4 to 2.15 under the names that 2.14 has for it.

What FSDP2 does is left alone: only what None stands for, and that collectives on fake tensors and streams of a CPU
do nothing, as they do by themselves in 2.14.
"""
import importlib
import importlib.util
import sys
import types
import unittest.mock

import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor
import torch.utils.checkpoint
from torch._subclasses.fake_tensor import FakeTensor

VERSION = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])


if VERSION < (2, 6):        # a prototype in a package of its own
    _package = importlib.import_module("torch.distributed._composable.fsdp")
    _alias = types.ModuleType("torch.distributed.fsdp._fully_shard")
    for _name in ("_fsdp_collectives", "_fsdp_init", "_fsdp_param_group", "_fsdp_state", "_fully_shard"):
        _file = _name.replace("_fully", "fully")
        setattr(_alias, _name, sys.modules[f"{_package.__name__}.{_file}"])
    sys.modules[_alias.__name__] = _alias
    _context = _alias._fsdp_param_group.FSDPCommContext
    _init = "lazy_init" if hasattr(_context, "lazy_init") else "init"
    _init_streams = getattr(_context, _init)

    def lazy_init(self, *args):
        with unittest.mock.patch("torch.cuda.is_available", lambda: True):
            _init_streams(self, *args)

    setattr(_context, _init, lazy_init)
    _tensor = importlib.import_module("torch.distributed._tensor")      # public from 2.5 on
    for _name in ("DTensor", "Shard"):
        setattr(importlib.import_module("torch.distributed.tensor"), _name, getattr(_tensor, _name))
    for _name in ("CPUOffloadPolicy", "MixedPrecisionPolicy", "fully_shard"):
        setattr(torch.distributed.fsdp, _name, getattr(_package, _name))


# "default" of a strategy: None, as fully_shard has it by itself from 2.8 on.
RESHARD_DEFAULT = None if VERSION >= (2, 8) else True

# F.rms_norm of a GPU is one kernel from 2.9 on; before, it is ATen's composite, on every device.
RMS_NORM_IS_FUSED = VERSION >= (2, 9)


# Tensors whose own __torch_dispatch__ calls what a mode should see; up to 2.5 those of collectives, which wait there.
WRAPPERS = (torch.distributed.tensor.DTensor,)
if VERSION < (2, 6):
    _collectives = importlib.import_module("torch.distributed._functional_collectives")
    WRAPPERS += (_collectives.AsyncCollectiveTensor,)

    def trigger_wait(self):
        """What was waited for takes the place of what was not: on a GPU they are one tensor."""
        if not self.completed:
            self.elem = _collectives.wait_tensor(self.elem)
            self.completed = True
        return self.elem

    _collectives.AsyncCollectiveTensor.trigger_wait = trigger_wait


# Optimizers that fake tensors compose of other calls, which no GPU makes: recordings under FSDP2 are of the fused one.
COMPOSES_OPTIMIZERS = (2, 9) <= VERSION < (2, 12)


# What models.py's kernels of RMSNorm call; fake tensors do not run them.
KERNELS = {"_fused_rms_norm": ("empty_like", "empty.memory_format"),
           "_fused_rms_norm_backward": ("empty_like", "empty_like")}


def births(name, out, phase):
    """An op's name and results, in the order of their births, as 2.14 has them: up to 2.8 FSDP2's copy-in has the
    at::empty of the gather's output inside, up to 2.7 the output of a reduction is its input's new_empty; and on fake
    tensors 2.9 to 2.11 compose the optimizer's calls in place of others, which no GPU makes."""
    if COMPOSES_OPTIMIZERS and phase == "opt" and name == "empty_strided":
        return name, ()
    if name == "fsdp.all_gather_copy_in":
        return "empty.memory_format", out[::-1]
    return "empty.memory_format" if name == "new_empty" and VERSION < (2, 8) else name, out


def results(name, args, out):
    """An op's results as 2.14 has them on the fake CPU, and no GPU: LayerNorm's statistics are of its dtype (up to 2.5
    in fp32)."""
    if name == "native_layer_norm" and VERSION < (2, 6):
        return out[0], *(t.to(args[0].dtype) for t in out[1:])
    return out


# What FSDP2 calls by operators of its own since 2.5, and one of them by another since 2.15.
OF_FSDP = {"aten._foreach_copy_": "fsdp.all_gather_copy_in", "aten.split_with_sizes_copy": "fsdp.split_with_sizes_copy",
           "aten._chunk_cat": "fsdp.chunk_cat"}


def of_fsdp(name):
    if name == "fsdp.chunk_cat_mixed_dtype":
        return "fsdp.chunk_cat"
    return OF_FSDP.get(name, name) if VERSION < (2, 5) else name


def early_stop(enabled):
    """Keywords for torch.utils.checkpoint.checkpoint."""
    if VERSION >= (2, 11):
        return {"early_stop": enabled}
    torch.utils.checkpoint._enable_checkpoint_early_stop = enabled
    return {}


def not_of_fakes(collective):
    def call(*args, **kwargs):
        if not any(isinstance(x, FakeTensor) for x in (*args, *kwargs.values())):
            return collective(*args, **kwargs)
    return call


if importlib.util.find_spec("torch.distributed._meta_registrations") is None:
    for _name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"):
        setattr(dist, _name, not_of_fakes(getattr(dist, _name)))

if not hasattr(torch.cpu.Stream, "record_event"):
    torch.cpu.Stream.record_event = lambda self, event=None: event or torch.cpu.Event()
    torch.cpu.Stream.wait_event = lambda self, event: None

if hasattr(torch, "accelerator"):   # 2.14 asks it for the stream; with CUDA and without a GPU that is an error
    torch.accelerator.current_stream = torch.cpu.current_stream

if VERSION < (2, 7):        # streams are torch.cuda's, whatever the device is
    for _name in ("Stream", "Event", "stream", "current_stream"):
        setattr(torch.cuda, _name, getattr(torch.cpu, _name))
