"""Random models: of models.py, and small ones of every family of Hugging Face transformers that is planned."""
import importlib.util

SEQS = [1, 2, 3, 7, 16, 31, 32, 32, 48]


def some(rng, likelihood, value):
    return value() if rng.random() < likelihood else None


def sizes(rng):
    """heads, kv heads, head dim: small, odd more often than in practice."""
    kv = rng.choice([1, 1, 2, 3])
    return kv * rng.choice([1, 2, 2, 4]), kv, rng.choice([8, 8, 16, 16, 24, 32])


def written(rng):
    """A model of models.py."""
    heads, kv, head = sizes(rng)
    m = {"kind": rng.choice(["llama", "llama", "gpt2", "guide"]), "dim": heads * head,
         "layers": rng.choice([1, 2, 2, 3, 4, 5, 7]), "heads": heads, "kv_heads": kv,
         "ffn": rng.choice([4 * heads * head, rng.randint(3, 200)]),
         "vocab": rng.choice([2, 3, 97, 251, 503, 512, 1000]), "batch": rng.choice([1, 1, 2, 3, 5]), "seq": rng.choice(SEQS)}
    if m["kind"] == "guide":
        m.pop("heads")
        m["dim"] = rng.choice([m["dim"], rng.randint(1, 90)])
    if m["kind"] != "llama":
        m.pop("kv_heads")
        m.pop("ffn")
    if m["kind"] == "gpt2":
        m["tied"] = rng.random() < 0.6
    return m


# ---- Hugging Face transformers ----

# Keys of a family's config.json beside those that all decoders have, each with what is drawn for it.
TIED = [True, False]
PAD = {"pad_token_id": [0]}
OWN_HEAD = {"head_dim": [8, 16, 24]}
DROPOUT = [0.0, 0.1]
DECODERS = {
    "llama": {"attention_bias": TIED, "mlp_bias": TIED, "tie_word_embeddings": TIED, **OWN_HEAD},
    "mistral": {"sliding_window": [4, 16, None], "tie_word_embeddings": TIED, **OWN_HEAD},
    "qwen2": {"tie_word_embeddings": TIED, "use_sliding_window": TIED, "sliding_window": [4, 16], "max_window_layers": [0, 1]},
    "qwen3": {"tie_word_embeddings": TIED, "attention_bias": TIED, **OWN_HEAD},
    "bloom": {**PAD, "tie_word_embeddings": TIED, "apply_residual_connection_post_layernorm": TIED, "hidden_dropout": DROPOUT,
              "attention_dropout": DROPOUT},
    "gemma3n_text": {**PAD, **OWN_HEAD, "sliding_window": [4, 16], "attention_bias": TIED, "tie_word_embeddings": TIED, "altup_num_inputs": [2, 3, 5],
                     "altup_active_idx": [0, 1], "laurel_rank": [3, 8], "hidden_size_per_layer_input": [4, 8],
                     "vocab_size_per_layer_input": [50, 600], "num_kv_shared_layers": [0], "attention_dropout": DROPOUT},
    "phi3": {**PAD, "tie_word_embeddings": TIED, "sliding_window": [4, 16], "resid_pdrop": DROPOUT, "attention_dropout": DROPOUT,
             "partial_rotary_factor": [0.5, 1.0]},
    "olmo2": {**PAD, "tie_word_embeddings": TIED, "attention_bias": TIED},
    "olmo3": {**PAD, "sliding_window": [4, 16]},
    "smollm3": {**PAD, "tie_word_embeddings": TIED, "no_rope_layer_interval": [2, 3], "attention_bias": TIED},
    "granite": {**PAD, "tie_word_embeddings": TIED, "attention_bias": TIED, "embedding_multiplier": [1.0, 12.0],
                "logits_scaling": [1.0, 16.0], "residual_multiplier": [1.0, 0.22], "attention_multiplier": [1.0, 0.0078125]},
    "gemma": {**PAD, **OWN_HEAD},
    "gemma2": {**PAD, **OWN_HEAD, "sliding_window": [4, 16], "attn_logit_softcapping": [None, 50.0],
               "final_logit_softcapping": [None, 30.0], "attention_bias": TIED},
    "gemma3_text": {**PAD, **OWN_HEAD, "sliding_window": [4, 16], "sliding_window_pattern": [2, 3], "attention_bias": TIED,
                    "tie_word_embeddings": TIED},
    "gemma4_text": {**PAD, **OWN_HEAD, "sliding_window": [4, 16], "attention_bias": TIED, "tie_word_embeddings": TIED,
                    "global_head_dim": [8, 16, 24], "attention_k_eq_v": TIED, "num_global_key_value_heads": [None, 1],
                    "hidden_size_per_layer_input": [0, 0, 16], "vocab_size_per_layer_input": [1024],
                    "layer_types": [None], "final_logit_softcapping": [None, 30.0]},
    "glm": {**PAD, **OWN_HEAD, "attention_bias": TIED},
    "glm4": {**PAD, **OWN_HEAD},
    "starcoder2": {**PAD, "sliding_window": [4, 16], "residual_dropout": DROPOUT, "embedding_dropout": DROPOUT,
                   "attention_dropout": DROPOUT, "use_bias": TIED, "tie_word_embeddings": TIED},
    "stablelm": {**PAD, "use_qkv_bias": TIED, "partial_rotary_factor": [0.25, 0.5], "use_parallel_residual": TIED,
                 "hidden_dropout": DROPOUT, "attention_dropout": DROPOUT, "tie_word_embeddings": TIED},
    "phi": {**PAD, "resid_pdrop": DROPOUT, "embd_pdrop": DROPOUT, "attention_dropout": DROPOUT, "partial_rotary_factor": [0.5, 1.0],
            "tie_word_embeddings": TIED},
    "seed_oss": {**OWN_HEAD, "attention_bias": TIED, "attention_out_bias": TIED, "mlp_bias": TIED, "residual_dropout": DROPOUT,
                 "attention_dropout": DROPOUT},
    "arcee": {"mlp_bias": TIED, "attention_bias": TIED, "tie_word_embeddings": TIED},
    "hunyuan_v1_dense": {**OWN_HEAD, "tie_word_embeddings": TIED},
    "exaone4": {"sliding_window": [4, 16], "sliding_window_pattern": [2, 3]},
    "ministral": {**OWN_HEAD, "sliding_window": [4, 16]},
    "helium": {**OWN_HEAD},
    "ernie4_5": {**OWN_HEAD, "use_bias": TIED, "tie_word_embeddings": TIED},
    "cohere": {"use_qk_norm": TIED, "tie_word_embeddings": TIED, "attention_bias": TIED},
    "cohere2": {"sliding_window": [4, 16]},
    "minicpm3": {"kv_lora_rank": [16, 32], "q_lora_rank": [48, None], "qk_rope_head_dim": [8], "qk_nope_head_dim": [8, 16],
                 "v_head_dim": [16], "scale_depth": [1.4, None], "dim_model_base": [32, None], "tie_word_embeddings": TIED},
    "nanochat": {**PAD, **OWN_HEAD, "final_logit_softcapping": [None, 15.0], "tie_word_embeddings": TIED, "attention_bias": TIED},
    "nemotron": {"partial_rotary_factor": [0.5, 1.0], "tie_word_embeddings": TIED, "attention_bias": TIED, "mlp_bias": TIED},
}
ALWAYS = {"pad_token_id", "eos_token_id", "head_dim"}       # of a family that has them
WIDTHS = [16, 48, 64]
COUNTS = {"num_experts_per_tok": [1, 2]}
MIXTURES = {
    "mixtral": {"num_local_experts": [4, 8], **COUNTS, "intermediate_size": WIDTHS, "sliding_window": [4, None]},
    "granitemoe": {"num_local_experts": [4, 8], **COUNTS, "intermediate_size": WIDTHS, "logits_scaling": [1.0, 6.0]},
    "gpt_oss": {"num_local_experts": [4, 8], **COUNTS, "intermediate_size": WIDTHS, **OWN_HEAD, "sliding_window": [4, 16]},
    "olmoe": {"num_experts": [4, 8], **COUNTS, "intermediate_size": WIDTHS, "pad_token_id": [1], "eos_token_id": [2],
              "norm_topk_prob": TIED},
    "qwen3_moe": {"num_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "norm_topk_prob": TIED,
                  "decoder_sparse_step": [1, 2], **OWN_HEAD},
    "qwen2_moe": {"num_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "shared_expert_intermediate_size": [32, 96]},
    "glm4_moe": {"n_routed_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "n_shared_experts": [1, 2], "n_group": [1, 2],
                 "topk_group": [1], "first_k_dense_replace": [0, 1], "norm_topk_prob": [True], "use_qk_norm": TIED,
                 "attention_bias": TIED, **OWN_HEAD},
    "hy_v3": {"num_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "num_shared_experts": [1, 2], **OWN_HEAD,
              "enable_moe_fp32_combine": TIED, "tie_word_embeddings": TIED, "attention_bias": TIED},
    "afmoe": {"num_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "num_shared_experts": [1, 2], **OWN_HEAD,
              "sliding_window": [4, 16], "num_dense_layers": [0, 1], "mup_enabled": TIED, "tie_word_embeddings": TIED,
              "attention_bias": TIED},
    "cohere2_moe": {"num_experts": [4, 8], **COUNTS, "intermediate_size": WIDTHS, "prefix_dense_intermediate_size": [None, 96],
                    "num_shared_experts": [0, 1, 2], "shared_expert_combination_strategy": ["average", "sum"],
                    "expert_selection_fn": ["softmax", "sigmoid"], "norm_topk_prob": TIED, "first_k_dense_replace": [0, 1], **OWN_HEAD,
                    "sliding_window": [4, 16], "sliding_window_pattern": [2, 4], "rms_norm_eps": [None, 1e-6], "attention_bias": TIED},
    "mistral4": {"n_routed_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "n_shared_experts": [1, 2],
                 "first_k_dense_replace": [0, 1], "kv_lora_rank": [16, 32], "q_lora_rank": [48, None], "qk_rope_head_dim": [8],
                 "qk_nope_head_dim": [8, 16], "v_head_dim": [16, 24], "n_group": [2], "topk_group": [1, 2], "norm_topk_prob": TIED,
                 "rope_interleave": TIED, "attention_bias": TIED, "pad_token_id": [0],
                 "rope_parameters": [{"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 8,
                                      "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}]},
    "mellum": {"num_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "norm_topk_prob": TIED, **OWN_HEAD,
               "sliding_window": [4, 16], "tie_word_embeddings": TIED, "attention_bias": TIED},
    "deepseek_v2": {"n_routed_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "n_shared_experts": [1, 2],
                    "first_k_dense_replace": [0, 1], "kv_lora_rank": [16, 32], "q_lora_rank": [48, None], "qk_rope_head_dim": [8],
                    "qk_nope_head_dim": [8, 16], "v_head_dim": [16], "n_group": [1], "topk_group": [1], "topk_method": ["greedy"]},
    "deepseek_v3": {"n_routed_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "n_shared_experts": [1, 2],
                    "first_k_dense_replace": [0, 1], "kv_lora_rank": [16, 32], "q_lora_rank": [48, None], "qk_rope_head_dim": [8],
                    "qk_nope_head_dim": [8, 16], "v_head_dim": [16, 24], "n_group": [2], "topk_group": [1, 2],
                    "norm_topk_prob": TIED, "rope_interleave": TIED, "attention_bias": TIED},
}
INDEXED = {**{k: v for k, v in MIXTURES["deepseek_v3"].items() if k != "rope_interleave"}, "q_lora_rank": [48], "pad_token_id": [0],
           "index_n_heads": [1, 2, 3], "index_head_dim": [16, 24], "index_topk": [4, 8, 64]}
MIXTURES["axk1"] = {**MIXTURES["deepseek_v3"], "q_lora_rank": [48], "pad_token_id": [0]}
MIXTURES["deepseek_v32"] = MIXTURES["glm_moe_dsa"] = INDEXED
if all(importlib.util.find_spec(name) for name in ("fla", "causal_conv1d")):     # whose kernels are planned
    LINEAR = {"head_dim": [24, 32], "tie_word_embeddings": TIED, "attention_bias": TIED, "attention_dropout": DROPOUT,
              "linear_num_key_heads": [2, 2, 3], "linear_num_value_heads": [6], "linear_key_head_dim": [8, 16, 24],
              "linear_value_head_dim": [8, 16, 32], "linear_conv_kernel_dim": [2, 3, 4], "full_attention_interval": [1, 2, 3, 4]}
    SPARSE = {"num_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "shared_expert_intermediate_size": [32, 96]}
    DECODERS["qwen3_5_text"] = LINEAR
    MIXTURES["qwen3_5_moe_text"] = {**LINEAR, **SPARSE}
    DECODERS["olmo_hybrid"] = {**{key: values for key, values in LINEAR.items() if key.startswith("linear")}, "attention_bias": TIED,
                               "attention_dropout": DROPOUT, "tie_word_embeddings": TIED, "linear_allow_neg_eigval": TIED,
                               "pad_token_id": [0], "eos_token_id": [1]}
    CONVOLUTION = {"conv_bias": TIED, "conv_L_cache": [2, 3, 4], "tie_word_embeddings": TIED}
    DECODERS["lfm2"] = {**CONVOLUTION, "block_auto_adjust_ff_dim": TIED, "block_multiple_of": [1, 32]}
    MIXTURES["lfm2_moe"] = {**CONVOLUTION, "num_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS, "num_dense_layers": [0, 1],
                            "norm_topk_prob": TIED, "routed_scaling_factor": [1.0, 2.5]}
    if importlib.util.find_spec("mamba_ssm"):
        DECODERS["granitemoehybrid"] = {"mamba_n_heads": [8, 16], "mamba_d_state": [8, 16], "mamba_n_groups": [1, 2, 4],
                                        "mamba_d_conv": [2, 3, 4], "mamba_chunk_size": [4, 16, 32], "mamba_conv_bias": TIED,
                                        "mamba_proj_bias": TIED, "tie_word_embeddings": TIED, "position_embedding_type": ["rope", "nope"],
                                        "shared_intermediate_size": WIDTHS, "num_local_experts": [0]}
        DECODERS["bamba"] = {"mamba_n_heads": [8, 16], "mamba_d_state": [8, 16], "mamba_n_groups": [1, 2, 4], "head_dim": [8, 16],
                             "mamba_d_conv": [2, 3, 4], "mamba_chunk_size": [4, 16, 32], "mamba_conv_bias": TIED,
                             "mamba_proj_bias": TIED, "tie_word_embeddings": TIED, "attention_bias": TIED, "mlp_bias": TIED,
                             "attention_dropout": DROPOUT}
        MUP = {name: [0.25, 1.0, 1.5] for name in (
            "embedding_multiplier", "lm_head_multiplier", "key_multiplier", "attention_in_multiplier", "attention_out_multiplier",
            "ssm_in_multiplier", "ssm_out_multiplier")}
        DECODERS["falcon_h1"] = {**DECODERS["bamba"], **MUP, "mamba_d_ssm": [64, 128, 192], "mamba_rms_norm": TIED,
                                 "mamba_norm_before_gate": TIED, "projectors_bias": TIED,
                                 "ssm_multipliers": [None, [0.5, 0.25, 0.125, 2.0, 1.0]], "mlp_multipliers": [None, [0.5, 0.25]]}
        MIXTURES["jamba"] = {"num_experts": [1, 4, 8], **COUNTS, "attn_layer_period": [2, 3], "attn_layer_offset": [0, 1],
                             "expert_layer_period": [1, 2], "expert_layer_offset": [0], "mamba_d_state": [5, 8, 16],
                             "mamba_dt_rank": [3, 8, "auto"], "mamba_d_conv": [2, 3, 4], "mamba_expand": [1, 2], "mamba_conv_bias": TIED,
                             "tie_word_embeddings": TIED, "attention_dropout": DROPOUT}
        STATE = {"mamba_num_heads": [8, 16], "mamba_head_dim": [8, 16], "ssm_state_size": [8, 16], "n_groups": [1, 2, 4], "head_dim": [8, 16],
                 "conv_kernel": [2, 3, 4], "chunk_size": [4, 16, 32], "use_conv_bias": TIED, "use_bias": TIED, "mlp_bias": TIED,
                 "attention_dropout": DROPOUT}
        DECODERS["nemotron_h"] = STATE
        MIXTURES["nemotron_h"] = {**STATE, "n_routed_experts": [4, 8], **COUNTS, "moe_intermediate_size": WIDTHS,
                                  "moe_shared_expert_intermediate_size": WIDTHS, "n_group": [1, 2], "topk_group": [1],
                                  "norm_topk_prob": TIED, "routed_scaling_factor": [1.0, 2.5]}
    MIXTURES["qwen3_next"] = {**LINEAR, **SPARSE, "norm_topk_prob": TIED, "decoder_sparse_step": [1, 2]}
OPTIONAL = {"sliding_window", "use_sliding_window", "attention_bias", "mlp_bias", "attention_out_bias", "tie_word_embeddings",
            "resid_pdrop", "embd_pdrop", "attention_dropout", "residual_dropout", "embedding_dropout", "hidden_dropout",
            "partial_rotary_factor", "attn_logit_softcapping", "final_logit_softcapping", "use_bias", "use_qkv_bias",
            "use_parallel_residual", "embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"}
LATENT = {"deepseek_v2", "deepseek_v3", "minicpm3", "mistral4", "deepseek_v32", "glm_moe_dsa", "axk1"}     # every query has keys of its own


def decoder(rng, kind, keys):
    heads, kv, head = sizes(rng)
    if kind == "phi3" and head == 24:       # half of it is not even
        head = 32
    m = {"hidden_size": heads * head, "num_hidden_layers": rng.choice([1, 2, 2, 3, 4]), "num_attention_heads": heads,
         "num_key_value_heads": heads if kind in LATENT else kv, "intermediate_size": rng.choice([2 * heads * head, 99, 176]),
         "max_position_embeddings": 64}
    for key, values in keys.items():
        if key in OPTIONAL and rng.random() < 0.6:
            continue
        m[key] = rng.choice(values)
    if kind.startswith("qwen3_5"):      # a quarter of a head turns, each pair of it in one of three grids
        m["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25,
                                "mrope_section": [m["head_dim"] // 8 - 2, 1, 1]}
    if kind == "granitemoehybrid":
        m["layer_types"] = [rng.choice(["mamba", "attention"]) for _ in range(m["num_hidden_layers"])]
    if kind == "bamba":
        m["attn_layer_indices"] = [i for i in range(m["num_hidden_layers"]) if rng.random() < 0.5]
    if kind == "nemotron_h":
        feeds = ["moe"] if "n_routed_experts" in m else ["mlp"]
        m["layers_block_type"] = [rng.choice(["linear_attention", "full_attention", *feeds]) for _ in range(m.pop("num_hidden_layers") + 1)]
    if kind == "olmo_hybrid":   # both types of layer, or the class does without
        m["num_hidden_layers"] += 1
        m["layer_types"] = ["linear_attention", "full_attention", *[
            rng.choice(["linear_attention", "full_attention"]) for _ in range(m["num_hidden_layers"] - 2)]]
    if kind == "gemma3n_text":  # the last layers reuse what one of their type before them keeps
        m["num_hidden_layers"] = n = rng.choice([2, 3, 4])
        m["layer_types"] = [("sliding_attention", "full_attention")[i % 2] for i in range(n)]
        m["num_kv_shared_layers"] = rng.choice([0, n - 2])
        m["activation_sparsity_pattern"] = [rng.choice([0.0, 0.95]) for _ in range(n)]
    if kind == "glm_moe_dsa":
        m["indexer_types"] = ["full", *(rng.choice(["full", "shared"]) for _ in range(m["num_hidden_layers"] - 1))]
    if kind.startswith("lfm2"):
        m["layer_types"] = [rng.choice(["conv", "full_attention"]) for _ in range(m["num_hidden_layers"])]
    return m


def transformers(rng, mixtures=True):
    """A model of Hugging Face transformers."""
    kinds = list(DECODERS) + (list(MIXTURES) if mixtures else [])
    kind = rng.choice(kinds + ["gpt2", "gpt2", "opt", "gpt_neox", "bert", "t5"])
    heads, _, head = sizes(rng)
    m = {"kind": "hf", "model_type": kind, "vocab_size": rng.choice([97, 251, 503]), "batch": rng.choice([1, 2, 3]),
         "seq": rng.choice(SEQS)}
    layers, hidden = rng.choice([1, 2, 2, 3]), heads * head
    if kind == "gpt2":
        m.update(n_positions=64, n_embd=hidden, n_layer=layers, n_head=heads, attn_pdrop=rng.choice(DROPOUT),
                 embd_pdrop=rng.choice(DROPOUT), resid_pdrop=rng.choice(DROPOUT))
        if rng.random() < 0.2:
            m["tie_word_embeddings"] = False
    elif kind == "opt":
        m.update(hidden_size=hidden, num_hidden_layers=layers, ffn_dim=rng.choice([4 * hidden, 99]), num_attention_heads=heads,
                 max_position_embeddings=64, word_embed_proj_dim=rng.choice([hidden, hidden, 12]), dropout=rng.choice(DROPOUT))
        if rng.random() < 0.2:
            m["do_layer_norm_before"] = False
    elif kind == "gpt_neox":
        m.update(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                 intermediate_size=rng.choice([4 * hidden, 99]), max_position_embeddings=64)
        for key in ("use_parallel_residual", "attention_bias"):
            if rng.random() < 0.3:
                m[key] = False
    elif kind == "bert":
        m.update(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=rng.choice([4 * hidden, 99]),
                 max_position_embeddings=64, hidden_dropout_prob=rng.choice(DROPOUT),
                 attention_probs_dropout_prob=rng.choice(DROPOUT))
    elif kind == "t5":
        m.update(d_model=hidden, d_kv=rng.choice([head, 16]), d_ff=rng.choice([4 * hidden, 99]), num_layers=layers, num_heads=heads,
                 dropout_rate=rng.choice(DROPOUT))
        if rng.random() < 0.4:
            m["feed_forward_proj"] = "gated-gelu"
        if rng.random() < 0.3:
            m["tie_word_embeddings"] = False
    else:
        tables = [table[kind] for table in (DECODERS, MIXTURES)[:1 + mixtures] if kind in table]
        m.update(decoder(rng, kind, tables[0] if len(tables) == 1 else rng.choice(tables)))
    return m


def layers_of(m):
    names = ("layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    return next((m[name] for name in names if m.get(name)), 2)      # two: small_models.py


def frozen(rng, m):
    return rng.choice({"llama": ["*norm*", "layers.0.*", "tok_embeddings.*", "tok_embeddings.*,layers.0.*", "*.w1.*", "output.*",
                                 "*attention*", "layers.*", "tok_embeddings.*,output.*"],
                       "gpt2": ["wte.*,wpe.*", "*ln_*", "h.0.*", "*.bias", "*c_attn*", "h.*", "wpe.*"],
                       "guide": ["*norm*", "layers.0.*", "embedding.*", "*.bias", "output.*", "layers.*"],
                       "hf": ["*norm*", "*.bias", "*.0.*", "*embed*", "*q_proj*", "*mlp*"]}[m["kind"]])
