#!/usr/bin/env python3
"""Record what comes before and between steps under FSDP2: initialisation and full state dicts.

The real `fully_shard`, `get_model_state_dict`, `set_model_state_dict` run on one rank of a world of
N with a fake process group, on fake tensors of the device "cuda:0" (no GPU is needed: they have
shapes and storages and no data), so that what is born on the device and what on the host are told
apart as a GPU run tells them. Every storage's birth and death is followed.

Usage
    record_start_up.py --out OUT.jsonl
    record_start_up.py --check OUT.jsonl

A row: name, model, strategy (record.py's), way:
    meta         the model on the meta device, fully_shard, to_empty
    cpu          the model on the CPU, fully_shard moves each call's parameters
    gpu          the model on the GPU, fully_shard
    broadcast    meta, to_empty, then set_model_state_dict(full_state_dict, broadcast_from_rank0) of
                 a state dict on the CPU of rank 0
    full         get_model_state_dict(full_state_dict, cpu_offload) behind a step of the optimizer
    full_optim   get_state_dict of model and optimizer likewise
and {device, host}: bytes at the `start`, highest (`peak`), at the `end`, and `gathered`: bytes of
every tensor that a collective brings whole onto the device, in order.

Parameters need no gradient while this is recorded: with one, PyTorch asks the CUDA driver for a stream.
"""
import argparse
import gc
import json
import sys
import weakref

import torch
import torch.distributed as dist
import torch.distributed._state_dict_utils as state_dict_utils
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_state_dict, set_model_state_dict)
from torch.distributed.fsdp._fully_shard import _fsdp_init as fsdp_init
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import models
import record

WAYS = ("meta", "cpu", "gpu", "broadcast", "full", "full_optim")
DEVICE = torch.device("cuda:0")
LLAMA = {"kind": "llama", "dim": 64, "layers": 3, "heads": 4, "kv_heads": 2, "ffn": 176, "vocab": 251,
         "batch": 2, "seq": 32}
GPT2 = {"kind": "gpt2", "dim": 60, "layers": 2, "heads": 4, "vocab": 130, "batch": 2, "seq": 24}
ROWS = {"kind": "llama", "dim": 48, "layers": 2, "heads": 3, "kv_heads": 1, "ffn": 176, "vocab": 252, "batch": 1, "seq": 16}
TIED = {**ROWS, "tied": True}
TIED_ODD = {**TIED, "vocab": 251}
ODD = {**LLAMA, "dim": 30, "heads": 3, "kv_heads": 3, "ffn": 37, "vocab": 101}
CASES = (
    ("llama-4", LLAMA, {"world": 4}),
    ("llama-4-rank-3", LLAMA, {"world": 4, "rank": 3}),
    ("llama-torchtitan", LLAMA, {"world": 8, "units": "torchtitan"}),
    ("llama-two-a-unit", LLAMA, {"world": 4, "blocks_per_unit": 2}),
    ("llama-bf16", LLAMA, {"world": 4, "store_dtype": "bf16"}),
    ("llama-hsdp", LLAMA, {"world": 8, "replicate": 2}),
    ("odd-7", ODD, {"world": 7}),
    ("odd-7-rank-6", ODD, {"world": 7, "rank": 6}),
    ("odd-8-rank-5", ODD, {"world": 8, "rank": 5}),
    ("gpt2-4", GPT2, {"world": 4}),
    ("gpt2-7-rank-2", GPT2, {"world": 7, "rank": 2}),
    ("llama-1", LLAMA, {"world": 1}),
    ("offload-llama-4", LLAMA, {"world": 4, "offload": "cpu"}),
    ("offload-llama-torchtitan-rank-3", LLAMA, {"world": 8, "rank": 3, "units": "torchtitan", "offload": "cpu"}),
    ("offload-llama-bf16", LLAMA, {"world": 4, "store_dtype": "bf16", "offload": "cpu"}),
    ("offload-llama-hsdp", LLAMA, {"world": 8, "replicate": 2, "offload": "cpu"}),
    ("offload-odd-7", ODD, {"world": 7, "offload": "cpu"}),
    ("offload-odd-7-rank-6", ODD, {"world": 7, "rank": 6, "offload": "cpu"}),
    ("offload-gpt2-7-rank-2", GPT2, {"world": 7, "rank": 2, "offload": "cpu"}),
    ("offload-llama-1", LLAMA, {"world": 1, "offload": "cpu"}),
    ("tied-4", TIED, {"world": 4}),
    ("tied-columns-4", TIED, {"world": 4, "shard_dim": 1}),
    ("columns-4", ROWS, {"world": 4, "shard_dim": 1}),
    ("tied-1", TIED, {"world": 1}),
    ("tied-hsdp", TIED, {"world": 2, "replicate": 2}),
    ("tied-torchtitan", TIED, {"world": 4, "units": "torchtitan"}),
    ("tied-odd-4", TIED_ODD, {"world": 4}),
    ("offload-tied-odd-4", TIED_ODD, {"world": 4, "offload": "cpu"}),
    ("tied-hsdp-columns", TIED, {"world": 2, "replicate": 2, "shard_dim": 1}),
)


# ---- a GPU that is not there ----

def pretend_cuda():
    """What PyTorch asks of CUDA before it makes a fake tensor's device of it."""
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_available = lambda: True
    torch.cuda.is_initialized = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.set_device = lambda device: None
    real_to = torch.Tensor.to

    def to(self, *args, **kwargs):
        """A device without an index is the current one, which the driver would be asked for."""
        if args and str(args[0]) == "cuda":
            args = (DEVICE,) + args[1:]
        return real_to(self, *args, **kwargs)
    torch.Tensor.to = to
    torch.Tensor.__getitem__ = sliced(torch.Tensor.__getitem__)
    torch.Tensor.pin_memory = pinned
    torch.Tensor.is_pinned = lambda self: self.untyped_storage()._cdata in PINNED
    torch.Tensor.copy_ = lambda self, *args, **kwargs: self     # allocates nothing, and guards a real device
    fsdp_init._move_states_to_device = move_states
    state_dict_utils.compute_local_shape_and_global_offset = record.real_tensors(
        state_dict_utils.compute_local_shape_and_global_offset)
    ShardingPropagator._propagate_tensor_meta_non_cached = quietly(
        ShardingPropagator._propagate_tensor_meta_non_cached)
    dist.broadcast = lambda tensor, **kwargs: Places.current.gathered.append(tensor.untyped_storage().nbytes())
    dist.broadcast_object_list = say_what_rank_0_has


def say_what_rank_0_has(objects, **kwargs):
    """What no rank 0 sends over the fake group: names and shapes of the state dict."""
    with _disable_current_modes(), torch.device("meta"):
        source = SOURCE[0]()
    objects[0] = {k: state_dict_utils._TensorInfo(v.size(), v.dtype) for k, v in source.state_dict().items()}


PINNED = set()     # storages: pin_memory's copies


def pinned(tensor):
    """Another tensor on the host, which nobody locks there."""
    copy = torch.empty_like(tensor)
    PINNED.add(copy.untyped_storage()._cdata)
    return copy


SOURCE = [None]    # makes the model whose state dict is loaded
def quietly(function):
    """DTensor asks for shapes on fake tensors of its own, which in a real run are no storages."""
    def call(*args, **kwargs):
        Places.current.quiet = True
        try:
            return function(*args, **kwargs)
        finally:
            Places.current.quiet = False
    return call


def sliced(index):
    """tensor[slices], which guards a real device, as the views that it is."""
    def call(tensor, slices):
        if not tensor.is_cuda:
            return index(tensor, slices)
        for dim, s in enumerate(slices):
            tensor = tensor.narrow(dim, s.start, s.stop - s.start)
        return tensor
    return call


ROOT = [None]      # the model that is being sharded


def move_states(params, buffers, device):
    """The original's `tensor.data = tensor.to(device)` leaves a fake tensor where it was: another one
    takes its place in the list and in the modules."""
    for tensors in (params, buffers):
        for i, tensor in enumerate(tensors):
            if tensor.is_meta or tensor.device == device:
                continue
            moved = tensor.to(device)
            if isinstance(tensor, torch.nn.Parameter):
                moved = torch.nn.Parameter(moved, False)
            for module in ROOT[0].modules():
                for own in (module._parameters, module._buffers):
                    for name in [n for n, t in own.items() if t is tensor]:
                        own[name] = moved
            tensors[i] = moved
            Places.current.drop(tensor)
            del tensor, moved


# ---- storages by weak reference, by place ----

class Places(TorchDispatchMode):
    """Live and highest bytes of the device and of the host."""

    current = None

    def __init__(self):
        super().__init__()
        Places.current = self
        self.live = {"device": 0, "host": 0}
        self.peak = dict(self.live)
        self.refs = {}
        self.gathered = []
        self.quiet = False

    def change(self, place, delta):
        self.live[place] += delta
        self.peak[place] = max(self.peak[place], self.live[place])

    def drop(self, tensor):
        """As if its storage died here: others hold the tensor, and in PyTorch not this storage."""
        if self.refs.pop(id(tensor.untyped_storage()), None):
            self.change("device" if tensor.is_cuda else "host", -tensor.untyped_storage().nbytes())

    def birth(self, tensor):
        if self.quiet or tensor.is_meta or isinstance(tensor, DTensor):
            return
        if not (tensor.is_cuda or tensor.is_floating_point() or tensor.is_complex()):
            return      # ranks of a mesh
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self.refs and self.refs[key]() is storage:
            return
        place, size = "device" if tensor.is_cuda else "host", storage.nbytes()

        def death(_):
            if self.refs.pop(key, None):
                self.change(place, -size)
        self.refs[key] = weakref.ref(storage, death)
        self.change(place, size)

    def begin(self):
        gc.collect()
        self.gathered = []
        self.peak = dict(self.live)
        return dict(self.live)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        name = str(func)
        if "wait_tensor" in name:
            return args[0]      # its fake kernel returns another tensor
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, torch.Tensor):
                self.birth(t)
        if "all_gather_into_tensor" in name:
            self.gathered.append(out.untyped_storage().nbytes())
        return out


# ---- ways ----

class OnCuda(record.Fsdp2):
    def keywords(self, replicate):
        kw = super().keywords(replicate)
        with _disable_current_modes():
            world = self.s["world"]
            shape = (replicate, world // replicate) if replicate > 1 else (world,)
            names = ("replicate", "shard")[-len(shape):]
            kw["mesh"] = record.init_device_mesh("cuda", shape, mesh_dim_names=names)
        return kw


def made(config, device):
    with torch.device(device):
        model, blocks = models.make(config["model"], config["strategy"])
    model.requires_grad_(False)
    return model, blocks


def sharded(config, device):
    model, blocks = made(config, device)
    ROOT[0] = model
    OnCuda(config["model"], config["strategy"]).shard(model, blocks)
    if device == "meta":
        model.to_empty(device="cpu" if config["strategy"].get("offload") else DEVICE)
    return model


def stepped(config):
    """A model and its optimizer, with states."""
    model = sharded(config, "meta")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for p in model.parameters():
        local = p.to_local()
        optimizer.state[p] = {"step": torch.zeros((), device="cpu"),
                              "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        del local
    return model, optimizer


def run(config, places):
    way = config["way"]
    full = StateDictOptions(full_state_dict=True, cpu_offload=True)
    if way in ("full", "full_optim"):
        model, optimizer = stepped(config)
        start = places.begin()
        out = get_model_state_dict(model, options=full) if way == "full" else \
            get_state_dict(model, optimizer, options=full)
        return start, out
    if way == "broadcast":
        start = places.begin()
        model = sharded(config, "meta")
        SOURCE[0] = lambda: models.make(config["model"], config["strategy"])[0]
        state = {}
        if config["strategy"].get("rank", 0) == 0:
            with torch.device("cpu"):
                source, _ = models.make(config["model"], config["strategy"])
            state = {k: v for k, v in source.state_dict().items()}
            del source
        set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
        return start, model
    start = places.begin()
    return start, sharded(config, {"gpu": DEVICE}.get(way, way))


def record_row(config):
    s = config["strategy"]
    PINNED.clear()
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=s.get("rank", 0), world_size=s["world"])
    gc.collect()
    with FakeTensorMode(allow_non_fake_inputs=True), Places() as places:
        start, out = run(config, places)
        gc.collect()
        ROOT[0] = None
        row = {**config, "torch": torch.__version__, "start": start, "peak": dict(places.peak),
               "end": dict(places.live), "gathered": places.gathered}
        del out
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--check")
    args = parser.parse_args()
    pretend_cuda()
    rows = [json.loads(line) for line in open(args.check)] if args.check else \
        [{"name": f"{name}-{way}", "model": m, "strategy": s, "way": way} for name, m, s in CASES for way in WAYS]
    wrong = 0
    out = open(args.out, "w") if args.out else None
    for row in rows:
        got = record_row({k: row[k] for k in ("name", "model", "strategy", "way")})
        if out:
            out.write(json.dumps(got) + "\n")
            print(got["name"], got["peak"], got["end"], len(got["gathered"]), flush=True)
        elif got != row:
            wrong += 1
            print("DIFF", row["name"], {k: (row[k], got[k]) for k in row if got[k] != row[k]})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
