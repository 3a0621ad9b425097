#!/usr/bin/env python3
"""Record what torch.compile makes of the update of torchao's AdamW8bit and AdamW4bit: Inductor's program of one
tensor, as record_compile.py records those of blocks.

Usage: as record_compile.py's, without its options. A row: name, shape, dtype (of the parameter), gradient (its dtype),
bits (8 or 4), and the events of the program. Operands: p the parameter, g its gradient, l the learning rate and t the
step, which are on the host, m and v the states (m.codes, m.scale, m.qmap where they are codes).
"""
import argparse
import json
import os
import pathlib
import sys
import unittest.mock

if "NO_GPU" in os.environ:          # libraries ask for a GPU's properties while they are imported
    import torch.cuda
    torch.cuda.is_available = lambda: False
import record_compile               # which runs this script again under no_gpu.c
from record_compile import FakeTensorMode, Program, Recorder, partitioners, placeholders, torch

CASES = (
    ("matrix-bf16", [64, 64], "bfloat16", 8),
    ("matrix-fp32", [64, 64], "float32", 8),
    ("matrix-odd", [688, 256], "bfloat16", 8),
    ("matrix-narrow", [4096, 16], "float32", 8),
    ("matrix-large", [14336, 4096], "bfloat16", 8),
    ("matrix-large-fp32", [4096, 4096], "float32", 8),
    ("embedding", [128256, 4096], "bfloat16", 8),
    ("vector", [8192], "bfloat16", 8),
    ("vector-fp32", [5 * 4096], "float32", 8),
    ("small", [4095], "bfloat16", 8),
    ("small-fp32", [64], "float32", 8),
    ("not-whole", [100, 100], "float32", 8),
    ("sharded", [688, 256], "float32", 8),
    ("sharded-small", [3, 256], "float32", 8),
    ("sharded-4", [688, 256], "float32", 4),
    ("matrix-4", [64, 64], "bfloat16", 4),
    ("matrix-4-fp32", [64, 64], "float32", 4),
    ("matrix-4-odd", [688, 256], "bfloat16", 4),
    ("matrix-4-large", [14336, 4096], "bfloat16", 4),
    ("matrix-4-large-fp32", [4096, 4096], "float32", 4),
    ("vector-4", [8192], "float32", 4),
)


def names_of(graph, coded):
    """primals, in the order in which the function comes to them."""
    state = (".codes", ".scale", ".qmap") if coded else ("",)
    names = ["p", "g", "l", "t", *("m" + part for part in state), *("v" + part for part in state)]
    found = [n.name for n in placeholders(graph) if isinstance(n.meta.get("val"), torch.Tensor)]     # the rest are meshes
    assert len(found) == len(names), found
    return dict(zip(found, names))


def table(values, **kwargs):
    """torch.tensor of a list, which makes a real one of it first."""
    return torch.empty(len(values), **kwargs)


def sharded(local):
    """As fully_shard has a parameter of twice as many rows, on one of two ranks."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torch.utils._python_dispatch import _disable_current_modes
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    with _disable_current_modes(), torch.device("cpu"):
        mesh = DeviceMesh("cuda", [0, 1])
    return DTensor.from_local(local, mesh, [Shard(0)], run_check=False)


def record(name, shape, dtype, bits, texts=None):
    from torchao.optim.adam import AdamW4bit, AdamW8bit, single_param_adam
    from torchao.optim import subclass_4bit, subclass_8bit
    for tables in (subclass_4bit, subclass_8bit):       # which are made once, of real tensors
        tables.get_qmap_signed(), tables.get_qmap_unsigned()
    torch._dynamo.reset()
    recorder = Recorder()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda:0"):
            p = torch.empty(shape, dtype=getattr(torch, dtype))
            p = sharded(p) if name.startswith("sharded") else p
            with torch.device("cpu"):
                kind = AdamW8bit if bits == 8 else AdamW4bit
                optimizer = kind([torch.nn.Parameter(torch.empty(1))], block_size=256)
                step, lr = torch.tensor(1.0), torch.tensor(1e-3)
            with unittest.mock.patch("torch.tensor", table):
                m, v = optimizer._new_buffer(p, True), optimizer._new_buffer(p, False)
            with torch.no_grad():
                torch.compile(single_param_adam, backend=recorder.backend, fullgraph=True, dynamic=False)(
                    p, torch.empty_like(p), step, m, v, None, lr, 0.9, 0.999, 0.01, 1e-8, True, False)
    finally:
        partitioners.solve_min_cut = recorder.solve
    (graph, _, _), (text,) = recorder.graphs[0], recorder.texts
    if texts:
        pathlib.Path(texts, name + ".py").write_text(text)
        pathlib.Path(texts, name + ".graph").write_text(str(graph.graph))
    coded = hasattr(getattr(m, "_local_tensor", m), "codes")
    return {"name": name, "shape": shape, "dtype": dtype, "bits": bits, "program": Program(text, names_of(graph, coded)).events}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--check")
    parser.add_argument("--texts", help="also writes each program there, to be read")
    args = parser.parse_args()
    record_compile.pretend_gpu()
    torch.utils._triton.has_triton.cache_clear()
    if args.check:
        rows = [json.loads(line) for line in open(args.check)]
        same = [record(row["name"], row["shape"], row["dtype"], row["bits"]) == row for row in rows]
        for row, is_same in zip(rows, same):
            print(row["name"], "same" if is_same else "DIFFERS")
        return not all(same)
    with open(args.out, "w") as f:
        for case in CASES:
            f.write(json.dumps(record(*case, args.texts), separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
