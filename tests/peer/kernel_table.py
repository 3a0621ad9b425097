#!/usr/bin/env python3
"""Kernels of a torch.profiler trace as the table that `shardplan kernels` reads: a row for each kernel
of an operator on operands of one form, with how often it ran and its median, least and most time.

    python3 tests/peer/kernel_table.py trace.json GPU >kernels.csv

The profiler must have recorded shapes. A kernel belongs to the operator with its "External id", and
that is the innermost one of the dispatcher, as of the rows of tests/data/gpu/kernels.csv.
"""

import collections
import csv
import json
import statistics
import sys

COLUMNS = ["gpu", "op", "input_dims", "input_types", "input_strides", "concrete_inputs", "kernel", "count",
           "median_us", "min_us", "max_us"]


def operators(events):
    """By external id: what a row says of the operator."""
    found = {}
    for event in events:
        args = event.get("args", {})
        if event.get("cat") == "cpu_op" and "External id" in args:
            form = [json.dumps(args.get(key, [])) for key in
                    ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")]
            found[args["External id"]] = (event["name"], *form)
    return found


def main():
    path, gpu = sys.argv[1:]
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    known, times = operators(events), collections.defaultdict(list)
    for event in events:
        operator = known.get(event.get("args", {}).get("External id"))
        if event.get("cat") == "kernel" and operator:
            times[(*operator, event["name"][:120])].append(event["dur"])
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for form, took in times.items():
        numbers = [statistics.median(took), min(took), max(took)]
        table.writerow([gpu, *form, len(took), *(f"{x:.3f}" for x in numbers)])


if __name__ == "__main__":
    main()
