"""FSDP2 of torch 2.5 to 2.14 under the names that 2.14 has for it.

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
import torch.utils.checkpoint

VERSION = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])


if VERSION < (2, 6):        # a prototype in a package of its own
    _package = importlib.import_module("torch.distributed._composable.fsdp")
    _alias = types.ModuleType("torch.distributed.fsdp._fully_shard")
    for _name, _file in (("_fsdp_init", "_fsdp_init"), ("_fsdp_param_group", "_fsdp_param_group"),
                         ("_fully_shard", "fully_shard")):
        setattr(_alias, _name, sys.modules[f"{_package.__name__}.{_file}"])
    sys.modules[_alias.__name__] = _alias
    _context = _alias._fsdp_param_group.FSDPCommContext
    _init_streams = _context.lazy_init

    def lazy_init(self, *args):
        with unittest.mock.patch("torch.cuda.is_available", lambda: True):
            _init_streams(self, *args)

    _context.lazy_init = lazy_init
    for _name in ("CPUOffloadPolicy", "MixedPrecisionPolicy", "fully_shard"):
        setattr(torch.distributed.fsdp, _name, getattr(_package, _name))


# "default" of a strategy: None, as fully_shard has it by itself from 2.8 on.
RESHARD_DEFAULT = None if VERSION >= (2, 8) else True

# F.rms_norm of a GPU is one kernel from 2.9 on; before, it is ATen's composite, on every device.
RMS_NORM_IS_FUSED = VERSION >= (2, 9)


def births(name, out, phase):
    """An op's name and results, in the order of their births, as 2.14 has them: up to 2.8 FSDP2's copy-in has the
    at::empty of the gather's output inside, up to 2.7 the output of a reduction is its input's new_empty; and on fake
    tensors 2.9 to 2.11 compose the optimizer's calls in place of others, which no GPU makes."""
    if (2, 9) <= VERSION < (2, 12) and phase == "opt" and name == "empty_strided":
        return name, ()
    if name == "fsdp.all_gather_copy_in":
        return "empty.memory_format", out[::-1]
    return "empty.memory_format" if name == "new_empty" and VERSION < (2, 8) else name, out


def early_stop(enabled):
    """Keywords for torch.utils.checkpoint.checkpoint."""
    if VERSION >= (2, 11):
        return {"early_stop": enabled}
    torch.utils.checkpoint._enable_checkpoint_early_stop = enabled
    return {}


if importlib.util.find_spec("torch.distributed._meta_registrations") is None:
    for _name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"):
        setattr(dist, _name, lambda *args, **kwargs: None)

if not hasattr(torch.cpu.Stream, "record_event"):
    torch.cpu.Stream.record_event = lambda self, event=None: event or torch.cpu.Event()
    torch.cpu.Stream.wait_event = lambda self, event: None

if VERSION < (2, 7):        # streams are torch.cuda's, whatever the device is
    for _name in ("Stream", "Event", "stream", "current_stream"):
        setattr(torch.cuda, _name, getattr(torch.cpu, _name))
