#!/usr/bin/env python3
"""Hold record_real.py's ledger to a GPU: the same training step on a CPU, event by event.

tests/data/gpu/allocator/wl_medium_128_training.txt.gz is what one GPU allocated in a step of
tests/data/recorded/wl_medium.py (README.md there). Here the same step is computed on a CPU and read as
record_real.py reads it. What differs is printed, and nothing else: as many lines as there are
differences.

Usage
    check_gpu.py RECORDING.txt.gz [CONTEXT]
"""
import difflib
import gzip
import pathlib
import sys

import torch
from torch.profiler import ProfilerActivity, profile

import record_real

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "data" / "recorded"))
from wl_medium import BATCH, VOCABULARY, Model, loss_of     # noqa: E402


def recorded(path):
    sizes = []
    for line in gzip.open(path, "rt"):
        kind, _, size = line.split()[:3]
        if kind in "AF" and int(size) > record_real.SMALL:
            sizes.append(int(size) if kind == "A" else -int(size))
    return sizes


def computed(context):
    torch.manual_seed(0)
    model = Model(context)
    tokens, targets = (torch.randint(VOCABULARY, (BATCH, context)) for _ in range(2))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        logits = model(tokens)
        loss = loss_of(logits, targets)
        loss.backward()
    return record_real.without_scratch(record_real.ledger(trace))


def main():
    gpu = recorded(sys.argv[1])
    cpu = computed(int(sys.argv[2]) if len(sys.argv) > 2 else 128)
    gpu = gpu[:len(cpu) + 200]      # the update of the parameters comes after
    matcher = difflib.SequenceMatcher(None, gpu, [e[0] for e in cpu], autojunk=False)
    equal = sum(block.size for block in matcher.get_matching_blocks())
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind != "equal":
            print(kind, i, gpu[i:j][:12], cpu[k:m][:12])
    print(f"{equal} of {len(cpu)} events are equal, in order")


if __name__ == "__main__":
    main()
