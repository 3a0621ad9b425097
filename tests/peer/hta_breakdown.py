#!/usr/bin/env python3
"""What HTA (Holistic Trace Analysis) computes of a trace.json, as one line of JSON.

    hta_breakdown.py trace.json

Its temporal breakdown in microseconds, how much of communication it finds overlapped in percent, the
rank that it finds, kernels by type, and when the first one begins. Nanoseconds are kept (HTA rounds them to microseconds unless
told not to). Exit status 77 where the package is not installed.
"""
import json
import logging
import os
import sys
import warnings

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
try:
    from hta.trace_analysis import TraceAnalysis
except ImportError:
    sys.exit(77)

path = os.path.abspath(sys.argv[1])
analysis = TraceAnalysis(trace_files=[path], trace_dir=os.path.dirname(path))
breakdown = analysis.get_temporal_breakdown(visualize=False).iloc[0]
overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]
types, _ = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
with open(path) as file:
    first = min(event["ts"] for event in json.load(file)["traceEvents"] if "stream" in event.get("args", {}))
print(json.dumps({
    "first_us": first,
    "rank": int(breakdown["rank"]),
    "idle_us": float(breakdown["idle_time(us)"]),
    "compute_us": float(breakdown["compute_time(us)"]),
    "non_compute_us": float(breakdown["non_compute_time(us)"]),
    "kernel_us": float(breakdown["kernel_time(us)"]),
    "overlap_percent": float(overlap["comp_comm_overlap_pctg"]),
    "types": {row["kernel_type"]: float(row["sum"]) for _, row in types.iterrows()},
}))
