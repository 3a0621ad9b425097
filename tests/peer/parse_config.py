#!/usr/bin/env python3
"""A configuration as its own framework reads it, as one JSON object; exit status 77: the framework is
not installed.

    parse_config.py toml|yaml|torch|torchtitan|accelerate|deepspeed|transformers FILE [WORLD]
"""
import json
import os
import sys


def toml(path, _):
    import tomllib
    with open(path, "rb") as file:
        return tomllib.load(file)


def yaml(path, _):
    import yaml as library
    with open(path, encoding="utf-8") as file:
        return library.safe_load(file)


def torch(*_):
    """What tests/peer/fsdp2_export.py needs."""
    import torch as library
    import transformers as models
    return {"torch": library.__version__, "transformers": models.__version__}


def torchtitan(path, _):
    """torchtitan 0.2's own ConfigManager, which refuses keys that it does not know."""
    from torchtitan.config import ConfigManager
    assets = ["--model.hf_assets_path", os.path.dirname(path) or "."]  # it has to be there
    config = ConfigManager().parse_args(["--job.config_file", path, *assets])
    return {"name": config.model.name, "flavor": config.model.flavor,
            "seq": config.training.seq_len, "micro_batch": config.training.local_batch_size,
            "global_batch": config.training.global_batch_size, "clip": config.training.max_norm,
            "dtype": config.training.dtype, "param": config.training.mixed_precision_param,
            "offload": config.training.enable_cpu_offload,
            "shard": config.parallelism.data_parallel_shard_degree,
            "replicate": config.parallelism.data_parallel_replicate_degree,
            "reshard": config.parallelism.fsdp_reshard_after_forward,
            "optimizer": config.optimizer.implementation,
            "mode": config.activation_checkpoint.mode,
            "option": config.activation_checkpoint.selective_ac_option,
            "early_stop": config.activation_checkpoint.early_stop}


def accelerate(path, _):
    """accelerate's config class, then its FSDP plugin with the environment that the launcher makes."""
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils import FullyShardedDataParallelPlugin
    config = load_config_from_file(path)
    out = {"distributed_type": config.distributed_type.value, "num_processes": config.num_processes,
           "num_machines": config.num_machines, "mixed_precision": config.mixed_precision}
    if out["distributed_type"] == "FSDP":
        for key, value in config.fsdp_config.items():
            os.environ[key.upper()] = str(value).lower() if isinstance(value, bool) else str(value)
        plugin = FullyShardedDataParallelPlugin()
        out["fsdp_version"] = plugin.fsdp_version
        out["reshard_after_forward"] = plugin.reshard_after_forward
        out["activation_checkpointing"] = bool(plugin.activation_checkpointing)
        out["offload"] = os.environ.get("FSDP_OFFLOAD_PARAMS", "false") == "true"
        out["policy"] = plugin.auto_wrap_policy.__name__
        out["replicate"] = config.parallelism_config.get("parallelism_config_dp_replicate_size", 1)
        out["shard"] = config.parallelism_config.get("parallelism_config_dp_shard_size", 1)
    return out


def deepspeed(path, world):
    from deepspeed.runtime import config as library

    class Ranks:
        @staticmethod
        def get_rank():
            return 0

        @staticmethod
        def get_world_size():
            return world

    library.dist = Ranks
    config = library.DeepSpeedConfig(path)
    return {"stage": int(config.zero_config.stage), "bf16": config.bfloat16_config.enabled,
            "micro_batch": config.train_micro_batch_size_per_gpu,
            "accumulate": config.gradient_accumulation_steps,
            "train_batch": config.train_batch_size, "clip": config.gradient_clipping}


def transformers(path, _):
    import transformers as library
    if os.path.basename(path) == "fsdp_config.json":    # of an argument of that name
        arguments = library.TrainingArguments(output_dir="out", fsdp=True, fsdp_config=path, use_cpu=True)
    else:
        with open(path, encoding="utf-8") as file:
            arguments = library.TrainingArguments(use_cpu=True, **json.load(file))
    plugin = arguments.fsdp_plugin_args
    return {"micro_batch": arguments.per_device_train_batch_size,
            "accumulate": arguments.gradient_accumulation_steps, "clip": arguments.max_grad_norm,
            "optim": str(getattr(arguments.optim, "value", arguments.optim)), "bf16": arguments.bf16,
            "version": plugin["fsdp_version"], "reshard": plugin["reshard_after_forward"],
            "offload": plugin.get("cpu_offload", False),
            "checkpointing": plugin.get("activation_checkpointing", False),
            "policy": plugin["auto_wrap_policy"]}


def main():
    readers = {f.__name__: f for f in (toml, yaml, torch, torchtitan, accelerate, deepspeed, transformers)}
    try:
        out = readers[sys.argv[1]](sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    except ImportError as error:
        print(error, file=sys.stderr)
        return 77
    print("\n" + json.dumps(out))      # libraries print before it
    return 0


if __name__ == "__main__":
    sys.exit(main())
