#!/usr/bin/env python3
"""Record which streams and events DeepSpeed's ZeRO-1, 2 and 3 use.

As record_streams.py, for DeepSpeed: its accelerator's streams and events are record_streams.py's, on the two
devices of record_zero_offload.py.  No event is ever seen to have passed (`query`), so that the host blocks
wherever it may have to.

Usage: as record_streams.py; configurations are record_zero.py's.

Streams: compute, all_gather and reduce_scatter (stage 3), reduction (stages 1 and 2), nccl.  A collective that
is not waited for at once runs on NCCL's own stream, as ProcessGroupNCCL of torch 2.14 has it: that waits
for the current one, and whoever waits for the work waits for it; others run on the current stream.
"""
import sys

import record_zero_offload              # first: it sets DeepSpeed's environment
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.comm.torch import TorchBackend

import record_streams
import recorder
from record_streams import Stream, Tape

NAMES = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter",
         "all_reduce": "all_reduce"}
NUMBER = 8      # bytes: copies of single numbers are not told, only waited for
PRODUCTS = ("aten.mm", "aten.addmm")


class Event(record_streams.Event):
    def query(self):
        return False


class Handle(record_streams.Handle):
    Event = Event

    @staticmethod
    def Stream(*args, **kwargs):
        stream = record_streams.Handle.Stream()
        Tape.current.streams.append(stream)
        return stream


def like_cuda(accelerator):
    kind = type(accelerator)
    kind.Stream = property(lambda self: Handle.Stream)
    kind.Event = property(lambda self: Event)
    kind.stream = lambda self, stream: Handle.stream(stream)
    kind.current_stream = lambda self, *args: Tape.current.stream
    kind.default_stream = lambda self, *args: Tape.current.compute
    kind.synchronize = lambda self, *args: [s.synchronize() for s in Tape.current.streams]


class Work:
    def __init__(self, event):
        self.event = event

    def wait(self, *args):
        Tape.current.stream.wait_event(self.event)

    def is_completed(self):
        return True


def told(function, name):
    def call(*args, async_op=False, **kwargs):
        tape = Tape.current
        if not async_op:
            tape.put("op", tape.stream.name, name)
            return function(*args, async_op=False, **kwargs)
        function(*args, async_op=True, **kwargs)
        tape.nccl.wait_stream(tape.stream)
        tape.put("op", "nccl", name)
        work = Work(tape.nccl.record_event())
        tape.works.append(work)
        return work
    return call


def together(backend, outputs, inputs, group=None, async_op=False):
    """all_gather_coalesced: one launch of several, whose handle is waited for."""
    for output, tensor in zip(outputs, inputs):
        torch.distributed.all_gather_into_tensor(output, tensor, group=group, async_op=True)
    return Tape.current.works[-1]


class Told(record_zero_offload.TwoPlaces):
    def call(self, func, args, kwargs):
        tape = Tape.current
        name = str(func).rsplit(".", 1)[0]
        if name in PRODUCTS:
            tape.put("op", tape.stream.name, name)
        elif name == "aten.cat":
            place = recorder.Log.current.place[-1].split("[")[0]
            if place in ("ds_fetch", "ds_reduce"):
                inward = place == "ds_reduce" or "out" in kwargs
                self.copied(["op", tape.stream.name, "copy_in" if inward else "copy_out"])
        elif name == "aten._local_scalar_dense" and args[0].is_meta:
            tape.stream.synchronize()
        return super().call(func, args, kwargs)

    @staticmethod
    def copied(line):
        """What one gather brought is copied apart one by one, and told once."""
        if line[2] != "copy_out" or Tape.current.lines[-1:] != [line]:
            Tape.current.put(*line)

    @staticmethod
    def told(func, args, kwargs, tensors):
        log, tape = recorder.Log.current, Tape.current
        before = len(log.copies)
        record_zero_offload.TwoPlaces.told(func, args, kwargs, tensors)
        if len(log.copies) > before:
            if log.copies[-1][1] > NUMBER:
                tape.put("op", tape.stream.name, log.copies[-1][0])
            if not (kwargs.get("non_blocking") or func is torch.ops.aten.copy_.default and args[2:] == (True,)):
                tape.stream.synchronize()


class Zero(record_zero_offload.ZeroOffload):
    def tensors(self):
        return Told()

    def settle(self, log, model, optimizer):
        Tape.current.lines.clear()
        super().settle(log, model, optimizer)


def streams_of(config):
    stage = config["strategy"]["stage"]
    tape = Tape.current = Tape(("all_gather", "reduce_scatter") if stage == 3 else ("reduction",))
    tape.compute, tape.nccl, tape.works = tape.stream, Stream("nccl"), []
    tape.streams = [tape.compute, tape.nccl]
    try:
        recorder.record(config, Zero)
        return tape.lines
    finally:
        Tape.current = None


def prepare():
    record_zero_offload.prepare()
    like_cuda(get_accelerator())
    for name, what in NAMES.items():
        setattr(torch.distributed, name, told(getattr(torch.distributed, name), what))
    TorchBackend.all_gather_coalesced = together
    torch.Tensor.record_stream = lambda tensor, stream: None       # what it delays is not told


if __name__ == "__main__":
    prepare()
    record_streams.streams_of = streams_of
    sys.exit(record_streams.main())
