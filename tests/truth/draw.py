"""Random training jobs: configurations of record.py, record_systems.py and record_zero.py, drawn from what
`shardplan fit --help` offers. `job(random.Random(...), system)` gives one; the same generator gives the same."""

WORLDS = [1, 2, 3, 4, 5, 7, 8, 8, 8, 12, 16, 64]
SEQS = [1, 2, 7, 16, 32, 32, 48]


def some(rng, likelihood, value):
    return value() if rng.random() < likelihood else None


def sizes(rng):
    """heads, kv heads, head dim: small, odd more often than in practice."""
    kv = rng.choice([1, 1, 2, 3])
    return kv * rng.choice([1, 2, 2, 4]), kv, rng.choice([8, 16, 16, 24, 32])


def written(rng):
    """A model of models.py."""
    heads, kv, head = sizes(rng)
    m = {"kind": rng.choice(["llama", "llama", "gpt2", "guide"]), "dim": heads * head,
         "layers": rng.choice([1, 2, 2, 3, 4, 5]), "heads": heads, "kv_heads": kv,
         "ffn": rng.choice([4 * heads * head, rng.randint(3, 200)]),
         "vocab": rng.choice([2, 97, 251, 503, 512, 1000]), "batch": rng.choice([1, 1, 2, 3]), "seq": rng.choice(SEQS)}
    if m["kind"] == "guide":
        m.pop("heads")
        m["dim"] = rng.choice([m["dim"], rng.randint(1, 90)])
    if m["kind"] != "llama":
        m.pop("kv_heads")
        m.pop("ffn")
    if m["kind"] == "gpt2":
        m["tied"] = rng.random() < 0.6
    return m


GROUPED = ["llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "olmo3", "smollm3", "granite", "gemma2", "gemma3_text", "glm4", "glm",
           "gemma", "starcoder2", "stablelm", "phi", "qwen3_moe", "qwen2_moe", "mixtral", "olmoe", "gpt_oss", "glm4_moe"]
OWN_HEADS = {"qwen3", "gemma2", "gemma3_text", "glm4", "glm", "gemma", "qwen3_moe", "gpt_oss", "glm4_moe"}
PADDED = {"phi3": 0, "olmo2": 0, "olmo3": 0, "smollm3": 0, "granite": 0, "gemma2": 0, "gemma3_text": 0, "glm4": 0, "glm": 0,
          "gemma": 0, "starcoder2": 0, "stablelm": 0, "phi": 0, "olmoe": 1}
WINDOWS = {"gemma2", "gemma3_text", "olmo3", "gpt_oss"}


def experts(rng, kind, m):
    n, k = rng.choice([(4, 1), (4, 2), (8, 2), (6, 4)])
    width = rng.choice([16, 48, 64])
    if kind == "mixtral":
        m.update(num_local_experts=n, num_experts_per_tok=k, intermediate_size=width)
    elif kind == "gpt_oss":
        m.update(num_local_experts=n, num_experts_per_tok=k, intermediate_size=width)
    elif kind == "olmoe":
        m.update(num_experts=n, num_experts_per_tok=k, intermediate_size=width)
    elif kind == "qwen3_moe":
        m.update(num_experts=n, num_experts_per_tok=k, moe_intermediate_size=width, norm_topk_prob=rng.random() < 0.5)
    elif kind == "qwen2_moe":
        m.update(num_experts=n, num_experts_per_tok=k, moe_intermediate_size=width,
                 shared_expert_intermediate_size=rng.choice([32, 96]))
    elif kind == "glm4_moe":
        m.update(n_routed_experts=n, num_experts_per_tok=k, moe_intermediate_size=width, n_shared_experts=1, n_group=1,
                 topk_group=1, first_k_dense_replace=rng.choice([0, 1]), norm_topk_prob=True, use_qk_norm=rng.random() < 0.5,
                 attention_bias=rng.random() < 0.5)


def transformers(rng):
    """A model of Hugging Face transformers."""
    kind = rng.choice(GROUPED + ["gpt2", "gpt2", "opt", "gpt_neox", "bert", "t5"])
    heads, kv, head = sizes(rng)
    seq = rng.choice(SEQS)
    m = {"kind": "hf", "model_type": kind, "vocab_size": rng.choice([97, 251, 503]), "batch": rng.choice([1, 2, 3]), "seq": seq}
    layers, hidden = rng.choice([1, 2, 2, 3]), heads * head
    if kind == "gpt2":
        m.update(n_positions=64, n_embd=hidden, n_layer=layers, n_head=heads, attn_pdrop=rng.choice([0.0, 0.1]),
                 embd_pdrop=rng.choice([0.0, 0.1]), resid_pdrop=rng.choice([0.0, 0.1]))
    elif kind == "opt":
        m.update(hidden_size=hidden, num_hidden_layers=layers, ffn_dim=rng.choice([4 * hidden, 99]), num_attention_heads=heads,
                 max_position_embeddings=64, word_embed_proj_dim=hidden, dropout=rng.choice([0.0, 0.1]))
    elif kind == "gpt_neox":
        m.update(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                 intermediate_size=rng.choice([4 * hidden, 99]), max_position_embeddings=64)
    elif kind == "bert":
        m.update(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden,
                 max_position_embeddings=64, hidden_dropout_prob=rng.choice([0.0, 0.1]),
                 attention_probs_dropout_prob=rng.choice([0.0, 0.1]))
    elif kind == "t5":
        m.update(d_model=hidden, d_kv=rng.choice([head, 16]), d_ff=rng.choice([4 * hidden, 99]), num_layers=layers, num_heads=heads,
                 dropout_rate=rng.choice([0.0, 0.1]))
    else:
        m.update(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv,
                 intermediate_size=rng.choice([2 * hidden, 99, 176]), max_position_embeddings=64)
        if kind in PADDED:
            m["pad_token_id"] = PADDED[kind]
        if kind in OWN_HEADS:
            m["head_dim"] = rng.choice([head, 16])
        if kind in WINDOWS:
            m["sliding_window"] = rng.choice([4, 16])
        if kind == "olmoe":
            m["eos_token_id"] = 2
        if kind in ("llama", "mistral", "qwen2", "qwen3", "granite", "stablelm", "phi", "smollm3", "olmo2") and rng.random() < 0.3:
            m["tie_word_embeddings"] = rng.random() < 0.7
        if kind in ("llama", "smollm3", "granite", "qwen3") and rng.random() < 0.2:
            m["attention_bias"] = True
        if kind == "llama" and rng.random() < 0.2:
            m["mlp_bias"] = True
        experts(rng, kind, m)
    return m


def layers_of(m):
    return m.get("layers") or m.get("num_hidden_layers") or m.get("n_layer") or m.get("num_layers")


def frozen(rng, m):
    return rng.choice({"llama": ["*norm*", "layers.0.*", "tok_embeddings.*", "tok_embeddings.*,layers.0.*", "*.w1.*", "output.*", "*attention*"],
                       "gpt2": ["wte.*,wpe.*", "*ln_*", "h.0.*", "*.bias", "*c_attn*"],
                       "guide": ["*norm*", "layers.0.*", "embedding.*", "*.bias", "output.*"],
                       "hf": ["*norm*", "*.bias", "*.0.*", "*embed*", "*q_proj*"]}[m["kind"]])


def common(rng, m, s):
    """What all systems have."""
    s["world"] = rng.choice(WORLDS)
    s["rank"] = rng.choice([0, 0, s["world"] - 1, rng.randrange(s["world"])])
    ac = some(rng, 0.35, lambda: rng.choice(["full", "selective"]))
    if ac:
        s["ac"] = ac
        if rng.random() < 0.2:
            s["ac_early_stop"] = False
        if rng.random() < 0.3:
            s["ac_blocks"] = rng.choice(["first-1", "first-2", "first-50%", "every-2", "every-3"])
    if rng.random() < 0.3:
        s["accumulate"] = rng.choice([2, 2, 3, 4])
    if rng.random() < 0.3:
        s["clip"] = True
    s["optimizer"] = rng.choice(["adamw_foreach", "adamw_foreach", "adamw_fused", "adamw_loop", "sgd"])
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
    if rng.random() < 0.1 and how != "int":
        s["shard_dim"] = 1
    if rng.random() < 0.1:
        s["offload"] = "cpu"
    if rng.random() < 0.2:
        s["freeze"] = frozen(rng, m)
    if rng.random() < 0.05 and m["kind"] == "llama" and s.get("units"):
        s["unshard_in_backward_off"] = ["tok_embeddings"]
    if m["kind"] == "hf" and m["model_type"] in ("llama", "mistral", "qwen2", "qwen3", "gpt2") and rng.random() < 0.4 and "freeze" not in s:
        s["lora"] = rng.choice(["4", "8,q_proj,v_proj", "8,all-linear"] if m["model_type"] != "gpt2" else ["4", "8,c_attn,c_proj"])
    if rng.random() < 0.1 and layers_of(m) > 1 and "blocks_per_unit" not in s and m["kind"] != "hf" and how != "int":
        prefix = "h" if m["kind"] == "gpt2" else "layers"
        s["reshard_units"] = {f"{prefix}.{layers_of(m) - 1}": False}
    return s


def ddp(rng, m):
    s = common(rng, m, {"system": "ddp"})
    if rng.random() < 0.6:
        s["bucket_cap_mb"] = rng.choice([0.01, 0.05, 0.2, 1, 100])
    if rng.random() < 0.4:
        s["gradient_as_bucket_view"] = True
    if rng.random() < 0.2:
        s["static_graph"] = True
    if rng.random() < 0.2:
        s["comm_hook"] = "bf16_compress"
    how = rng.choice(["plain", "plain", "bf16", "autocast", "autocast"])
    if how == "bf16":
        s["store_dtype"] = rng.choice(["bf16", "fp16"])
    elif how == "autocast":
        s["autocast"] = "bf16"
    if s.get("accumulate") and rng.random() < 0.4 or s.get("static_graph"):
        s["no_sync"] = False
    if rng.random() < 0.2:
        s["freeze"] = frozen(rng, m)
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
        s["use_orig_params"] = True
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
        if rng.random() < 0.15 and s["stage"] == 2:
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
        s.pop("ac", None)
    return s


SYSTEMS = {"fsdp2": fsdp2, "ddp": ddp, "fsdp1": fsdp1, "zero": zero}


EXPERTS = {"qwen3_moe", "qwen2_moe", "mixtral", "olmoe", "gpt_oss", "glm4_moe"}


def job(rng, system, name):
    m = written(rng) if rng.random() < 0.6 else transformers(rng)
    while system != "fsdp2" and m.get("model_type") in EXPERTS:     # unfilled tensors route no tokens
        m = transformers(rng)
    s = SYSTEMS[system](rng, m)
    if m["kind"] == "hf":
        s["code"] = "hf"
    return {"name": name, "model": m, "strategy": s}
