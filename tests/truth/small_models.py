"""Small models of any family of transformers: sizes for whatever keys a class has, and keys drawn at random."""
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SMALL = {  # keys of sizes, whatever class has them
    ("hidden_size", "d_model", "n_embd", "dim", "model_dim", "embed_dim", "word_embed_proj_dim", "lru_width"): 64,
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers", "num_encoder_layers",
     "num_decoder_layers"): 2,
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "encoder_attention_heads"): 4,
    ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "decoder_ffn_dim", "encoder_ffn_dim"): 112,
    ("vocab_size",): 97,
    ("moe_intermediate_size", "expert_ffn_hidden_size", "shared_expert_intermediate_size", "shared_intermediate_size"): 32,
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"): 4,
    ("q_lora_rank",): 48, ("kv_lora_rank",): 16, ("qk_rope_head_dim",): 8, ("qk_nope_head_dim",): 16, ("v_head_dim",): 24,
    ("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"): 2, ("n_group", "topk_group"): 1,
    ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"): 64,
    ("index_n_heads",): 2, ("index_head_dim",): 24, ("index_topk",): 8,
    ("head_dim", "global_head_dim", "qk_head_dim"): 16, ("rotary_dim",): 8,
}
IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id")


def small(kind):
    """Keys that make a model of that type small, as far as its class has them."""
    config_class = CONFIG_MAPPING[kind]
    values = vars(config_class()) | {k: None for k in getattr(config_class, "attribute_map", {})}
    fields = {}
    for names, number in SMALL.items():
        for name in names:
            old = values.get(name)
            if isinstance(old, int) and not isinstance(old, bool):
                fields[config_class.attribute_map.get(name, name)] = number
    heads, grouped = 4, values.get("num_key_value_heads")
    if isinstance(grouped, int):
        fields["num_key_value_heads"] = heads if grouped == values.get("num_attention_heads") else 2
    elif "num_key_value_heads" in values:
        fields["num_key_value_heads"] = 2
    for name in IDS:
        old = values.get(name)
        if isinstance(old, int) and old >= 97:
            fields[name] = 1
    if isinstance(values.get("first_k_dense_replace"), int):
        fields["first_k_dense_replace"] = 1
    if isinstance(values.get("sliding_window"), int):
        fields["sliding_window"] = 8
    for name in ("num_experts_per_tok", "n_routed_experts", "n_shared_experts"):   # classes that leave them open
        if name in values and values[name] is None:
            fields[name] = {"n_routed_experts": 4, "n_shared_experts": 1}.get(name, 2)
    if "qk_rope_head_dim" in fields:    # heads have two parts, and no size besides
        for name in ("head_dim", "qk_head_dim"):
            fields.pop(name, None)
    elif "head_dim" in values:
        fields["head_dim"] = 16
    if "attention_types" in values:     # GPT-Neo's, of all layers
        fields["attention_types"] = [[["global", "local"], 1]]
    for name in ("layer_types", "layers_block_type", "mlp_layer_types"):
        if isinstance(values.get(name), (list, tuple)) and values[name]:
            kinds = list(dict.fromkeys(values[name]))
            fields[name] = [kinds[0], kinds[-1]]
    return fields


def ropes(values, positions):
    """Objects that a file may have for its RoPE, but for dynamic ones: they ask for values, and fake tensors have none."""
    theta = values.get("default_theta", 1e4)
    d = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
    yield {"rope_type": "default", "rope_theta": 5e5}
    yield {"rope_type": "linear", "rope_theta": theta, "factor": 4.0}
    yield {"rope_type": "yarn", "rope_theta": theta, "factor": 4.0, "original_max_position_embeddings": positions // 4}
    yield {"rope_type": "llama3", "rope_theta": theta, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": positions // 2}
    yield {"rope_type": "longrope", "rope_theta": theta, "short_factor": [1.0] * (d // 2), "long_factor": [2.0] * (d // 2),
           "original_max_position_embeddings": positions // 2}


DRAWN = {   # keys that a class may have, and values for them
    "num_key_value_heads": (1, 2, 4), "head_dim": (8, 12, 16, 24, 40), "num_hidden_layers": (1, 2, 3), "tie_word_embeddings": (True, False),
    "attention_bias": (True, False), "mlp_bias": (True, False), "bias": (True, False), "use_bias": (True, False), "qkv_bias": (True, False),
    "use_qk_norm": (True, False), "sliding_window": (4, 8, 64), "use_sliding_window": (True, False), "max_window_layers": (0, 1, 2),
    "vocab_size": (97, 128), "intermediate_size": (96, 112), "moe_intermediate_size": (24, 32), "num_experts": (3, 4, 6),
    "num_local_experts": (3, 4, 6), "n_routed_experts": (4, 6), "num_experts_per_tok": (1, 2, 3), "norm_topk_prob": (True, False),
    "first_k_dense_replace": (0, 1), "n_shared_experts": (1, 2), "num_shared_experts": (1, 2), "shared_expert_intermediate_size": (24, 40),
    "decoder_sparse_step": (1, 2), "partial_rotary_factor": (0.25, 0.5, 1.0), "attention_dropout": (0.0, 0.1), "q_lora_rank": (None, 24),
    "parallel_attn": (True, False), "use_parallel_residual": (True, False), "final_logit_softcapping": (None, 30.0),
    "attn_logit_softcapping": (None, 50.0), "logits_scaling": (1.0, 8.0), "residual_multiplier": (1.0, 0.25), "pad_token_id": (None, 0),
    "index_topk": (4, 64), "index_head_dim": (16,), "index_n_heads": (1, 3),
    "layer_types": ("random",), "mlp_layer_types": ("random",), "rope_parameters": ("random",),
}


def drawn(kind, random):
    """Fields of a config of that type."""
    base = small(kind)
    values = CONFIG_MAPPING[kind](**base).to_dict()
    keys = [k for k in DRAWN if k in values]
    fields = dict(base)
    for key in random.sample(keys, min(len(keys), random.randint(2, 5))):
        fields[key] = random.choice(DRAWN[key])
    layers = fields.get("num_hidden_layers", 2)
    for key in ("layer_types", "mlp_layer_types"):
        words = list(dict.fromkeys(values.get(key) or ()))
        if key in fields and values.get(key):
            words = words if len(words) > 1 else {"layer_types": ["full_attention", "sliding_attention"], "mlp_layer_types": ["dense", "sparse"]}[key]
            fields[key] = words + [random.choice(words) for _ in range(layers)]
            fields[key] = random.sample(fields[key][:layers], layers)
    if fields.get("rope_parameters") == "random":
        positions = fields.get("max_position_embeddings", 64)
        fields["rope_parameters"] = random.choice(list(ropes({**values, **fields, "rope_parameters": None}, positions)))
    return fields
