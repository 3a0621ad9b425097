"""Random training jobs: configurations of record.py, record_systems.py and record_zero.py, drawn from what
`shardplan fit --help` offers. `job(random.Random(...), system)` gives one; the same generator gives the same."""

import importlib.util

from draw_models import MIXTURES, frozen, layers_of, some, transformers, written

WORLDS = [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 12, 16, 64, 256]


def common(rng, m, s):
    """What all systems have."""
    s["world"] = rng.choice(WORLDS)
    s["rank"] = rng.choice([0, 0, s["world"] - 1, rng.randrange(s["world"])])
    ac = some(rng, 0.35, lambda: rng.choice(["full", "selective", "reentrant"]))
    if ac:
        s["ac"] = ac
        if rng.random() < 0.2 and ac != "reentrant":
            s["ac_early_stop"] = False
        if rng.random() < 0.3:
            s["ac_blocks"] = rng.choice(["first-1", "first-2", "first-50%", "every-2", "every-3"])
    if rng.random() < 0.3:
        s["accumulate"] = rng.choice([2, 2, 3, 4])
    if rng.random() < 0.3:
        s["clip"] = True
    s["optimizer"] = rng.choice(["adamw_foreach", "adamw_foreach", "adamw_fused", "adamw_loop", "sgd"])
    if rng.random() < 0.15:
        bitsandbytes = [] if s.get("system", "fsdp2") == "fsdp2" else ["adamw_bnb_8bit", "adamw_bnb_8bit", "paged_adamw_32bit"]
        s["optimizer"] = rng.choice(["adamw_torch_8bit", *bitsandbytes])
        if rng.random() < 0.2:
            s["embedding_bits"] = 8
    return s


def precision(rng, s):
    how = rng.choice(["mixed", "mixed", "mixed", "plain", "bf16", "fp16", "low", "odd"])
    if how == "mixed":
        s.update(param_dtype="bf16", reduce_dtype="fp32")
    elif how == "bf16":
        s.update(param_dtype="bf16", reduce_dtype="bf16")
    elif how == "fp16":
        s.update(param_dtype="fp16", reduce_dtype=rng.choice(["fp16", "fp32"]))
    elif how == "low":
        s.update(store_dtype="bf16")
    elif how == "odd":
        s.update(store_dtype=rng.choice(["fp32", "bf16"]), param_dtype=rng.choice(["bf16", "fp16", "fp32"]),
                 reduce_dtype=rng.choice(["bf16", "fp32"]))


def divisor(rng, n):
    return rng.choice([d for d in range(1, n + 1) if n % d == 0])


def adapters(rng, m, s):
    """Sometimes peft's adapters, for families that peft has a default of."""
    if m.get("model_type") not in ("llama", "mistral", "qwen2", "qwen3", "gpt2", "gemma2", "phi3") or "freeze" in s or rng.random() > 0.4:
        return False
    s["lora"] = rng.choice(["4", "8,all-linear"] if m["model_type"] == "phi3" else
                           ["4", "8,c_attn,c_proj", r"8,.*\.h\.[02]\..*c_(attn|proj)"] if m["model_type"] == "gpt2" else
                           ["4", "8,q_proj,v_proj", "8,all-linear", r"8,model.layers.[\d]+.(self_attn|mlp).(q|v|up)_proj",
                            r"4,(?:.*\.layers\.[1]\.self_attn\.[qkvo]_proj|.*\.0\.mlp\.\w+_proj)"])
    if rng.random() < 0.3:
        s["lora_dropout"] = rng.choice([0.05, 0.1])
    if importlib.util.find_spec("axolotl") and s.get("system", "fsdp2") in ("fsdp2", "ddp", "single") and \
            m["model_type"] in ("llama", "mistral", "qwen2", "qwen3", "gemma2") and rng.random() < 0.3:
        s["lora_kernels"] = rng.choice(["mlp,qkv,o", "mlp,qkv,o", "qkv,o", "mlp", "o"])
        s["lora"] = rng.choice([s["lora"], "8,all-linear"])
    return True


def beside_16_bits(rng, m, s):
    """Adapters, often of a model that was loaded in 16 bits."""
    if adapters(rng, m, s) and not s.get("store_dtype") and rng.random() < 0.7:
        s.update(store_dtype=rng.choice(["bf16", "bf16", "fp16"]), lora_dtype="fp32")


def fsdp2(rng, m):
    s = common(rng, m, {})
    precision(rng, s)
    if rng.random() < 0.25:
        s["replicate"] = divisor(rng, s["world"])
    shard = s["world"] // s.get("replicate", 1)
    how = rng.choice(["default"] * 4 + ["always", "never", "int"])
    s["reshard"] = divisor(rng, shard) if how == "int" else how
    if m["kind"] == "llama" and rng.random() < 0.35:
        s["units"] = "torchtitan"
    if rng.random() < 0.2 and m.get("model_type") != "t5" and "units" not in s:
        s["blocks_per_unit"] = rng.choice([2, 3])
    if rng.random() < 0.15:
        s["forward_prefetch"] = rng.randint(1, 3)
    if rng.random() < 0.15:
        s["backward_prefetch"] = rng.randint(1, 3)
    if s.get("accumulate") and rng.random() < 0.4:
        s["no_sync"] = False
    if s.get("accumulate") and rng.random() < 0.3:
        s["last_only"] = [f for f in ("is_last_backward", "requires_all_reduce", "reshard_after_backward") if rng.random() < 0.5]
    if rng.random() < 0.1:
        s["max_input_buffers"] = rng.choice([2, 3])
    if rng.random() < 0.1 and how != "int" and shard in (1, 2, 4, 8):     # torch refuses dims that it does not divide
        s["shard_dim"] = 1
    if rng.random() < 0.1:
        s["offload"] = "cpu"
    if rng.random() < 0.2:
        s["freeze"] = frozen(rng, m)
    if rng.random() < 0.05 and m["kind"] == "llama" and s.get("units"):
        s["unshard_in_backward_off"] = ["tok_embeddings"]
    if adapters(rng, m, s) and not s.get("param_dtype") and rng.random() < 0.5:
        s.update(store_dtype="bf16", lora_dtype="fp32", param_dtype="bf16", reduce_dtype="fp32")
    if m.get("model_type") in MIXTURES and "units" not in s and "blocks_per_unit" not in s and rng.random() < 0.3:
        s["experts_replicate"] = divisor(rng, s["world"])
    if rng.random() < 0.2 and layers_of(m) > 1 and m["kind"] != "hf" and how != "never":
        names = [f"{'h' if m['kind'] == 'gpt2' else 'layers'}.{i}" for i in range(0, layers_of(m), s.get("blocks_per_unit", 1))]
        kept = rng.sample(names, rng.randint(2, len(names))) if len(names) > 2 and rng.random() < 0.7 else names[-1:]
        s["reshard_units"] = {name: False for name in sorted(kept)}
    return s


def ddp(rng, m):
    s = common(rng, m, {"system": "ddp"})
    if rng.random() < 0.6:
        s["bucket_cap_mb"] = rng.choice([0.01, 0.05, 0.2, 1, 100])
    if rng.random() < 0.4:
        s["gradient_as_bucket_view"] = True
    if rng.random() < 0.2:
        s["static_graph"] = True
    if rng.random() < 0.3:
        s["comm_hook"] = rng.choice(["allreduce", "bf16_compress", "fp16_compress"])
    if rng.random() < 0.35 and not s.get("static_graph"):
        s["find_unused_parameters"] = True
    if rng.random() < 0.1:
        s["broadcast_buffers"] = False
    if rng.random() < 0.2 and s["optimizer"].startswith("adamw") and not s["optimizer"].endswith("bit"):   # the recorder's is AdamW
        s["zero_redundancy"] = rng.choice(["plain", "bucket_view"])
        s["optimizer"] = s["optimizer"].replace("adamw_loop", "adamw_foreach")
    how = rng.choice(["plain", "plain", "bf16", "autocast", "autocast"])
    if how == "bf16":
        s["store_dtype"] = rng.choice(["bf16", "fp16"])
    elif how == "autocast":
        s["autocast"] = "bf16"
    if s.get("accumulate") and rng.random() < 0.4 or s.get("static_graph"):
        s["no_sync"] = False
    if rng.random() < 0.2:
        s["freeze"] = frozen(rng, m)
    beside_16_bits(rng, m, s)
    return s


def single(rng, m):
    s = common(rng, m, {"system": "single"})
    s.update(world=1, rank=0)
    if rng.random() < 0.6:
        s["autocast"] = "bf16"
    if rng.random() < 0.2:
        s["freeze"] = frozen(rng, m)
    beside_16_bits(rng, m, s)
    return s


def fsdp1(rng, m):
    s = common(rng, m, {"system": "fsdp1"})
    precision(rng, s)
    s["sharding"] = rng.choice(["FULL_SHARD"] * 3 + ["SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"])
    if "HYBRID" in s["sharding"]:
        s["world"] = rng.choice([4, 6, 8, 16])
        s["rank"] = rng.randrange(s["world"])
        s["replicate"] = rng.choice([r for r in range(2, s["world"]) if s["world"] % r == 0])
    s["wrap"] = rng.choice(["blocks"] * 4 + ["titan", "none", rng.randint(100, 30000)])
    s["backward_prefetch"] = rng.choice(["pre", "pre", "post", None])
    for key, likelihood in (("forward_prefetch", 0.2), ("use_orig_params", 0.4), ("keep_low_precision_grads", 0.1)):
        if rng.random() < likelihood:
            s[key] = True
    if s.get("keep_low_precision_grads") and not s.get("param_dtype"):
        s.pop("keep_low_precision_grads")
    if rng.random() < 0.2:
        s["limit_all_gathers"] = False
    if s.get("accumulate") and rng.random() < 0.4:
        s["no_sync"] = False
    if rng.random() < 0.1:
        s["offload"] = "cpu"
    if rng.random() < 0.2 and not s.get("store_dtype") and not s.get("param_dtype"):
        s["autocast"] = "bf16"
    if rng.random() < 0.15:
        s["freeze"] = frozen(rng, m)
        s["use_orig_params"] = rng.random() < 0.8
    if adapters(rng, m, s):
        s["use_orig_params"] = True
        if rng.random() < 0.4:      # as transformers' Trainer wraps them
            s.update(wrap="peft", use_orig_params=rng.random() < 0.5, store_dtype="bf16", lora_dtype="fp32", param_dtype="bf16",
                     reduce_dtype=rng.choice(["bf16", "fp32"]), autocast="bf16")
    return s


def zero(rng, m):
    s = common(rng, m, {"system": "deepspeed", "stage": rng.choice([1, 2, 2, 3, 3])})
    s["param_dtype"] = rng.choice(["bf16", "bf16", "fp16"])
    s["reduce_bucket_size"] = rng.choice([2000, 20000, 300000, 500000000])
    for key, likelihood in (("overlap_comm", 0.5), ("contiguous_gradients", 0.7)):
        if rng.random() < 0.6:
            s[key] = rng.random() < likelihood
    if s["stage"] < 3:
        if rng.random() < 0.2:
            s["round_robin_gradients"] = True
        if rng.random() < 0.2:
            s["allgather_bucket_size"] = rng.choice([5000, 100000])
        if rng.random() < 0.2:
            s["grad_accum_dtype"] = "fp32"
    else:
        if rng.random() < 0.7:
            s["stage3_prefetch_bucket_size"] = rng.choice([0, 5000, 100000])
        if rng.random() < 0.7:
            s["stage3_param_persistence_threshold"] = rng.choice([0, 100, 10000])
        if rng.random() < 0.4:
            s["stage3_max_live_parameters"] = rng.choice([1000, 50000, 1000000000])
        if rng.random() < 0.4:
            s["stage3_max_reuse_distance"] = rng.choice([0, 1000, 50000, 1000000000])
        if rng.random() < 0.3:
            s["sub_group_size"] = rng.choice([5000, 40000])
        if rng.random() < 0.15:
            s["grad_accum_dtype"] = "fp32"
        if rng.random() < 0.1:
            s["stage3_model_persistence_threshold"] = rng.choice([1000, 9000])
        if rng.random() < 0.15:
            s["zero_hpz_partition_size"] = divisor(rng, s["world"])
        if rng.random() < 0.2:
            s["offload_param"] = {"device": "cpu"}
    if rng.random() < 0.15:
        s["reduce_scatter"] = False
    if rng.random() < 0.2 or "offload_param" in s:
        s["offload_optimizer"] = {"device": "cpu", **rng.choice([{}, {}, {"pin_memory": False}, {"pin_memory": True}])}
        s["optimizer"] = "adamw_foreach"    # it is DeepSpeedCPUAdam
    if rng.random() < 0.1:
        s["freeze"] = frozen(rng, m)
    elif m["kind"] == "hf":
        adapters(rng, m, s)
    return s


SYSTEMS = {"fsdp2": fsdp2, "ddp": ddp, "fsdp1": fsdp1, "zero": zero, "single": single}


def job(rng, system, name):
    """`real` are jobs of fully_shard that are computed (record_real.py)."""
    kind = {"real": "fsdp2"}.get(system, system)
    m = written(rng) if rng.random() < 0.5 else transformers(rng, kind in ("fsdp2", "zero"))
    s = SYSTEMS[kind](rng, m)
    if m["kind"] == "hf":
        s["code"] = "hf"
        if s.get("ac") in (None, "full") and kind in ("fsdp2", "ddp", "single") and system != "real":
            saved = some(rng, 0.1, lambda: rng.choice([True, True, "legacy"]))
            if saved:
                s["activation_offloading"] = saved
                s.pop("replicate", None)
    config = {"name": name, "model": m, "strategy": s}
    return computed(config) if system == "real" else config


def computed(config):
    """The same, by record_real.py."""
    m, s = config["model"], config["strategy"]
    s.pop("offload", None)      # one memory there
    if s["optimizer"].endswith("bit"):      # their kernels are not left out there
        s["optimizer"] = "adamw_foreach"
    if m["kind"] != "hf" and s.get("param_dtype") not in ("bf16", "fp16"):
        s.update(param_dtype="bf16", reduce_dtype="fp32")   # its attention is flash's, which no GPU has in fp32
    return {**config, "autograd": "gpu"}
