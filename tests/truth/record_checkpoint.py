#!/usr/bin/env python3
"""Record what torch.distributed.checkpoint writes of an FSDP2 model and its AdamW.

    for N in 2 3 4; do torchrun --nproc_per_node N record_checkpoint.py OUT.jsonl; done

Real processes over gloo, one step of real parameters. A row a run and a case: name, model, strategy,
`payload` (bytes of each rank's file that are elements of tensors with a dim, by the checkpoint's own
metadata), `items` (tensors of each file), `files` (their sizes), `whole` (bytes of all such tensors).
"""
import json
import os
import pickle
import sys
import tempfile

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


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    for name, m, extra in CASES:
        if world % extra.get("replicate", 1):
            continue
        s = {"world": world, **extra}
        torch.manual_seed(0)
        model, blocks = models.make(m, s)
        record.Fsdp2(m, s).shard(model, blocks)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        state = dict(zip(("model", "optim"), get_state_dict(model, optimizer)))
        folder = [tempfile.mkdtemp()] if dist.get_rank() == 0 else [None]
        dist.broadcast_object_list(folder)
        dcp.save(state, checkpoint_id=folder[0])
        if dist.get_rank() == 0:
            payload, items, whole = payload_of(folder[0], world)
            files = [os.path.getsize(os.path.join(folder[0], f"__{r}_0.distcp")) for r in range(world)]
            with open(sys.argv[1], "a") as out:
                out.write(json.dumps({"name": f"{name}-{world}", "model": m, "strategy": s,
                                      "torch": torch.__version__, "payload": payload, "items": items,
                                      "files": files, "whole": whole}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
