#!/usr/bin/env python3
"""Record what PyTorch DDP and FSDP1 allocate, and a model that nothing wraps, event by event.

As record.py, for `DistributedDataParallel` and `FullyShardedDataParallel` of the installed torch: one
rank of a fake process group of N ranks, the THIRD step (Adam states exist, DDP's buckets are
rebuilt, FSDP1's order of prefetch is known).  Tensors are real and never filled (unfilled.py),
because DDP's reducer is C++ and FSDP1 compares pointers.

Usage
    record_systems.py --config CONFIGS.jsonl --out OUT.jsonl [--only NAME ...] [--no-events]
    record_systems.py --check TRUTH.jsonl [TRUTH.jsonl ...]   record again and compare with recordings
                                                              (rows of other systems are passed over)

model: as record.py, and buffers: [[dtype, [shape]], ...] registered on the model as buffer_0, ...
strategy.system: ddp | fsdp1 | single (nothing around the model; world 1).  For all: world, rank, accumulate,
no_sync (default true: only the last micro-batch synchronises), clip, optimizer (adamw_foreach | adamw_fused | adamw_loop | sgd, or of optimizers.py; there embedding_bits), ac, store_dtype,
store_fp32 (glob patterns of parameters kept in fp32),
autocast (bf16: the forward runs under it, with CUDA's lists of operators), outputs (fp32: both that and
accelerate's cast of what is returned are the model's forward's own, models.prepared), freeze (comma-separated
glob patterns of parameter names), lora, lora_dropout and lora_dtype (models.adapted), load_in_4bit, double_quant,
compute_dtype, quant_storage and kbit (models.in_4bit; needs bitsandbytes 0.50.2), load_in_8bit (likewise; models.in_8bit), code (hf), keep_outputs, loss and liger (as record.py).
ddp: bucket_cap_mb, gradient_as_bucket_view, static_graph, find_unused_parameters, broadcast_buffers,
comm_hook (allreduce | bf16_compress | fp16_compress), zero_redundancy (plain | bucket_view).
fsdp1: sharding (FULL_SHARD, ...), replicate, wrap (blocks | titan | none | peft | number), param_dtype,
reduce_dtype, buffer_dtype, keep_low_precision_grads, backward_prefetch (pre | post | null), forward_prefetch,
use_orig_params, limit_all_gathers, ignore (comma-separated glob patterns: ignored_states), offload (cpu: CPUOffload(offload_params=True), with param_dtype: copies
between host and device are copies here, too; without it FSDP1 asks which device a tensor is on, which is one).

Fields of a row beside record.py's
    step                 3, or the `step` of the configuration
    peak_bytes_by_step   peaks of steps 1, 2, 3
    buckets              (ddp) [bytes, [parameters]] in the order of their all-reduces
    owners               (ddp with zero_redundancy) the parameters of each rank, in its order
    units                (fsdp1) [name, elements of the unsharded flat parameter, elements of a shard]
    collectives          [op, bytes of each tensor, where the host is]
"""
import contextlib
import functools
import sys
from unittest import mock

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision,
                                    ShardingStrategy, _runtime_utils)
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy, size_based_auto_wrap_policy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import _disable_current_modes

import models
import recorder
from autocast import cuda_autocast
from models import DTYPES
from recorder import Log, placed
from unfilled import Unfilled

DistributedDataParallel._pre_forward = placed(DistributedDataParallel._pre_forward, lambda *_, **__: "ddp_pre_forward")
DistributedDataParallel.__init__ = placed(DistributedDataParallel.__init__, lambda *_, **__: "ddp_init")


def tensors_of(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = output.values()
    return [t for x in output for t in tensors_of(x)] if isinstance(output, (tuple, list)) else []


class Steady(recorder.System):
    """What DDP and FSDP1 have in common."""

    step = 3

    def tensors(self):
        if self.s.get("lora"):      # peft keeps tensors for good when it is first used
            import peft  # noqa: F401
        return Unfilled()

    def forward(self, model, inputs):
        dtype = None if self.s.get("outputs") else self.s.get("autocast")   # then it is in the model's forward
        with cuda_autocast(DTYPES[dtype]) if dtype else contextlib.nullcontext():
            return super().forward(model, inputs)

    def synced(self, model, last, sync):
        return contextlib.nullcontext() if sync or not hasattr(model, "no_sync") else model.no_sync()

    def prepare(self, model):
        if self.s.get("outputs") == "fp32":
            with cuda_autocast(torch.bfloat16):     # for its lists of operators
                models.prepared(model, "cpu")
        for i, (dtype, shape) in enumerate(self.m.get("buffers", [])):
            model.register_buffer(f"buffer_{i}", torch.empty(shape, dtype=getattr(torch, dtype)))
        for p in recorder.matching(model, self.s.get("freeze")):
            p.requires_grad_(False)
        for p in recorder.matching(model, self.s.get("store_fp32")):
            p.data = p.data.float()

    def prepare_reference(self, model, blocks):
        self.prepare(model)     # Accelerator.prepare_model(evaluation_mode=True) wraps it in nothing
        return model

    def settle(self, log, model, optimizer):
        for state in optimizer.state.values():
            for t in state.values():
                if isinstance(t, torch.Tensor):
                    log.recategorize(t, "optimizer")
        log.rename("init", "persistent")


class Whole(Steady):
    """Parameters that a rank has whole; alone, one GPU that trains a model as it is."""

    extra = ("step", "peak_bytes_by_step")

    def shard(self, model, blocks):
        self.prepare(model)
        for block in blocks[-1:]:
            block.register_forward_hook(self.watch)
        return model

    @staticmethod
    def watch(module, args, output):
        """The segment of the blocks begins when a gradient reaches the last one's output."""
        def reached(grad):
            if Log.current.segment == "backward_head":
                Log.current.segment = "backward_blocks"
        for t in tensors_of(output)[:1]:
            if t.requires_grad:
                t.register_hook(reached)

    def settle(self, log, model, optimizer):
        for p in model.parameters():
            log.recategorize(p, "param")
        models.settle_bits(self.s, log, model)
        super().settle(log, model, getattr(optimizer, "optim", optimizer))


class Ddp(Whole):
    places = (("ddp_pre_forward", "bucket"), ("ddp_init", "bucket"))
    extra = ("step", "peak_bytes_by_step", "buckets", "owners")
    ARGUMENTS = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters",
                 "broadcast_buffers")
    HOOKS = {"allreduce": default_hooks.allreduce_hook, "bf16_compress": default_hooks.bf16_compress_hook,
             "fp16_compress": default_hooks.fp16_compress_hook}

    def shard(self, model, blocks):
        s = self.s
        ddp = DistributedDataParallel(super().shard(model, blocks), **{k: s[k] for k in self.ARGUMENTS if k in s})
        if s.get("comm_hook"):
            ddp.register_comm_hook(None, self.HOOKS[s["comm_hook"]])
        return ddp

    def optimizer(self, model):
        s = self.s
        if not s.get("zero_redundancy"):
            return super().optimizer(model)
        name = s.get("optimizer", "adamw_foreach")
        return ZeroRedundancyOptimizer(
            [p for p in model.parameters() if p.requires_grad], optimizer_class=torch.optim.AdamW,
            parameters_as_bucket_view=s["zero_redundancy"] == "bucket_view", lr=1e-3,
            foreach=name == "adamw_foreach", fused=name == "adamw_fused")

    def settle(self, log, model, optimizer):
        for entry in log.alive.values():        # the maps of used parameters are not buckets
            if entry[1] == "bucket" and entry[2].endswith("int32"):
                entry[1] = "persistent"
        super().settle(log, model, optimizer)

    def finish(self, model, optimizer):
        names = {id(p): models.plain_name(name) for name, p in model.module.named_parameters()}
        self.buckets = [[b.buffer().numel() * b.buffer().element_size(), [names[id(p)] for p in b.parameters()]]
                        for b in model.reducer._get_zeros_like_grad_buckets()]
        self.owners = None
        if self.s.get("zero_redundancy"):
            self.owners = [[names[id(p)] for group in groups for p in group["params"]]
                           for groups in optimizer._partition_parameters()]


def unit_label(name):
    def label(state, *args, **kwargs):
        log = Log.current
        handle = next((a for a in args if isinstance(a, FlatParamHandle)), None)
        unit = log.units[id(handle._fully_sharded_module)] if handle else None
        if name == "_pre_backward_hook" and log.segment == "backward_head" and unit not in (None, "root"):
            log.segment = "backward_blocks"
        return f"{name}[{unit}]"
    return label


for _name in ("_unshard", "_reshard", "_pre_backward_hook", "_post_backward_hook"):
    setattr(_runtime_utils, _name, placed(getattr(_runtime_utils, _name), unit_label(_name)))


def copied(tensor, *_, **__):
    """What .to(device) and .pin_memory() make between the host and a device: a new tensor."""
    return torch.ops.aten._to_copy(tensor.detach())


def across_devices(use_low_precision_shard):
    """Host and device are one memory here: an offloaded shard is copied as between two."""
    def call(handle):
        if not handle._offload_params:
            return use_low_precision_shard(handle)
        with mock.patch.object(torch.Tensor, "to", copied):
            return use_low_precision_shard(handle)
    return call


def pinned(init_flat_param_attributes):
    def call(handle):
        with mock.patch.object(torch.Tensor, "pin_memory", copied):
            return init_flat_param_attributes(handle)
    return call


def offloaded(prepare_gradient_for_backward):
    """A gradient of an earlier step is on the host, which is another device than the handle's."""
    def call(handle):
        if not handle._offload_params:
            return prepare_gradient_for_backward(handle)
        with mock.patch.object(handle, "device", torch.device("meta")), \
                mock.patch.object(FlatParamHandle, "_check_on_compute_device", lambda *_: None):
            return prepare_gradient_for_backward(handle)
    return call


def moved(pre_unshard):
    """Where nothing is cast a flat parameter on the host is moved to the handle's device, which is another."""
    def call(handle):
        ran = pre_unshard(handle)
        flat, casts = handle.flat_param, handle._uses_param_mixed_precision and not handle._force_full_precision
        if not handle._offload_params or casts or \
                flat.untyped_storage().data_ptr() != flat._local_shard.untyped_storage().data_ptr():
            return ran
        flat.data = copied(flat.data)
        return True
    return call


FlatParamHandle.pre_unshard = moved(FlatParamHandle.pre_unshard)
FlatParamHandle.prepare_gradient_for_backward = offloaded(FlatParamHandle.prepare_gradient_for_backward)
FlatParamHandle.init_flat_param_attributes = pinned(FlatParamHandle.init_flat_param_attributes)
FlatParamHandle._use_low_precision_shard = across_devices(FlatParamHandle._use_low_precision_shard)
FlatParamHandle._use_low_precision_shard = placed(FlatParamHandle._use_low_precision_shard,
                                                  lambda *_, **__: "_use_low_precision_shard")
FlatParamHandle._free_low_precision_sharded_param = placed(FlatParamHandle._free_low_precision_sharded_param,
                                                           lambda *_, **__: "free_low_precision")


FlatParamHandle._writeback_orig_params = placed(FlatParamHandle._writeback_orig_params,
                                                lambda *_, **__: "_writeback_orig_params")


torch.cpu.Stream.synchronize = lambda stream: None      # of CPUOffload's end of backward


class Fsdp1(Steady):
    places = (("_use_low_precision_shard", "cast_shard"), ("_writeback_orig_params", "gradient"),
              ("_unshard", "cast_shard"), ("_post_backward_hook", "reduce_scatter"))
    extra = ("step", "peak_bytes_by_step", "units")
    ARGUMENTS = ("forward_prefetch", "use_orig_params", "limit_all_gathers")
    PREFETCH = {"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST, None: None}

    def policy(self, model, blocks):
        wrap = self.s.get("wrap", "blocks")
        if wrap == "none":
            return None
        if wrap == "peft":      # blocks, and what is trained and has no modules in it
            from peft.utils.other import fsdp_auto_wrap_policy
            return fsdp_auto_wrap_policy(model)
        if not isinstance(wrap, str):
            return functools.partial(size_based_auto_wrap_policy, min_num_params=wrap)
        chosen = set(blocks)
        if wrap == "titan":
            chosen.update(m for m in model.modules() if isinstance(m, torch.nn.Embedding))
        return functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in chosen)

    def precision(self):
        s = self.s
        fields = {k: DTYPES[s[k]] for k in ("param_dtype", "reduce_dtype", "buffer_dtype") if s.get(k)}
        for k in ("keep_low_precision_grads", "cast_forward_inputs"):
            if k in s:
                fields[k] = s[k]
        return MixedPrecision(**fields) if fields else None

    def shard(self, model, blocks):
        s = self.s
        self.prepare(model)
        Log.current.units = {id(m): models.plain_name(name).replace("._checkpoint_wrapped_module", "") or "root"
                             for name, m in model.named_modules()}
        mesh = None
        ignored = recorder.matching(model, s.get("ignore"))
        if s.get("replicate", 1) > 1:
            with _disable_current_modes():
                mesh = init_device_mesh("cpu", (s["replicate"], s["world"] // s["replicate"]))
        return FullyShardedDataParallel(
            model, device_mesh=mesh, device_id=torch.device("cpu"),
            sharding_strategy=ShardingStrategy[s.get("sharding", "FULL_SHARD")],
            auto_wrap_policy=self.policy(model, blocks), mixed_precision=self.precision(),
            cpu_offload=CPUOffload(offload_params=s.get("offload") == "cpu"),
            backward_prefetch=self.PREFETCH[s.get("backward_prefetch", "pre")],
            ignored_states=ignored or None, **{k: s[k] for k in self.ARGUMENTS if k in s})

    def prepare_reference(self, model, blocks):
        """As trl.models.utils.prepare_fsdp: with the policy of the first, so its blocks are units, too. What accelerate's prepare_model
        does to a model's forward (`outputs`) it does not."""
        before, outputs = Log.current.units, self.s.pop("outputs", None)
        wrapped = self.shard(model, blocks).eval()
        self.s.update({"outputs": outputs} if outputs else {})
        beside = {k: "reference" if v == "root" else f"reference.{v}" for k, v in Log.current.units.items()}
        Log.current.units = {**before, **beside}
        return wrapped

    def clip(self, model):
        model.clip_grad_norm_(1.0)

    def settle(self, log, model, optimizer):
        beside = self.handles(self.reference) if self.reference else []
        for handle in self.handles(model) + beside:
            flat = handle.flat_param
            for field, category in (("_local_shard", "sharded_param"), ("_mp_shard", "cast_shard"),
                                    ("_cpu_grad", "gradient"), ("_full_param_padded", "unsharded_param"),
                                    ("_full_prec_full_param_padded", "unsharded_param")):
                if isinstance(getattr(flat, field, None), torch.Tensor):
                    log.recategorize(getattr(flat, field), category)
            log.recategorize(flat, "sharded_param")
        super().settle(log, model, optimizer)

    @staticmethod
    def handles(model):
        states = FullyShardedDataParallel.fsdp_modules(model)
        return [m._handle for m in states if m._handle]

    def finish(self, model, optimizer):
        names = Log.current.units
        self.units = [[names[id(h._fully_sharded_module)], h.flat_param._unpadded_unsharded_size.numel(),
                       h.flat_param._sharded_size.numel()] for h in self.handles(model)]


KINDS = {"ddp": Ddp, "fsdp1": Fsdp1, "single": Whole}

if __name__ == "__main__":
    sys.exit(recorder.main(lambda config: KINDS.get(config["strategy"]["system"])))
