#!/usr/bin/env python3
"""A file of `shardplan export --to fsdp2`, applied to a model of real torch: its second step is
recorded as tests/truth/record.py records (fake tensors, a process group that does nothing) and set
beside the events that shardplan predicts for the plan.

    fsdp2_export.py EXPORTED.py CONFIG.json EVENTS [EXPORTED.py CONFIG.json EVENTS ...]

EVENTS is what `shardplan fit --from EXPORTED.py --events EVENTS` wrote. Prints "EXPORTED.py: N events
equal", or the first that differ; exit status 1 then.
"""
import importlib.util
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "truth"))

import record  # noqa: E402
import recorder  # noqa: E402
from torch.utils._python_dispatch import _disable_current_modes  # noqa: E402


def load(path):
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written_model(c):
    """The recorder's own torchtitan Llama of a config.json."""
    return {"kind": "llama", "dim": c["hidden_size"], "layers": c["num_hidden_layers"],
            "heads": c["num_attention_heads"], "kv_heads": c["num_key_value_heads"],
            "ffn": c["intermediate_size"], "vocab": c["vocab_size"]}


def configuration(settings, config):
    """A configuration of the recorder: the model and what a training script says."""
    code = settings["code"]
    model = dict(config, kind="hf") if code == "hf" else written_model(config)
    model.pop("architectures", None)
    model.update(batch=settings["micro_batch"], seq=settings["seq"])
    optimizer = settings["optimizer"]
    strategy = {
        "world": settings["gpus"], "rank": settings["rank"], "replicate": settings["replicate"],
        "accumulate": settings["accumulate"], "no_sync": settings["accumulate_sync"] == "last",
        "store_dtype": settings["store_dtype"], "clip": settings["clip"] != "off",
        "optimizer": optimizer if optimizer == "sgd" else f"adamw_{settings['optimizer_impl']}",
        "units": settings["units"], "offload": settings["offload"] == "cpu",
    }
    if code == "hf":
        strategy["code"] = "hf"
    return {"name": "exported", "model": model, "strategy": strategy}


def system_of(exported):
    settings = exported.SETTINGS
    two_meshes = settings["experts_replicate"] not in (0, settings["replicate"])

    class Exported(record.Fsdp2):
        def shard(self, model, blocks):
            with _disable_current_modes():      # a mesh reads its own rank tensor
                mesh = exported.make_mesh("cpu")
                experts = exported.make_mesh("cpu", "experts_replicate") if two_meshes else None
            record.TAIL[0] = "norm, output" if self.s["units"] == "torchtitan" else None
            return exported.apply(model, mesh, experts)

        def synced(self, model, last, sync):
            if self.s["accumulate"] > 1:
                exported.before_micro_batch(model, last)
            return recorder.contextlib.nullcontext()
    return Exported


def compare(path, config_path, events_path):
    exported = load(path)
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    with open(events_path, encoding="utf-8") as file:
        planned = [json.loads(line) for line in file]
    row = recorder.record(configuration(exported.SETTINGS, config), system_of(exported))
    recorded = row["event_list"]
    planned = [[size, category, where, what] for size, category, where, _, what in planned]
    wrong = [i for i, (a, b) in enumerate(zip(planned, recorded)) if a != b]
    for i in wrong[:3]:
        print(f"{path}: event {i}: planned {planned[i]} recorded {recorded[i]}")
    if wrong or len(planned) != len(recorded):
        print(f"{path}: {len(wrong)} of {len(planned)} events differ, {len(recorded)} recorded")
        return 1
    print(f"{path}: {len(recorded)} events equal")
    return 0


def main():
    files = sys.argv[1:]
    return max(compare(*files[i:i + 3]) for i in range(0, len(files), 3))


if __name__ == "__main__":
    sys.exit(main())
