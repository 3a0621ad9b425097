#!/usr/bin/env python3
"""Record what a training step allocates when everything is computed.

record.py runs on fake tensors, and there autograd keeps out of place what it does in place on real
ones: sums of two gradients (`accumulate` in torch/csrc/autograd/input_buffer.cpp) and derivatives
that ask isTensorSubclassLike (torch/csrc/autograd/FunctionsManual.cpp). Here nothing watches: real
CPU tensors, no dispatch mode, and torch.profiler(profile_memory=True) gives every allocation and
free of the CPU's allocator. The sharding system is the real fully_shard, over a fake process group
of N ranks (its collectives move nothing), or the real DistributedDataParallel as one rank of gloo.

Usage
    record_real.py --config CONFIGS.jsonl --out OUT.jsonl [--only NAME ...] [--operators]

Configurations and rows are record.py's and, for DDP, record_systems.py's (load_in_8bit; load_in_4bit and what goes with it for FSDP2,
too: models.in_4bit); a file of their rows is a file of configurations. A row has `parameters`, `torch`, `peak_bytes` (above the start of the step) and
    event_list    +-bytes, and with --operators [+-bytes, phase (fwd, bwd, opt), operator]

Left out of the list, because no GPU has it
    - what one operator of SCRATCH allocates and frees before it returns: packing for a product,
      partial sums of a norm, what several losses are made of (planned as a workspace), indices made contiguous, what cat of several dtypes is cast from; and CASTS to a common
      dtype: the kernel's own;
    - what those of OF_PICTURES do so: a GPU has some of it, too (indices of the rows that a mask chooses, what is made
      contiguous for a kernel, sums of a channel), as large as the tokens of pictures at most, and plans have not; the large
      ones, masks laid over activations and a gradient that group norm copies, are planned as workspaces, which events leave out;
    - events of at most 16 bytes: a number is a tensor, too, on a CPU.
Kernels that only CUDA has, or whose results have another dtype there, are stood in for by KERNELS:
they allocate what CUDA's would (by PyTorch's own meta kernels) and compute nothing.
"""
import argparse
import contextlib
import json

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function
from torch._C._profiler import _EventType as EventType

import record
import record_systems
import recorder

SMALL = 16
OF_PICTURES = {"masked_scatter_", "masked_scatter_backward", "masked_select", "index", "_index_put_impl_", "gather", "repeat",
               "im2col", "col2im", "avg_pool2d_backward", "_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa_backward",
               "grid_sampler_2d_backward", "upsample_nearest2d", "native_group_norm_backward"}
SCRATCH = {"mm", "addmm", "addmm_", "bmm", "baddbmm", "add_", "embedding", "embedding_dense_backward", "sum", "mean", "_chunk_cat",
           "copy_", "mul_", "cumsum", "histc", "sort", "scatter_", "cat", "convolution", "convolution_backward",
           "binary_cross_entropy_with_logits"} | OF_PICTURES
CASTS = {"mul", "add", "sub", "div", "reciprocal"}

KERNELS = ["_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
           "_scaled_dot_product_efficient_attention",
           "_scaled_dot_product_efficient_attention_backward", "native_dropout",
           "native_dropout_backward", "native_layer_norm", "native_layer_norm_backward", "_scaled_mm", "convolution_backward"]


def on_meta(value):
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def like(value):
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def stand_in(name):
    """A CPU kernel of the operator that allocates what its meta kernel says."""
    op = getattr(torch.ops.aten, name).default

    def kernel(*args, **kwargs):
        out = op(*[on_meta(a) for a in args], **{k: on_meta(v) for k, v in kwargs.items()})
        return tuple(like(t) for t in out) if isinstance(out, tuple) else like(out)
    return kernel


LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARIES = []      # of what is made of configurations with load_in_4bit or load_in_8bit
for _name in KERNELS:
    LIBRARY.impl(_name, stand_in(_name), "CPU")


class Parts:
    """The parts of a step tell the profiler where they begin."""

    def tensors(self):
        return contextlib.nullcontext()

    def forward(self, model, inputs):
        with record_function("phase:fwd"):
            return super().forward(model, inputs)

    def backward(self, model, loss):
        with record_function("phase:bwd"):
            super().backward(model, loss)

    def update(self, model, optimizer, live):
        with record_function("phase:opt"):
            super().update(model, optimizer, live)


class RealFsdp2(Parts, record.Fsdp2):
    pass


class RealDdp(Parts, record_systems.Ddp):
    """Over gloo, as one rank: the reducer asks its process group for results."""


def one_rank(*args, **kwargs):
    START("gloo", store=dist.HashStore(), rank=0, world_size=1)


START = dist.init_process_group


def ledger(trace):
    """[bytes, phase, operators it is inside of, address] of each event, in order."""
    events, begins = [], []

    def walk(node, ops):
        if node.tag == EventType.Allocation and node.extra_fields.device.type == "cpu":
            fields = node.extra_fields
            events.append([node.start_time_ns, fields.alloc_size, ops, fields.ptr])
        if node.name.startswith("phase:"):
            begins.append((node.start_time_ns, node.name.removeprefix("phase:")))
        if node.tag == EventType.TorchOp:
            ops = ops + [(node.name, node.id)]
        for child in node.children:
            walk(child, ops)

    for root in trace.profiler.kineto_results.experimental_event_tree():
        walk(root, [])
    begins.sort()
    rows = []
    for time, size, ops, pointer in sorted(events, key=lambda event: event[0]):
        phase = [name for begin, name in begins if begin <= time] or ["fwd"]
        rows.append([size, phase[-1], ops, pointer])
    return rows


def without_scratch(events):
    """Drops what an operator of SCRATCH gives back before it returns, and what is small."""
    born, gone = {}, set()
    scaled = {op for _, _, ops, _ in events if "aten::_scaled_mm" in [name for name, _ in ops]
              for op in ops}        # torchao's mm of two float8 tensors: no kernel, but calls of others
    for i, (size, _, ops, pointer) in enumerate(events):
        if size > 0:
            born[pointer] = i
        elif pointer in born:
            first = born.pop(pointer)
            names = {name.removeprefix("aten::") for name, _ in events[first][2]}
            own = SCRATCH | CASTS if "_to_copy" in names else SCRATCH
            inside = {op for op in events[first][2] if op[0].removeprefix("aten::") in own} - scaled
            if inside & set(ops):
                gone |= {first, i}
    return [[size, phase, operator(ops)] for i, (size, phase, ops, _) in enumerate(events)
            if i not in gone and abs(size) > SMALL]


def operator(ops):
    """The innermost that says what is computed."""
    names = [name.removeprefix("aten::") for name, _ in ops if name.startswith("aten::")]
    return next((n for n in reversed(names) if not n.startswith("empty") and n != "resize_"),
                names[-1] if names else "")


def profiled(one_step):
    def call(system, log, *args):
        system.count = getattr(system, "count", 0) + 1
        if system.count < system.step:
            return one_step(system, log, *args)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
            one_step(system, log, *args)
        system.event_list = without_scratch(ledger(trace))
    return call


recorder.one_step = profiled(recorder.one_step)


def row_of(config, operators):
    systems = []
    ddp = config["strategy"].get("system") == "ddp"
    recorder.dist.init_process_group = one_rank if ddp else START
    if ddp:
        config["strategy"]["world"] = 1
    if config["strategy"].get("load_in_4bit") and not LIBRARIES:
        import quantized
        LIBRARIES.append(quantized.on_cpu())
    if config["strategy"].get("load_in_8bit") and not LIBRARIES:
        import eight_bits
        LIBRARIES.append(eight_bits.on_cpu())

    class Kind(RealDdp if ddp else RealFsdp2):
        def __init__(self, *args):
            super().__init__(*args)
            systems.append(self)

    row = recorder.record(config, Kind)
    events = systems[0].event_list
    live = peak = 0
    for size, _, _ in events:
        live += size
        peak = max(peak, live)
    return {**{k: row[k] for k in ("name", "model", "strategy", "parameters", "torch")},
            "autograd": "gpu", "peak_bytes": peak, "events": len(events),
            "event_list": events if operators else [size for size, _, _ in events]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--operators", action="store_true")
    args = parser.parse_args()
    with open(args.out, "w") as out:
        for line in open(args.config):
            config = json.loads(line)
            if args.only and config["name"] not in args.only:
                continue
            row = row_of(config, args.operators)
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
            print(row["name"], row["events"], row["peak_bytes"], flush=True)
