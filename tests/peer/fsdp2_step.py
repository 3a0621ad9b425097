#!/usr/bin/env python3
"""The step of a Llama as PyTorch FSDP2 does it, on one GPU, by one rank whose collectives are local
copies: what a rehearsal of the same plan is compared with (tools/gpu-truth, stage pytorch).

    python3 tests/peer/fsdp2_step.py tests/data/configs/llama-3.1-8b --world 8 --seq 8192 \
        --micro-batch 1 --steps 6 --output DIR --planned events.jsonl

Prints one JSON object: seconds of each step after the first, peak bytes allocated and reserved, and
how many of the planned allocations and frees (`shardplan fit --events`) a steady step makes. DIR gets
that step's snapshot.pickle and another one's trace.json, of the profiler. On a CPU (--device cpu, a dry
run) nothing is recorded of memory.

Written as torchtitan's Llama 3 is: RMSNorm fused, complex RoPE, repeated key/value heads, bf16
compute, fp32 reduce, fp32 stored, AdamW foreach.
"""

import argparse
import contextlib
import difflib
import json
import os
import pickle
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore


def rope_table(head, seq, theta, device):
    frequency = 1.0 / (theta ** (torch.arange(0, head, 2, device=device).float() / head))
    angle = torch.outer(torch.arange(seq, device=device).float(), frequency)
    return torch.polar(torch.ones_like(angle), angle).view(1, seq, 1, head // 2)


def rotate(x, table):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv = c["num_attention_heads"], c["num_key_value_heads"]
        self.head = c.get("head_dim") or c["hidden_size"] // self.heads
        h = c["hidden_size"]
        self.wq = nn.Linear(h, self.heads * self.head, bias=False)
        self.wk = nn.Linear(h, self.kv * self.head, bias=False)
        self.wv = nn.Linear(h, self.kv * self.head, bias=False)
        self.wo = nn.Linear(self.heads * self.head, h, bias=False)

    def forward(self, x, table):
        b, s, _ = x.shape
        q = rotate(self.wq(x).view(b, s, self.heads, self.head), table)
        k = rotate(self.wk(x).view(b, s, self.kv, self.head), table)
        v = self.wv(x).view(b, s, self.kv, self.head)
        k, v = (
            t[:, :, :, None].expand(b, s, self.kv, self.heads // self.kv, self.head)
            .reshape(b, s, self.heads, self.head)
            for t in (k, v)
        )
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(o.transpose(1, 2).contiguous().view(b, s, -1))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, f, eps = c["hidden_size"], c["intermediate_size"], c.get("rms_norm_eps", 1e-5)
        self.attention = Attention(c)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(h, eps), nn.RMSNorm(h, eps)
        self.w1 = nn.Linear(h, f, bias=False)
        self.w2 = nn.Linear(f, h, bias=False)
        self.w3 = nn.Linear(h, f, bias=False)

    def forward(self, x, table):
        x = x + self.attention(self.attention_norm(x), table)
        y = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, v = c["hidden_size"], c["vocab_size"]
        self.tok_embeddings = nn.Embedding(v, h)
        self.layers = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(h, c.get("rms_norm_eps", 1e-5))
        self.output = nn.Linear(h, v, bias=False)

    def forward(self, tokens, table):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, table)
        return self.output(self.norm(x))


def copy_locally(world):
    """The rank's own slice stands for those of all others, as in a rehearsal without a trace."""
    gather, reduce = dist.all_gather_into_tensor, dist.reduce_scatter_tensor

    # parameters by PyTorch's names: versions pass them by these or in order
    def all_gather_into_tensor(output_tensor, input_tensor, *args, **kwargs):
        work = gather(output_tensor, input_tensor, *args, **kwargs)     # of the fake group: does nothing
        for slice_ in output_tensor.view(world, -1)[1:]:
            slice_.copy_(input_tensor.view(-1))
        return work

    def reduce_scatter_tensor(output, input, *args, **kwargs):
        work = reduce(output, input, *args, **kwargs)
        output.copy_(input.view(world, -1)[0].view_as(output))
        return work

    dist.all_gather_into_tensor = all_gather_into_tensor
    dist.reduce_scatter_tensor = reduce_scatter_tensor


def events_of(snapshot):
    """Bytes of each allocation, below 0 of each free, in the order of the host."""
    sign = {"alloc": 1, "free_requested": -1}
    return [sign[e["action"]] * e["size"] for e in snapshot["device_traces"][0] if e["action"] in sign]


def compare_events(planned, snapshot):
    with open(planned, encoding="utf-8") as file:
        wanted = [json.loads(line)[0] for line in file]
    found = events_of(snapshot)
    blocks = difflib.SequenceMatcher(None, wanted, found, autojunk=False).get_matching_blocks()
    return {"planned": len(wanted), "recorded": len(found), "equal": sum(b.size for b in blocks)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config", help="folder of a config.json")
    parser.add_argument("--world", type=int, default=8)
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--attention", choices=["auto", "flash", "cudnn"], default="auto")
    parser.add_argument("--output", help="folder for snapshot.pickle and trace.json")
    parser.add_argument("--planned", help="what `shardplan fit --events` wrote")
    args = parser.parse_args()
    with open(os.path.join(args.config, "config.json"), encoding="utf-8") as file:
        c = json.load(file)

    cuda = args.device == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=args.world)
    copy_locally(args.world)
    mesh = init_device_mesh(args.device, (args.world,))
    if cuda:
        torch.cuda.set_device(0)
    with torch.device("meta"):
        model = Llama(c)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device=args.device)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.ones_(parameter.to_local())
        else:
            nn.init.normal_(parameter.to_local(), std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    table = rope_table(head, args.seq, c.get("rope_theta", 10000.0), args.device)
    shape = (args.micro_batch, args.seq)
    tokens = torch.randint(c["vocab_size"], shape, device=args.device)
    targets = torch.randint(c["vocab_size"], shape, device=args.device)
    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    attention = sdpa_kernel(backends[args.attention]) if args.attention in backends \
        else contextlib.nullcontext()

    def step():
        wait()
        start = time.perf_counter()
        logits = model(tokens, table)
        F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        return time.perf_counter() - start

    with attention:
        seconds = [step() for _ in range(args.steps)]
        result = {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(0) if cuda else "cpu",
            "attention": args.attention,
            "seconds": seconds[1:],
            "median_s": statistics.median(seconds[1:]),
            "allocated_peak": torch.cuda.max_memory_allocated() if cuda else None,
            "reserved_peak": torch.cuda.max_memory_reserved() if cuda else None,
            "events": "skipped: the CPU has no caching allocator",
        }
        if args.output and cuda:
            torch.cuda.memory._record_memory_history(max_entries=1000000)
            step()
            snapshot = torch.cuda.memory._snapshot()
            torch.cuda.memory._record_memory_history(enabled=None)
            with open(os.path.join(args.output, "snapshot.pickle"), "wb") as file:
                pickle.dump(snapshot, file)
            result["events"] = compare_events(args.planned, snapshot) if args.planned else None
        if args.output:
            activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
            with profile(activities=activities, record_shapes=True) as profiler:
                step()
            profiler.export_chrome_trace(os.path.join(args.output, "trace.json"))
    print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
