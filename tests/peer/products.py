#!/usr/bin/env python3
"""torch.mm on the products that build/bench_device has timed: ours / PyTorch for each.

    python3 tests/peer/products.py kernels.jsonl [--device cuda]

`kernels.jsonl` is what bench_device prints. Each product runs 5 times unmeasured and 20 times timed by
events; medians are compared. Prints a line a product, and one of the median ratio.
"""

import argparse
import json
import re
import statistics
import time

import torch

WARM_UP, TIMES = 5, 20


def products(path):
    with open(path) as file:
        for row in map(json.loads, file):
            if row["kernel"].startswith("matmul_"):
                sizes = [tuple(map(int, s.split("x"))) for s in re.findall(r"\d+x\d+", row["shapes"])]
                yield row["kernel"], sizes, row["ms"]


def milliseconds(call, cuda):
    took = []
    for _ in range(WARM_UP + TIMES):
        if cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            took.append(begin.elapsed_time(end))
        else:
            begin = time.perf_counter()
            call()
            took.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(took[WARM_UP:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    args = parser.parse_args()
    cuda, ratios = args.device == "cuda", []
    # as the kernel's letters say: first turned or not, second turned or not
    turns = {"matmul_nt": (False, True), "matmul_nn": (False, False), "matmul_tn": (True, False)}
    for name, (first, second, out), ours in products(args.table):
        x, y = (torch.randn(s, device=args.device, dtype=torch.bfloat16) for s in (first, second))
        z = torch.empty(out, device=args.device, dtype=torch.bfloat16)
        a, b = x.t() if turns[name][0] else x, y.t() if turns[name][1] else y
        ms = milliseconds(lambda: torch.mm(a, b, out=z), cuda)
        ratios.append(ours / ms)
        print(f"{name} {first} {second}: torch.mm {ms:.4f} ms, ours / torch.mm {ours / ms:.3f}")
    print(f"{len(ratios)} products: median ours / torch.mm {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
