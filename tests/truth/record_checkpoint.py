#!/usr/bin/env python3
"""Record what torch.distributed.checkpoint writes of an FSDP2 model and its AdamW.

    for N in 2 3 4; do torchrun --nproc_per_node N record_checkpoint.py OUT.jsonl FOLDER; done
    for N in 2 3 4; do torchrun --nproc_per_node N record_checkpoint.py LOADS.jsonl FOLDER load; done

Real processes over gloo, one step of real parameters. A row a run and a case: name, model, strategy,
`payload` (bytes of each rank's file that are elements of tensors with a dim, by the checkpoint's own
metadata), `items` (tensors of each file), `files` (their sizes), `whole` (bytes of all such tensors).
What was saved by each number of ranks is loaded by each: `saved_by`, and `read`, each rank's bytes of
the chunks that it reads, which are whole where it needs a part.
"""
import json
import os
import pickle
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

import models
import record
from record_start_up import GPT2, LLAMA, ODD

CASES = (("llama", LLAMA, {}), ("odd", ODD, {}), ("gpt2", GPT2, {}), ("llama-hsdp", LLAMA, {"replicate": 2}))


def payload_of(folder, world):
    """Of each rank's file: bytes and number of its tensors' chunks."""
    with open(os.path.join(folder, ".metadata"), "rb") as file:
        metadata = pickle.load(file)
    payload, items, whole = [0] * world, [0] * world, 0
    for index, stored in metadata.storage_data.items():
        meta = metadata.state_dict_metadata[index.fqn]
        if not hasattr(meta, "chunks") or not meta.size:
            continue
        chunk = next(c for c in meta.chunks if index.offset is None or c.offsets == index.offset)
        size = chunk.sizes.numel() * meta.properties.dtype.itemsize
        rank = int(stored.relative_path.split("_")[2])
        payload[rank] += size
        items[rank] += 1
        whole += size
    return payload, items, whole


def made(m, s):
    """The state of a model and its optimizer after a step."""
    torch.manual_seed(0)
    model, blocks = models.make(m, s)
    record.Fsdp2(m, s).shard(model, blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    return dict(zip(("model", "optim"), get_state_dict(model, optimizer)))


class Reader(dcp.FileSystemReader):
    """Counts what it reads of tensors with a dim."""
    read = 0

    def read_data(self, plan, planner):
        for item in plan.items:
            chunks = getattr(planner.metadata.state_dict_metadata[item.storage_index.fqn], "chunks", None)
            meta = planner.metadata.state_dict_metadata[item.storage_index.fqn]
            if chunks and meta.size:
                chunk = next(c for c in chunks if c.offsets == item.storage_index.offset)
                self.read += chunk.sizes.numel() * meta.properties.dtype.itemsize
        return super().read_data(plan, planner)


def save(path, row, folder):
    world = dist.get_world_size()
    dcp.save(made(row["model"], row["strategy"]), checkpoint_id=folder)
    payload, items, whole = payload_of(folder, world)
    files = [os.path.getsize(os.path.join(folder, f"__{r}_0.distcp")) for r in range(world)]
    write(path, {**row, "payload": payload, "items": items, "files": files, "whole": whole})


def load(path, row, folder, saved_by):
    reader = Reader(folder)
    dcp.load(made(row["model"], row["strategy"]), storage_reader=reader)
    read = [None] * dist.get_world_size()
    dist.all_gather_object(read, reader.read)
    write(path, {**row, "saved_by": saved_by, "read": read})


def write(path, row):
    if dist.get_rank() == 0:
        with open(path, "a") as out:
            out.write(json.dumps(row) + "\n")


def main():
    path, folder = sys.argv[1:3]
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    for name, m, extra in CASES:
        if world % extra.get("replicate", 1):
            continue
        row = {"name": f"{name}-{world}", "model": m, "strategy": {"world": world, **extra},
               "torch": torch.__version__}
        if sys.argv[3:] != ["load"]:
            save(path, row, os.path.join(folder, f"{name}-{world}"))
            continue
        for saved_by in (2, 3, 4):
            saved = os.path.join(folder, f"{name}-{saved_by}")
            if os.path.exists(saved) and "replicate" not in extra:
                load(path, row, saved, saved_by)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
