#!/usr/bin/env python3
"""Record what comes before and between steps under FSDP1, DDP and DeepSpeed's ZeRO: initialisation and checkpoints.

As record_zero_offload.py, one rank of a world of N with a fake process group: the device is `meta`, whose tensors have
shapes and storages and no data, the host's are real and never filled, so that device and host are told apart.
DDP's reducer, FSDP1's flat parameters and DeepSpeed's engine are the installed ones.

Usage
    record_start_up_systems.py --out OUT.jsonl [--only GLOB ...]
    record_start_up_systems.py --check OUT.jsonl

A row: name, model, strategy (record_systems.py's or record_zero.py's), way:
  all
    cpu            the model on the CPU of every rank, then the wrapper (ddp: model.to(device) before)
    gpu            the model on the GPU, then the wrapper
  fsdp1
    meta           meta device, param_init_fn=to_empty of a module's own tensors
    broadcast      rank 0 has the model on its CPU, others on meta as above, sync_module_states
    full           state_dict of FULL_STATE_DICT (offload_to_cpu, rank0_only)
    full_gpu       state_dict of FULL_STATE_DICT as it is by default: on every rank's GPU
    sharded        state_dict of SHARDED_STATE_DICT
    full_optim     full, then FSDP.optim_state_dict likewise
    load           load_state_dict of a full state dict that every rank has on its CPU
  ddp
    full           rank 0's torch.save of model.module.state_dict()
    full_optim     likewise of {model, optimizer}
    load           torch.load(map_location="cpu") of that on every rank, load_state_dict of both
  deepspeed
    zero_init      the model under deepspeed.zero.Init (stage 3)
    save           engine.save_checkpoint, this rank's files
    gather_16bit   engine.save_16bit_model (stage 3)
    load           engine.load_checkpoint of what was saved by as many ranks
and {device, host}: bytes at the `start`, highest (`peak`), at the `end`; `gathered`: bytes of every tensor that a
collective brings whole onto the device, in order; `files`: bytes of the tensors with a dim of each file that the rank
writes or reads, in order.

Left out: DDP's check of shapes across ranks, whose values meta tensors do not have (a few hundred bytes, gone before
anything else is there); the shapes that DeepSpeed keeps as tensors of the meta device. What other ranks tell this one
(keys and kinds of the optimizer's states) is what it would tell them.
"""
import argparse
import collections
import contextlib
import fnmatch
import gc
import json
import os
import sys
import tempfile
import traceback
import types

import record_zero_offload          # first: it sets DeepSpeed's environment
import record_systems
import record_zero
import deepspeed
import torch
import torch._dynamo                # before anything is put in its functions' places
import torch.distributed as dist
from torch.distributed.fsdp import (CPUOffload, FullOptimStateDictConfig, FullStateDictConfig,
                                    FullyShardedDataParallel as FSDP, LocalOptimStateDictConfig, LocalStateDictConfig,
                                    ShardedOptimStateDictConfig, ShardedStateDictConfig, StateDictType, _flat_param, _init_utils,
                                    _runtime_utils)
from torch.nn.parallel import DistributedDataParallel, distributed
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes
from deepspeed.accelerator import get_accelerator
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

import models
import recorder
from record_start_up import GPT2, LLAMA, ODD
from record_zero_offload import DEVICE, Log2
from recorder import Log


# ---- a GPU whose tensors are meta's ----

DATA = torch.Tensor.data


def set_data(tensor, new):
    """`tensor.data = new` from one device to another, which meta alone does not do."""
    if new.is_meta == tensor.is_meta:
        return DATA.__set__(tensor, new)
    other = torch.nn.Parameter(new.detach(), tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) \
        else new.detach()
    other.__dict__.update(tensor.__dict__)
    requires_grad = tensor.requires_grad
    tensor.__dict__.clear()
    torch._C._swap_tensor_impl(tensor, other)       # swap_tensors without its check of who else holds one
    tensor.__dict__.update(other.__dict__)
    tensor.requires_grad_(requires_grad)
    # nodes of views hold the one that was there, whose memory is gone on CUDA: there it is the same tensor
    DATA.__set__(other, torch.Tensor.new_empty(other, 0))


def pretend_meta():
    torch.Tensor.data = property(lambda tensor: DATA.__get__(tensor), set_data)
    torch._has_compatible_shallow_copy_type = lambda one, other: True    # Module.to sets .data, as towards CUDA
    torch.meta = types.ModuleType("meta")       # what FSDP1 asks of torch.cuda
    for name in dir(torch.cpu):
        setattr(torch.meta, name, getattr(torch.cpu, name))
    torch.meta.current_device = lambda: DEVICE
    torch.meta.device_count = lambda: 8
    torch.meta.is_available = lambda: True
    _init_utils._get_device_from_device_id = lambda device_id, *rest: device_id
    _init_utils._need_to_materialize_module = lambda module, *rest: (
        any(id(p) in Nowhere.tensors for p in module.parameters()), False)
    torch.save, torch.load = save, load
    torch.zeros_like = shapes_aside(torch.zeros_like)
    torch.UntypedStorage.cpu = storage_to_host
    distributed._verify_param_shape_across_processes = lambda *args: None      # meta's values cannot be read
    dist.broadcast_object_list = what_rank_0_sends
    dist.all_gather_object = lambda out, mine, group=None: [out.__setitem__(i, mine) for i in range(len(out))]


def storage_to_host(storage):
    """What torch.save writes of a storage of the device; the one before lives as long."""
    if storage.device != DEVICE:
        return storage
    return torch.empty(storage.nbytes(), dtype=torch.uint8).untyped_storage()


def shapes_aside(zeros_like):
    """DeepSpeed keeps the shapes of its parameters as tensors of the meta device."""
    def call(*args, **kwargs):
        if kwargs.get("device") != "meta" or Log.current is None:
            return zeros_like(*args, **kwargs)
        with Nowhere(Log.current):
            return zeros_like(*args, **kwargs)
    return call


def what_rank_0_sends(objects, *args, **kwargs):
    """The keys of FSDP1's optimizer states, which are this rank's."""
    if objects[0] is None:
        objects[0] = list(sys._getframe(1).f_locals["optim_state_key_to_param_key"])


class Nowhere:
    """The meta device of a program whose GPU is meta: tensors that the log does not know."""

    tensors = set()

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.birth, self.log.birth = self.log.birth, lambda *args: None

    def __exit__(self, *args):
        self.log.birth = self.birth


def to_empty(module):
    """param_init_fn: the module's own tensors get memory."""
    for own in (module._parameters, module._buffers):
        for name, tensor in list(own.items()):
            if tensor is not None and not tensor.is_meta:
                set_data(tensor, torch.empty_like(tensor, device=DEVICE))
                Nowhere.tensors.discard(id(tensor))


class Places(Log2):
    """Live and highest bytes of both, and what collectives bring."""

    def begin(self):
        gc.collect()
        self.clear()
        MOVED.clear()
        self.recording = True
        return dict(self.of)

    def gathered(self):
        return [collective[1][0] for collective in self.collectives]


class Tensors(record_zero_offload.TwoPlaces):
    """Scalars of all ranks are equal."""

    def call(self, func, args, kwargs):
        return True if func is torch.ops.aten.equal.default else super().call(func, args, kwargs)


# ---- ways ----

class Fsdp1(record_systems.Fsdp1):
    log = Places

    def tensors(self):
        return Tensors()

    def made(self, way, log):
        nowhere = way == "meta" or way == "broadcast" and self.s.get("rank", 0)
        if nowhere:
            with Nowhere(log):
                model, blocks = models.make(self.m, self.s)
            Nowhere.tensors.update(id(t) for t in (*model.parameters(), *model.buffers()))
            return model, blocks
        with torch.device("cpu" if way in ("cpu", "broadcast") else DEVICE):
            return models.make(self.m, self.s)

    def wrapped(self, way, log):
        model, blocks = self.made(way, log)
        self.prepare(model)
        s = self.s
        log.units = {id(m): models.plain_name(name) or "root" for name, m in model.named_modules()}
        mesh = None
        if s.get("replicate", 1) > 1:
            with _disable_current_modes():
                mesh = record_systems.init_device_mesh("cpu", (s["replicate"], s["world"] // s["replicate"]))
        return FSDP(model, device_mesh=mesh, device_id=DEVICE, auto_wrap_policy=self.policy(model, blocks),
                    sharding_strategy=record_systems.ShardingStrategy[s.get("sharding", "FULL_SHARD")],
                    mixed_precision=self.precision(), param_init_fn=to_empty, sync_module_states=way == "broadcast",
                    use_orig_params=s.get("use_orig_params", False), cpu_offload=CPUOffload(bool(s.get("offload"))))

    def run(self, way, log):
        if way in ("meta", "cpu", "gpu", "broadcast"):
            start = log.begin()
            return start, self.wrapped(way, log)
        model = self.wrapped("gpu", log)
        _runtime_utils._lazy_init(model, model)     # the first forward does
        for handle in model._all_handles if self.s.get("offload") else ():
            handle._use_sharded_flat_param()        # likewise, in its first reshard: of the pinned shard
        optimizer = stepped(model.parameters())
        if way == "load":
            with Nowhere(log):
                save(whole(self.m, self.s), "whole")
        start = log.begin()
        alone = way != "full_gpu"
        if way.startswith("sharded"):
            kinds = StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(), ShardedOptimStateDictConfig()
        elif way == "local":
            kinds = StateDictType.LOCAL_STATE_DICT, LocalStateDictConfig(), LocalOptimStateDictConfig()
        else:
            kinds = (StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=alone, rank0_only=alone),
                     FullOptimStateDictConfig(offload_to_cpu=alone, rank0_only=alone))
        with FSDP.state_dict_type(model, *kinds):
            if way == "load":
                model.load_state_dict(load("whole"))
                return start, (model, optimizer)
            out = [model, optimizer, model.state_dict()]
            if way.endswith("_optim"):
                out.append(FSDP.optim_state_dict(model, optimizer))
        return start, out


class Ddp(record_systems.Ddp):
    log = Places

    def tensors(self):
        return Tensors()

    def wrapped(self, way):
        with torch.device("cpu" if way == "cpu" else DEVICE):
            model, _ = models.make(self.m, self.s)
        model.to(DEVICE)
        self.prepare(model)
        return DistributedDataParallel(model, **{k: self.s[k] for k in self.ARGUMENTS if k in self.s})

    def run(self, way, log):
        if way in ("cpu", "gpu"):
            start = log.begin()
            return start, self.wrapped(way)
        model = self.wrapped("gpu")
        if way == "load":
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            self.saved(log)
            start = log.begin()
            state = load("whole", map_location="cpu")
            model.module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            return start, (state, optimizer, model)
        optimizer = stepped(model.parameters())
        start = log.begin()
        state = model.module.state_dict() if way == "full" else \
            {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        if self.s.get("rank", 0) == 0:
            save(state)
        return start, (model, optimizer, state)

    def saved(self, log):
        with Nowhere(log):
            model, _ = models.make(self.m, self.s)
            self.prepare(model)
            save({"model": model.state_dict(), "optimizer": stepped(model.parameters()).state_dict()}, "whole")


def stepped(parameters):
    """AdamW behind a step."""
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    for p in [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]:
        with torch.device("cpu"):
            optimizer.state[p]["step"] = torch.zeros(())
        optimizer.state[p]["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        optimizer.state[p]["exp_avg_sq"] = torch.zeros_like(p, memory_format=torch.preserve_format)
    return optimizer


def whole(m, s):
    with torch.device("cpu"):
        return models.make(m, s)[0].state_dict()


TORCH_SAVE = torch.save
SAVED = {}      # by path: what torch.save was given, without its memory
Saved = collections.namedtuple("Saved", "storage nbytes dtype offset size stride")


def without_memory(tensor):
    own = tensor.untyped_storage()
    return Saved(own._cdata, own.nbytes(), tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride())


MOVED = []      # bytes of each file that was written or read


def payload(state):
    """Bytes of the storages of tensors with a dim, each once."""
    found = [x for x in tree_flatten(state, is_leaf=lambda x: isinstance(x, Saved))[0] if isinstance(x, Saved)]
    return sum({x.storage: x.nbytes for x in found if x.size}.values())


def save(state, path=os.devnull, **_):
    """torch.save, which writes no data of meta's tensors: of their storages it does."""
    SAVED[str(path)] = tree_map_only(torch.Tensor, without_memory, state)
    MOVED.append(payload(SAVED[str(path)]))
    state = tree_map_only(torch.Tensor, lambda t: t.untyped_storage() if t.is_meta else t, state)
    with open(os.devnull, "wb") as file:
        TORCH_SAVE(state, file)
    if os.path.isabs(path):
        open(path, "w").close()


def load(path, map_location=None, **_):
    """torch.load(map_location="cpu") of what was saved: storages once, on the host."""
    MOVED.append(payload(SAVED[str(path)]))
    storages = {}

    def loaded(saved):
        if saved.storage not in storages:
            storages[saved.storage] = torch.empty(saved.nbytes, dtype=torch.uint8).untyped_storage()
        out = torch.empty(0, dtype=saved.dtype)
        return out.set_(storages[saved.storage], saved.offset, saved.size, saved.stride)
    return tree_map(lambda x: loaded(x) if isinstance(x, Saved) else x, SAVED[str(path)],
                    is_leaf=lambda x: isinstance(x, Saved))


class Zero(record_zero_offload.ZeroOffload):
    log = Places

    def tensors(self):
        return Tensors()

    def wrapped(self, way, log):
        record_zero.forget()
        kind = {"llama": "flat_llama"}.get(self.m["kind"], self.m["kind"])
        with torch.device("cpu" if way == "cpu" else DEVICE), self.context(way):
            model, _ = models.make({**self.m, "kind": kind}, self.s)
        for param in recorder.matching(model, self.s.get("freeze")):
            param.requires_grad_(False)
        optimizer = self.inner_optimizer(model)
        return deepspeed.initialize(model=model, optimizer=optimizer, config=self.configuration())[0]

    def context(self, way):
        if way != "zero_init":
            return contextlib.nullcontext()
        return deepspeed.zero.Init(config_dict_or_path=self.configuration())

    def configuration(self):
        out = super().configuration()
        out["zero_optimization"].pop("flatten", None)
        out["zero_optimization"].pop("freeze", None)
        if self.s["stage"] == 3:
            out["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
        return out

    def run(self, way, log):
        accelerator = type(get_accelerator())
        accelerator.available_memory = lambda *args: 0 if self.s.get("flatten") == "cpu" else 1 << 40
        if way in ("cpu", "gpu", "zero_init"):
            start = log.begin()
            return start, self.wrapped(way, log)
        engine = self.wrapped("gpu", log)
        self.step(engine)
        folder = tempfile.mkdtemp()
        if way == "load":
            with Nowhere(log):
                engine.save_non_zero_checkpoint = True
                engine.save_checkpoint(folder)
            self.gather(engine)
        start = log.begin()
        if way == "save":
            engine.save_checkpoint(folder)
        elif way == "load":
            engine.load_checkpoint(folder, tag="global_step0")
        else:
            engine.save_16bit_model(folder)
        return start, engine

    @staticmethod
    def step(engine):
        """What a step leaves: states, and small parameters whole."""
        outer, optimizer = engine.optimizer, engine.optimizer.optimizer
        for p in getattr(outer, "fp32_partitioned_groups_flat", None) or \
                [p for group in optimizer.param_groups for p in group["params"]]:
            with torch.device("cpu"):
                step = torch.zeros(())
            optimizer.state[p] = {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        Zero.gather(engine)

    @staticmethod
    def gather(engine):
        small = getattr(engine.optimizer, "persistent_parameters", [])
        if small:
            small[0].partition(small)
            small[0].all_gather(small)


KINDS = {"fsdp1": Fsdp1, "ddp": Ddp, "deepspeed": Zero}
WAYS = {"fsdp1": ("meta", "cpu", "gpu", "broadcast", "full", "full_gpu", "sharded",
                  "sharded_optim", "full_optim", "load"),
        "ddp": ("cpu", "gpu", "full", "full_optim", "load"),
        "deepspeed": ("cpu", "gpu", "zero_init", "save", "gather_16bit", "load")}

BIG = {"kind": "llama", "dim": 1024, "layers": 4, "heads": 8, "kv_heads": 8, "ffn": 4096, "vocab": 32000, "batch": 1,
       "seq": 32}       # more than a broadcast's 250 MiB
OFFLOAD, PARAM = {"offload_optimizer": {"device": "cpu"}}, {"offload_param": {"device": "cpu"}}
CASES = {
    "fsdp1": (
        ("llama-4", LLAMA, {"world": 4}),
        ("llama-4-rank-3", LLAMA, {"world": 4, "rank": 3}),
        ("odd-7", ODD, {"world": 7}),
        ("odd-7-rank-6", ODD, {"world": 7, "rank": 6}),
        ("gpt2-4", GPT2, {"world": 4}),
        ("bf16", LLAMA, {"world": 4, "store_dtype": "bf16"}),
        ("mixed", LLAMA, {"world": 4, "param_dtype": "bf16", "reduce_dtype": "fp32"}),
        ("orig", LLAMA, {"world": 4, "use_orig_params": True}),
        ("orig-odd-7-rank-6", ODD, {"world": 7, "rank": 6, "use_orig_params": True}),
        ("orig-mixed-odd-3", ODD, {"world": 3, "use_orig_params": True, "param_dtype": "bf16"}),
        ("hybrid", LLAMA, {"world": 8, "replicate": 2, "sharding": "HYBRID_SHARD"}),
        ("grad-op", LLAMA, {"world": 4, "sharding": "SHARD_GRAD_OP"}),
        ("titan", LLAMA, {"world": 4, "wrap": "titan"}),
        ("one-unit", LLAMA, {"world": 4, "wrap": "none"}),
        ("big-unit", BIG, {"world": 4, "wrap": "none"}),
        ("frozen", LLAMA, {"world": 4, "freeze": "layers.0.*"}),
        ("orig-frozen", LLAMA, {"world": 4, "freeze": "layers.0.*", "use_orig_params": True}),
        ("orig-frozen-some", LLAMA, {"world": 4, "freeze": "*norm*,*.wq.*", "use_orig_params": True}),
        ("orig-frozen-odd-7-rank-6", ODD, {"world": 7, "rank": 6, "freeze": "*norm*,*.w2.*", "use_orig_params": True}),
        ("one", LLAMA, {"world": 1}),
        ("one-orig", LLAMA, {"world": 1, "use_orig_params": True}),
        ("no-shard", LLAMA, {"world": 4, "sharding": "NO_SHARD"}),
        ("no-shard-orig-rank-3", LLAMA, {"world": 4, "rank": 3, "sharding": "NO_SHARD", "use_orig_params": True}),
        ("no-shard-gpt2", GPT2, {"world": 4, "sharding": "NO_SHARD", "param_dtype": "bf16"}),
        ("offload", LLAMA, {"world": 4, "offload": "cpu"}),
        ("offload-odd-7-rank-6", ODD, {"world": 7, "rank": 6, "offload": "cpu"}),
        ("offload-mixed-gpt2", GPT2, {"world": 4, "offload": "cpu", "param_dtype": "bf16"}),
        ("offload-orig-odd-3", ODD, {"world": 3, "offload": "cpu", "use_orig_params": True}),
        ("offload-orig-rank-3", LLAMA, {"world": 4, "rank": 3, "offload": "cpu", "use_orig_params": True}),
        ("offload-hybrid", LLAMA, {"world": 8, "replicate": 2, "sharding": "HYBRID_SHARD", "offload": "cpu"}),
        ("offload-frozen", LLAMA, {"world": 4, "freeze": "layers.0.*", "offload": "cpu"}),
    ),
    "ddp": (
        ("llama-4", LLAMA, {"world": 4}),
        ("llama-4-rank-3", LLAMA, {"world": 4, "rank": 3}),
        ("gpt2-4", GPT2, {"world": 4}),
        ("small-buckets", LLAMA, {"world": 4, "bucket_cap_mb": 0.05}),
        ("views", LLAMA, {"world": 4, "gradient_as_bucket_view": True}),
        ("bf16", LLAMA, {"world": 4, "store_dtype": "bf16"}),
        ("big", BIG, {"world": 4}),
        ("frozen", LLAMA, {"world": 4, "freeze": "layers.0.*"}),
        ("frozen-tied", GPT2, {"world": 4, "rank": 1, "freeze": "wte.*,*.bias"}),
    ),
    "deepspeed": tuple(
        (f"zero{stage}-{name}", m, {"stage": stage, "param_dtype": "bf16", **s, **more}) for stage, more in
        ((1, {}), (2, {}), (3, {"reduce_bucket_size": 50000, "stage3_param_persistence_threshold": 3000}))
        for name, m, s in (
            ("llama-4", LLAMA, {"world": 4}),
            ("llama-4-rank-3", LLAMA, {"world": 4, "rank": 3}),
            ("odd-7-rank-6", ODD, {"world": 7, "rank": 6}),
            ("gpt2-4", GPT2, {"world": 4}),
            ("fp16", LLAMA, {"world": 4, "param_dtype": "fp16"}),
            ("little-memory", LLAMA, {"world": 4, "flatten": "cpu"}),
            ("frozen", LLAMA, {"world": 4, "freeze": "layers.0.*"}),
            ("frozen-tied-rank-1", GPT2, {"world": 3, "rank": 1, "freeze": "wte.*,*.bias"}),
            ("one", LLAMA, {"world": 1}),
            ("one-gpt2", GPT2, {"world": 1}),
            ("offload", LLAMA, {"world": 4, **OFFLOAD}),
            ("offload-gpt2-rank-2", GPT2, {"world": 3, "rank": 2, **OFFLOAD}),
            ("offload-fp16", LLAMA, {"world": 4, "param_dtype": "fp16", **OFFLOAD}),
            ("offload-unpinned", LLAMA, {"world": 4, "offload_optimizer": {"device": "cpu", "pin_memory": False}}),
            ("offload-one", LLAMA, {"world": 1, **OFFLOAD}),
            ("offload-accumulate", LLAMA, {"world": 4, "accumulate": 2, **OFFLOAD}),
            ("offload-frozen", LLAMA, {"world": 4, "freeze": "layers.0.*", **OFFLOAD}),
            ("offload-both", LLAMA, {"world": 4, **OFFLOAD, **PARAM}),
            ("offload-both-gpt2-rank-2", GPT2, {"world": 3, "rank": 2, **OFFLOAD, **PARAM}),
            ("offload-both-unpinned", LLAMA, {"world": 4, "offload_optimizer": {"device": "cpu", "pin_memory": False},
                                              "offload_param": {"device": "cpu", "pin_memory": False}}),
            ("offload-param", LLAMA, {"world": 4, **PARAM}),
            ("offload-both-one", LLAMA, {"world": 1, **OFFLOAD, **PARAM}))
        if (stage < 3 or name != "little-memory") and (stage == 3 or "offload_param" not in s)) + tuple(
        (f"zero3-hpz-{name}", m, {"stage": 3, "param_dtype": "bf16", "reduce_bucket_size": 50000,
                                  "stage3_param_persistence_threshold": 3000, **s})
        for name, m, s in (
            ("llama", LLAMA, {"world": 8, "zero_hpz_partition_size": 4}),
            ("llama-rank-6", LLAMA, {"world": 8, "rank": 6, "zero_hpz_partition_size": 4}),
            ("odd-rank-5", ODD, {"world": 6, "rank": 5, "zero_hpz_partition_size": 3}),
            ("gpt2", GPT2, {"world": 4, "zero_hpz_partition_size": 2}),
            ("frozen", LLAMA, {"world": 4, "zero_hpz_partition_size": 2, "freeze": "layers.0.*"}),
            ("offload", LLAMA, {"world": 4, "zero_hpz_partition_size": 2, **OFFLOAD}))),
}


def record_row(config):
    s = config["strategy"]
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=s.get("rank", 0), world_size=s["world"])
    gc.collect()
    Nowhere.tensors.clear()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        _flat_param._get_dtype_size(dtype)      # asks a tensor, once
    system = KINDS[s["system"]](config["model"], s)
    Log.current = log = Places()
    log.patch()
    try:
        with system.tensors():
            start, out = system.run(config["way"], log)
            events = log.events[:]
            gc.collect()
            row = {**config, "torch": torch.__version__, "start": start, "peak": dict(log.peak_of),
                   "end": dict(log.of), "gathered": log.gathered()}
            if EVENTS:
                row["events"] = events
            if config["way"] in ("full", "full_gpu", "full_optim") and s["system"] == "fsdp1" and not s.get("rank"):
                save(out[2:])
            if MOVED:
                row["files"] = MOVED[:]
            del out
    finally:
        log.unpatch()
        log.tracking = False
        Log.current = None
    return row


EVENTS = False     # whole event lists, to read


def main():
    global EVENTS
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--check")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--events", action="store_true")
    args = parser.parse_args()
    EVENTS = args.events
    record_zero_offload.prepare()
    pretend_meta()
    rows = [json.loads(line) for line in open(args.check)] if args.check else \
        [{"name": f"{kind}-{name}-{way}", "model": m, "strategy": {"system": kind, **s}, "way": way}
         for kind in KINDS for name, m, s in CASES[kind] for way in WAYS[kind]
         if way not in ("zero_init", "gather_16bit") or s.get("stage") == 3]
    wrong = 0
    out = open(args.out, "w") if args.out else None
    for row in rows:
        if args.only and not any(fnmatch.fnmatchcase(row["name"], only) for only in args.only):
            continue
        try:
            got = record_row({k: row[k] for k in ("name", "model", "strategy", "way")})
        except Exception:
            wrong += 1
            print("FAIL", row["name"], traceback.format_exc(), flush=True)
            continue
        if out:
            out.write(json.dumps(got) + "\n")
            print(got["name"], got["start"], got["peak"], got["end"], len(got["gathered"]), flush=True)
        elif got != row:
            wrong += 1
            print("DIFF", row["name"], {k: (row[k], got[k]) for k in row if got[k] != row[k]})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
