#!/usr/bin/env python3
"""Record what torch.compile makes of the loss by itself: what is saved, and Inductor's programs.

The loss is torchtitan's of --compile.components loss: cross_entropy(logits.flatten(0, 1).float(),
targets.flatten(0, 1)), compiled with fullgraph=True as record_compile.py compiles blocks.

Usage
    record_compile_loss.py --out OUT.jsonl [--texts DIR]
    record_compile_loss.py --check OUT.jsonl

A row: name, model (vocab, batch, seq), strategy (`store_dtype` is the dtype of the logits), and saved,
parameters, forward and backward as record_compile.py has them: i0 are the logits, i1 the targets.
"""
import argparse
import json
import pathlib
import sys

import record_compile
from record_compile import FakeTensorMode, Recorder, described, joint_graph, partitioners, torch

CASES = (
    ("loss", {"vocab": 251, "batch": 2, "seq": 128}, "bf16"),
    ("loss-fp32", {"vocab": 251, "batch": 2, "seq": 128}, "fp32"),
    ("loss-even", {"vocab": 512, "batch": 1, "seq": 64}, "bf16"),
    ("loss-one-sequence", {"vocab": 32000, "batch": 1, "seq": 4096}, "bf16"),
    ("loss-gpt2", {"vocab": 50304, "batch": 12, "seq": 1024}, "bf16"),
    ("loss-llama-8b", {"vocab": 128256, "batch": 1, "seq": 8192}, "bf16"),
    ("loss-llama-8b-two", {"vocab": 128256, "batch": 2, "seq": 8192}, "bf16"),
    ("loss-llama-8b-fp32", {"vocab": 128256, "batch": 1, "seq": 2048}, "fp32"),
)
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1))


def fold_scalars():
    """As record_compile.py does of torch.full: tensors of one value are computed on the CPU."""
    fold = joint_graph.UniformValueConstantFolder._deduce_value

    def deduced(self, node):
        if node.target is not torch.ops.aten.scalar_tensor.default:
            return fold(self, node)
        return torch.tensor(node.args[0], dtype=node.kwargs.get("dtype"), device="cpu")
    joint_graph.UniformValueConstantFolder._deduce_value = deduced


def record(name, m, dtype, texts=None):
    torch._dynamo.reset()
    recorder = Recorder()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda:0"):
            shape = (m["batch"], m["seq"], m["vocab"])
            logits = torch.empty(shape, dtype=DTYPES[dtype], requires_grad=True)
            targets = torch.empty(shape[:2], dtype=torch.int64)
            loss = torch.compile(cross_entropy, backend=recorder.backend, fullgraph=True)
            loss(logits, targets).backward()
    finally:
        partitioners.solve_min_cut = recorder.solve
    if texts:
        pathlib.Path(texts, name + ".txt").write_text(recorder.joint)
        for text, way in zip(recorder.texts, ("forward", "backward")):
            pathlib.Path(texts, f"{name}.{way}.py").write_text(text)
    return {"name": name, "model": m, "strategy": {"store_dtype": dtype}, **described(recorder)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--check")
    parser.add_argument("--texts", help="also writes each joint graph and program there, to be read")
    args = parser.parse_args()
    record_compile.pretend_gpu()
    fold_scalars()
    if args.check:
        rows = [json.loads(line) for line in open(args.check)]
        same = [record(row["name"], row["model"], row["strategy"]["store_dtype"]) == row for row in rows]
        for row, is_same in zip(rows, same):
            print(row["name"], "same" if is_same else "DIFFERS")
        return not all(same)
    rows = [record(*case, args.texts) for case in CASES]
    with open(args.out, "w") as f:
        for row in rows:
            f.write(json.dumps(row, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
