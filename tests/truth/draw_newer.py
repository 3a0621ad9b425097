"""What later settings ask for, over draw_wide.py's jobs of transformers' models: adapters of every family, weights in few bits,
gradients of inputs, units of adapters and embeddings, packed samples, TRL's preferences, activations on the host.
`further(random.Random(...), m, s, system)` changes a job in place."""
import importlib.util

import draw_models
import draw_towers

FEW_BITS = ("ddp", "single")
TOKENS = 1552       # of fewer than 1537 what runs depends on the GPU (quantized.py)
NO_ADAPTERS = {"t5", "mt5", "gpt_oss", "bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "modernbert", "eurobert"}


def there(name):
    return importlib.util.find_spec(name) is not None


def adapters(rng, m, s, system):
    """Of any family: what peft knows the layers of by itself, and all linear ones."""
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as known
    if m["model_type"] in NO_ADAPTERS or "ignore" in s or "experts_replicate" in s:
        return
    s.pop("freeze", None)
    s["lora"] = rng.choice(["4", "8"] if m["model_type"] in known and rng.random() < 0.5 else ["4,all-linear", "8,all-linear"])
    if rng.random() < 0.2:
        s["lora_dropout"] = 0.1
    if system == "fsdp1":
        s["use_orig_params"] = True
    if system in FEW_BITS and rng.random() < 0.6:
        s.update(store_dtype=rng.choice(["bf16", "bf16", "fp16"]), lora_dtype="fp32")
    elif system in ("fsdp2", "real") and rng.random() < 0.4:
        s.update(store_dtype="bf16", lora_dtype="fp32", param_dtype="bf16", reduce_dtype=rng.choice(["fp32", "bf16"]))
    if system == "fsdp2" and "blocks_per_unit" not in s and rng.random() < 0.3:
        s["adapter_units"] = 1


def few_bits(rng, m, s, system):
    """QLoRA, as bitsandbytes has it."""
    if not there("bitsandbytes") or s.get("store_dtype") != "bf16" or s.get("ac") == "selective":
        return
    m.update(batch=1, seq=TOKENS, **{key: TOKENS for key in ("max_position_embeddings", "n_positions") if key in m})
    if rng.random() < 0.3 and not is_latent(m):
        s["load_in_8bit"] = True
    else:
        s["load_in_4bit"] = rng.choice(["nf4", "nf4", "fp4"])
        s["double_quant"] = rng.random() < 0.5
        s["compute_dtype"] = rng.choice(["bf16", "bf16", None])
    if rng.random() < 0.3:
        s["kbit"] = True
        if rng.random() < 0.4:
            s["cast_back"] = rng.choice(["*norm*", "*norm*,*embed*,*lm_head*"])
    if rng.random() < 0.15:
        s["skip_modules"] = rng.choice(["lm_head,o_proj", "lm_head,down_proj", "q_proj"])


def few_bits_sharded(rng, m, s, system):
    """QLoRA where weights are cut, which they are in the dtype that they are packed in."""
    if not there("bitsandbytes") or s.get("ac") == "selective" or s.keys() & {"ignore", "shard_dim", "compile", "lora_kernels", "task", "zero_quantized_weights"}:
        return
    m.update(batch=1, seq=TOKENS, **{key: TOKENS for key in ("max_position_embeddings", "n_positions") if key in m})
    made = s.get("param_dtype") or s.get("store_dtype") or "bf16"
    if made == "fp32":
        made = "bf16"
    s.update(load_in_4bit=rng.choice(["nf4", "nf4", "fp4"]), double_quant=rng.random() < 0.5, compute_dtype=made, quant_storage=made, store_dtype=made)
    if system == "zero":
        s["kbit"] = rng.random() < 0.3
        s["quant_storage"] = rng.choice([None, made])
        s["lora_dtype"] = rng.choice([None, "fp32"])
        if s["stage"] == 3 and rng.random() < 0.7:
            s["stage3_param_persistence_threshold"] = rng.choice([0, 100, 3000])
    if rng.random() < 0.15:
        s["skip_modules"] = rng.choice(["lm_head,o_proj", "lm_head,down_proj"])


def is_latent(m):
    return m["model_type"] in draw_models.LATENT or "kv_lora_rank" in m


def preferences(rng, m, s, system):
    m["batch"] = rng.choice([2, 4])
    s["loss"] = "dpo"
    for key in ("keep_outputs", "liger", "find_unused_parameters"):
        s.pop(key, None)
    whole = system in ("single", "ddp") or s.get("stage", 3) < 3
    if "lora" not in s and (not whole or rng.random() < 0.4):
        s["precompute_ref_log_probs"] = True


def packed(rng, m, s):
    m.update(batch=1, seq=rng.choice([17, 24, 33, 48]))
    m["sample_tokens"] = rng.choice([7, 10, 12, 16])
    s["attention"] = "flash-attn"


def embeddings_alone(rng, m, s):
    s.pop("reshard_units", None)
    s["units"] = "embeddings"


def takes_flash_attn(kind):
    import draw_wide
    return draw_wide.takes_flash_attn(kind)


def embedding_has_a_name(m):
    """Whether the model's embedding is where record.py looks for it."""
    import models
    return m["model_type"] not in models.HF


def further(rng, m, s, system):
    narrow = {"bf16", "fp16"} & {s.get("param_dtype"), s.get("autocast")} or s.get("param_dtype") is None and s.get("store_dtype") == "bf16"
    if "lora" not in s and rng.random() < 0.35:
        adapters(rng, m, s, system)
    if system in FEW_BITS and s.get("lora_dtype") and "lora_kernels" not in s and rng.random() < 0.5:
        few_bits(rng, m, s, system)
    if system in ("zero", "fsdp1") and "lora" in s and "lora_dtype" not in s and rng.random() < 0.3:
        few_bits_sharded(rng, m, s, system)
    if ("lora" in s or "embed" in s.get("freeze", "")) and s.get("ac") != "reentrant" and s.get("keep_outputs") != "next" and \
            s.get("stage") != 3 and rng.random() < 0.4:
        s["input_grads"] = 1
    if system == "fsdp2" and embedding_has_a_name(m) and not m.get("tie_word_embeddings") and "units" not in s and "blocks_per_unit" not in s and rng.random() < 0.2:
        embeddings_alone(rng, m, s)
    asks_for_values = "offload_optimizer" in s      # what flash-attn and preferences ask of data fake tensors cannot say
    if "loss" not in s and m["seq"] > 1 and not asks_for_values and rng.random() < 0.15:
        if there("trl") and "attention" not in s and rng.random() < 0.6 and system != "real":
            preferences(rng, m, s, system)
        elif s.get("keep_outputs") is None:
            s["loss"] = "per-token"
    if narrow and "loss" not in s and not asks_for_values and there("flash_attn") and takes_flash_attn(m["model_type"]) and system != "real" and rng.random() < 0.15:
        packed(rng, m, s)
    if there("trl") and s.get("ac") in (None, "full") and system in ("fsdp2", "ddp", "single") and "loss" not in s and \
            "load_in_4bit" not in s and "load_in_8bit" not in s and rng.random() < 0.12:
        s["activation_offloading"] = rng.choice([True, "legacy", "weights"])
        s.pop("replicate", None)
    if m["model_type"] in draw_towers.AROUND and "task" not in s and rng.random() < 0.5:
        draw_towers.seeing(rng, m, s, system)
