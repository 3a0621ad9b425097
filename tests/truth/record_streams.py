#!/usr/bin/env python3
"""Record which streams and events a sharding system uses.

FSDP2 and FSDP1 ask a device handle for streams and events; on a CPU they are given one of our own that
writes down what is asked of it, while record.py's or record_systems.py's step runs.  DDP asks for
none: its collectives are told apart, and what NCCL's process group and the reducer do around them
(below) is written in their place.

Usage
    record_streams.py --config CONFIGS.jsonl --out OUT.jsonl [--only NAME ...]
    record_streams.py --check TRUTH.jsonl [TRUTH.jsonl ...]
Configurations are those of record.py and, with strategy.system ddp or fsdp1, of record_systems.py.

A row has name, model, strategy and `streams`, in host order:
    ["record", stream, event]   ["wait", stream, event]   ["op", stream, what]
    ["sync", "host", event]     the host blocks until the event has passed
    ["record_stream", stream, bytes, dtype, pool]       (fsdp1) the storage, allocated on stream `pool`, may
                            not be reused before the stream
Ops: collectives, the copies in and out of them, host and device copies of offloading, products of
matrices as a mark of compute, and (fsdp1) everything else that is not on the compute stream.
Streams: compute, copy_in, all_gather, reduce_scatter, all_reduce (fsdp2); compute, unshard, post_backward,
pre_unshard, all_reduce (fsdp1); compute, nccl, future (ddp).  Numbers of events count from construction on.

DDP, as NCCL's process group and the reducer do it: a collective records an event on the compute
stream, waits for it on NCCL's, runs there and records its end.  finalize_backward waits for that end on
the compute stream, bucket by bucket, each before the bucket is copied back; a broadcast of buffers
is waited for before its copies back.  What a compressing hook does when its all-reduce is done runs on
a stream of the future's (`future`), which the compute stream then waits for instead.
"""
import argparse
import contextlib
import json
import sys
import traceback
from unittest import mock

import older_torch      # first: names of others are put in their places

import torch
from torch.distributed.fsdp import _common_utils, _flat_param, _runtime_utils
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives
from torch.distributed.fsdp._fully_shard import _fsdp_init, _fsdp_param_group, _fsdp_state

import record
import record_systems
import recorder
import unfilled

MATRIX = ("aten.mm", "aten.addmm", "aten.bmm")


class Tape:
    """What was asked of the handle while the step is recorded."""

    current = None

    def __init__(self, names):
        self.names = list(names)        # of the streams, in the order in which they are made
        self.made = 0
        self.events = 0
        self.lines = []
        self.stream = Stream("compute")

    def put(self, *line):
        if recorder.Log.current and recorder.Log.current.recording:
            self.lines.append(list(line))


class Stream:
    def __init__(self, name):
        self.name = name

    def wait_event(self, event):
        if event is not None:
            Tape.current.put("wait", self.name, event.number)

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait(self, *args):
        pass

    def synchronize(self):
        Tape.current.put("sync", "host", self.record_event().number)


class Event:
    def __init__(self, *args, **kwargs):
        self.number = None

    def record(self, stream=None):
        tape = Tape.current
        tape.events += 1
        self.number = tape.events
        tape.put("record", (stream or tape.stream).name, self.number)

    def wait(self, stream=None):
        (stream or Tape.current.stream).wait_event(self)

    def synchronize(self):
        Tape.current.put("sync", "host", self.number)

    def query(self):
        return True


class Handle:
    Event = Event

    @staticmethod
    def Stream(*args, **kwargs):
        tape = Tape.current
        tape.made += 1
        return Stream(tape.names[tape.made - 1] if tape.made <= len(tape.names) else f"s{tape.made - 1}")

    @staticmethod
    def current_stream(*args):
        return Tape.current.stream

    @staticmethod
    @contextlib.contextmanager
    def stream(stream):
        tape = Tape.current
        old, tape.stream = tape.stream, stream
        try:
            yield
        finally:
            tape.stream = old

    @staticmethod
    def current_device():
        return 0

    def __getattr__(self, name):
        return getattr(torch.cpu, name)


class Handle1(Handle):
    @staticmethod
    def current_device():
        return "cpu"        # FSDP1 makes a device of it


HANDLE, HANDLE1 = Handle(), Handle1()


def told(function, name):
    def call(*args, **kwargs):
        if Tape.current:
            Tape.current.put("op", Tape.current.stream.name, name)
        return function(*args, **kwargs)
    return call


class Taped:
    """A recorder.System whose steps are taped; the last one stays."""

    def settle(self, log, model, optimizer):
        Tape.current.lines.clear()
        super().settle(log, model, optimizer)


# --------------------------------------------------------------------------------------------
# FSDP2
# --------------------------------------------------------------------------------------------

def to_told(function):
    """Offloading's copies: on a CPU `to` does nothing."""
    def call(tensor, *args, **kwargs):
        if Tape.current and "non_blocking" in kwargs:
            stream = Tape.current.stream
            inward = not any("foreach_reduce" in place for place in recorder.Log.current.place)
            Tape.current.put("op", stream.name, "host_to_device" if inward else "device_to_host")
            if not inward and not kwargs["non_blocking"]:
                stream.synchronize()
        return function(tensor, *args, **kwargs)
    return call


def asks_cuda():
    """Up to 2.5 FSDP2 asks torch.cuda for streams, whatever the device is."""
    names = ("Stream", "Event", "stream", "current_stream")
    return mock.patch.multiple(torch.cuda, **{name: getattr(HANDLE, name) for name in names})


@contextlib.contextmanager
def fsdp2_handle():
    modules = [m for m in (collectives, _fsdp_param_group, _fsdp_state, _fsdp_init) if hasattr(m, "_get_device_handle")]
    asked = asks_cuda() if len(modules) < 3 else contextlib.nullcontext()
    accelerator = getattr(torch, "accelerator", torch.cuda)
    saved = [m._get_device_handle for m in modules]
    saved_to, saved_pin, saved_copy = torch.Tensor.to, torch.Tensor.pin_memory, record.to
    saved_stream = accelerator.current_stream
    names = [n for n in ("all_gather_into_tensor", "all_gather_single", "reduce_scatter_tensor",
                         "reduce_scatter_single", "all_reduce") if hasattr(collectives.dist, n)]
    functions = {n: getattr(collectives.dist, n) for n in names}
    for m in modules:
        m._get_device_handle = lambda kind: HANDLE
    for n in names:
        setattr(collectives.dist, n, told(functions[n], n))
    torch.Tensor.to = to_told(saved_to)
    record.to = to_told(saved_copy)     # what record.py has in its place while parameters cross devices
    torch.Tensor.pin_memory = lambda tensor, *args: tensor
    accelerator.current_stream = Handle.current_stream
    try:
        with asked:
            yield
    finally:
        for m, function in zip(modules, saved):
            m._get_device_handle = function
        for n in names:
            setattr(collectives.dist, n, functions[n])
        torch.Tensor.to, torch.Tensor.pin_memory, record.to = saved_to, saved_pin, saved_copy
        accelerator.current_stream = saved_stream


class Told2(recorder.Births):
    OPS = ("fsdp.all_gather_copy_in", "fsdp.split_with_sizes_copy", "fsdp.chunk_cat", "aten.split_with_sizes_copy",
           "aten._chunk_cat", "aten._foreach_copy_", "aten.mm", "_c10d_functional.all_reduce")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = older_torch.of_fsdp(str(func).rsplit(".", 1)[0])
        if name in self.OPS:
            Tape.current.put("op", Tape.current.stream.name, name)
        return super().__torch_dispatch__(func, types, args, kwargs)


class Fsdp2(Taped, record.Fsdp2):
    streams = ("copy_in", "all_gather", "reduce_scatter", "all_reduce")
    births = Told2
    handle = staticmethod(fsdp2_handle)


# --------------------------------------------------------------------------------------------
# FSDP1
# --------------------------------------------------------------------------------------------

class Pools(recorder.Log):
    """On which stream each storage got its memory."""

    def __init__(self, *args):
        super().__init__(*args)
        self.pools = {}

    def note(self, storage):
        self.pools[id(storage)] = Tape.current.stream.name

    def birth(self, tensor, label):
        before = self.births
        super().birth(tensor, label)
        if self.births > before:
            self.note(tensor.untyped_storage())

    def resized(self, st, new):
        super().resized(st, new)
        if new:
            self.note(st)


@contextlib.contextmanager
def fsdp1_handle():
    def record_stream(tensor, stream):
        storage = tensor.untyped_storage()
        Tape.current.put("record_stream", stream.name, storage.nbytes(), str(tensor.dtype).removeprefix("torch."),
                         recorder.Log.current.pools[id(storage)])
    modules = (_runtime_utils, _flat_param)
    saved = [m._no_dispatch_record_stream for m in modules]
    from_device = _common_utils._FSDPDeviceHandle.from_device
    _common_utils._FSDPDeviceHandle.from_device = classmethod(lambda cls, device: HANDLE1)
    for m in modules:
        m._no_dispatch_record_stream = record_stream
    try:
        yield
    finally:
        _common_utils._FSDPDeviceHandle.from_device = from_device
        for m, function in zip(modules, saved):
            m._no_dispatch_record_stream = function


class Told1(unfilled.Unfilled):
    def call(self, func, args, kwargs):
        stream = Tape.current.stream.name
        name = str(func).rsplit(".", 1)[0]
        if func.namespace == "c10d":
            Tape.current.put("op", stream, unfilled.op_name(func))
        elif name in MATRIX or name == "aten.cat" or \
                (stream != "compute" and not func.is_view and name not in ("aten.empty_like", "aten.detach")):
            Tape.current.put("op", stream, name)
        return super().call(func, args, kwargs)


class Fsdp1(Taped, record_systems.Fsdp1):
    streams = ("unshard", "post_backward", "pre_unshard", "all_reduce")
    log = Pools
    handle = staticmethod(fsdp1_handle)

    def tensors(self):
        return Told1()


# --------------------------------------------------------------------------------------------
# DDP
# --------------------------------------------------------------------------------------------

class ToldDdp(unfilled.Unfilled):
    """Waits are put where the library's C++ has them: before the first copy out of a collective's tensor."""

    def __init__(self):
        super().__init__()
        self.pending = []       # [storage, event] of collectives that nobody has waited for
        self.done = []          # storages of those that somebody has
        self.nccl, self.future = Stream("nccl"), Stream("future")

    def wait(self, stream, storage=None):
        """Until the collective on that storage is done; without one, all of them, in order."""
        for entry in [e for e in self.pending if storage is None or e[0] is storage]:
            self.pending.remove(entry)
            self.done.append(entry[0])
            stream.wait_event(entry[1])

    def copy(self, target, source):
        """A copy out of a collective's tensor, or one into the next one's."""
        tape = Tape.current
        storage = source.untyped_storage()
        if target.untyped_storage() is storage:     # a compressing hook where nothing is to be compressed
            return
        if not any(s is storage for s in self.done + [s for s, _ in self.pending]):
            tape.put("op", "compute", "copy_in")
        elif target.dtype != source.dtype:      # a compressing hook's callback
            self.wait(self.future, storage)
            tape.put("op", "future", "copy_out")
            self.pending.append([target.untyped_storage(), self.future.record_event()])
        else:
            self.wait(tape.stream, storage)
            tape.put("op", "compute", "copy_out")

    def call(self, func, args, kwargs):
        tape = Tape.current
        name = str(func).rsplit(".", 1)[0]
        place = recorder.Log.current.place
        if func is torch.ops.aten.mul.out or name == "aten.cat" and place[-1] == "ddp_pre_forward":
            tape.put("op", "compute", "copy_in")
        elif name == "aten.copy_" and place[0] != "opt" and recorder.Log.current.recording:
            self.copy(*args[:2])
        elif name in MATRIX:
            tape.put("op", tape.stream.name, name)
        out = super().call(func, args, kwargs)
        if func.namespace == "c10d" and recorder.Log.current.recording:
            self.nccl.wait_stream(tape.stream)
            tape.put("op", "nccl", unfilled.op_name(func))
            self.pending.append([args[0][0].untyped_storage(), self.nccl.record_event()])
        return out


class Ddp(Taped, record_systems.Ddp):
    streams = ()
    handle = staticmethod(contextlib.nullcontext)

    def tensors(self):
        self.mode = ToldDdp()
        return self.mode

    def after(self, phase):
        self.mode.wait(Tape.current.stream)
        self.mode.done.clear()


# --------------------------------------------------------------------------------------------
# The program
# --------------------------------------------------------------------------------------------

KINDS = {"fsdp2": Fsdp2, "fsdp1": Fsdp1, "ddp": Ddp}


def streams_of(config):
    kind = KINDS[config["strategy"].get("system", "fsdp2")]
    Tape.current = Tape(kind.streams)
    try:
        with kind.handle():
            recorder.record(config, kind)
        return Tape.current.lines
    finally:
        Tape.current = None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("--out")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--check", nargs="*")
    args = parser.parse_args()
    wrong = 0
    with open(args.out, "w") if args.out else contextlib.nullcontext() as out:
        for path in args.check or [args.config]:
            for line in open(path):
                config = json.loads(line)
                if args.only and config["name"] not in args.only:
                    continue
                try:
                    lines = streams_of(config)
                except Exception:
                    wrong += 1
                    print("FAIL", config["name"], traceback.format_exc(), file=sys.stderr, flush=True)
                    continue
                if out:
                    row = {k: config[k] for k in ("name", "model", "strategy")}
                    out.write(json.dumps({**row, "streams": lines, "torch": torch.__version__}) + "\n")
                    print(config["name"], len(lines), flush=True)
                else:
                    same = lines == config["streams"]
                    wrong += not same
                    print("same" if same else "DIFF", config["name"], flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
