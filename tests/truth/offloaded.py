"""TRL's activation offloading without a GPU: its OffloadActivations (trl 1.16.0, `pip install --no-deps trl`) on tensors that are
all of one memory. What it copies to the host and back is copied; streams and events are there and do nothing; a storage's address
is its number.
"""
import contextlib
import unittest.mock as mock

import torch

from recorder import Log


def on_cpu():
    return mock.patch.object(torch.accelerator, "current_accelerator", lambda *args, **kwargs: torch.device("cpu"))


def address(storage):
    """Of what is alive, and none that was before."""
    entry = Log.current.alive.get(id(storage))
    return entry[3] << 40 if entry else 0


def copied(tensor, *args, **kwargs):
    return torch.ops.aten._to_copy(tensor)


for _name in ("wait_event", "wait_stream", "synchronize", "record_event"):
    setattr(torch.cpu.Stream, _name, lambda stream, *args: torch.cpu.Event())
torch.cpu.empty_cache = lambda: None
torch.Tensor.record_stream = lambda tensor, stream: None


def without_a_gpu(hook):
    def call(packed):
        with mock.patch.object(torch.Tensor, "to", copied), mock.patch.object(torch.UntypedStorage, "data_ptr", address):
            return hook(packed)
    return call


def context(model, how):
    """What a trainer makes of a model: the context of a micro-batch, forward and backward. how: true; "legacy", of one stream;
    "weights", which is not told which memory is the model's."""
    if not how:
        return contextlib.nullcontext()
    with on_cpu():
        from trl.models.activation_offloading import get_act_offloading_ctx_manager
        with mock.patch.object(torch.UntypedStorage, "data_ptr", address):
            manager = get_act_offloading_ctx_manager(model, use_pin_memory=False, use_streams=how != "legacy",
                                                     warn_if_no_head=False)
    if how == "weights":
        manager.param_storages = set()
    manager.pack_hook, manager.unpack_hook = without_a_gpu(manager.pack_hook), without_a_gpu(manager.unpack_hook)
    return manager
