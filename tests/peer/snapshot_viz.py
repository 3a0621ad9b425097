#!/usr/bin/env python3
"""PyTorch's own tools on a memory snapshot of ours: snapshot_viz.py SNAPSHOT TRACE.

torch.cuda._memory_viz reads it: trace, trace_plot, segment_plot, stats, and what memory and segments hand to
flamegraph.pl (which is a program of its own). Their sums are the bytes that TRACE, of the same step, ends with;
every byte has a frame; and the record replayed from its beginning ends with the blocks that are there.
Exit status 77: there is no torch."""
import collections
import json
import pickle
import sys

try:
    from torch.cuda import _memory_viz as viz
except ImportError:
    sys.exit(77)


def last_allocated(path):
    """What the last sample of a trace, recorded or planned, says is allocated."""
    with open(path) as file:
        samples = [e for e in json.load(file)["traceEvents"] if e["ph"] == "C"]
    return int([e["args"].get("allocated", e["args"].get("bytes")) for e in samples
                if e["name"] in ("memory recorded", "memory allocated")][-1])


def sums(lines):
    """Bytes by state, and those without a frame, of lines "stream_0;active_allocated;frame 512"."""
    states, unnamed = collections.Counter(), 0
    for line in lines.splitlines():
        path, size = line.rsplit(" ", 1)
        state = [part for part in path.split(";") if part.startswith(("active", "inactive"))][0]
        states[state] += int(size)
        if state.startswith("active") and "plan.json" not in path and "<gaps>" not in path:
            unnamed += int(size)
    return states, unnamed


def replayed(trace):
    live = {}
    for event in trace:
        if event["action"] == "alloc":
            assert event["addr"] not in live, event
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_requested":
            del live[event["addr"]]
    return live


def main(path, of_trace):
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    [trace] = snapshot["device_traces"]
    blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
    live = {b["address"]: b["requested_size"] for b in blocks if b["state"] == "active_allocated"}
    assert replayed(trace) == live, "the record does not end with the blocks that are there"
    listed = viz.trace(snapshot)
    assert f"{len(trace)} entries" in listed
    for plot in (viz.trace_plot, viz.segment_plot):
        assert "MemoryViz" in plot(snapshot) or "memory_viz" in plot(snapshot).lower()
    viz.segsum(snapshot)
    for lines in (viz.memory(snapshot, lambda text: text), viz.segments(snapshot, lambda text: text)):
        states, unnamed = sums(lines)
        assert states["active_allocated"] == last_allocated(of_trace), (states, last_allocated(of_trace))
        assert sum(states.values()) == sum(s["total_size"] for s in snapshot["segments"])
        assert unnamed == 0, f"{unnamed} bytes have no frame"
    names = {f["name"] for b in blocks for f in b.get("frames", [])}
    assert any("layers.0." in name for name in names), names


if __name__ == "__main__":
    main(*sys.argv[1:])
