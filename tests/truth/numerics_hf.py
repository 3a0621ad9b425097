#!/usr/bin/env python3
"""Trajectories of transformers' models as transformers computes them: shardplan's `--code hf`.

Writes FOLDER/hf.json (tests/data/numerics): 20 AdamW steps of a small model of each family, on real
fp32 tensors on a CPU, by the model's own forward and its own loss. Parameters get the values of
tests/data/numerics/README.md in the order of model.parameters(), and tokens are those of that file.
Labels are the tokens themselves, which the model shifts; of a masked language model what every
seventh token was before it became the last id, at a place that moves on with the step; of an encoder
and decoder the tokens of the next step.

Writes FOLDER/hf_padded.json, too: of families in each way of leaving padding out, batches whose
sequences end early (models.padded), with the model's attention_mask and labels of -100 there.

The last of that file have labels of -100 where each sequence's prompt is, too (prompt_tokens).

Usage: numerics_hf.py FOLDER [NAME ...]      (torch 2.14.1, transformers 5.23.0; one thread)
"""
import json
import math
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import models
from numerics import BATCH, SEQ, STEPS, config_of, parameter_values, tokens, write

SIZE = {"vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 80, "max_position_embeddings": 32}
GROUPED = {**SIZE, "num_key_value_heads": 2}
NO_DROPOUT = {"attention_dropout": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
EXPERTS = {**GROUPED, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 16}
MLA = {**EXPERTS, "num_key_value_heads": 4, "n_routed_experts": 8, "n_shared_experts": 1,
       "first_k_dense_replace": 1, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
       "qk_nope_head_dim": 16, "v_head_dim": 16}
del MLA["head_dim"]
LATENT = {k: v for k, v in MLA.items() if "expert" not in k and "moe" not in k and "dense" not in k}
INDEXER = {"index_n_heads": 16, "index_head_dim": 12, "index_topk": 6}     # of few heads many scores are 0, and which of these are chosen is anyone's
GEMMA4 = {**GROUPED, "head_dim": 12, "global_head_dim": 16, "sliding_window": 8, "rms_norm_eps": 0.3,
          "num_hidden_layers": 4, "hidden_size_per_layer_input": 0,
          "layer_types": ["sliding_attention", "full_attention"] * 2}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
DYNAMIC = {"type": "dynamic", "factor": 2.0}
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
            "long_factor": [1.0, 1.5, 2.25, 4.0, 7.0, 12.0]}
GRIDS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 2, 3]}

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
SPECIAL_OF_LLAMA = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

FALCON = {"vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "ffn_hidden_size": 80, "max_position_embeddings": 32}

FAMILIES = [
    ("llama", {**GROUPED, "rope_theta": 523.5}),
    ("llama", {**SIZE, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True,
               "attention_bias": True, "mlp_bias": True}),
    ("llama", {**SIZE, "num_key_value_heads": 4, "rope_scaling": YARN}),
    ("llama", {**GROUPED, "rope_scaling": DYNAMIC}),
    ("llama", {**GROUPED, "max_position_embeddings": 16, "rope_scaling": DYNAMIC}),
    ("llama4_text", {**GROUPED, "num_hidden_layers": 4, "head_dim": 16, "intermediate_size": 24,
                     "intermediate_size_mlp": 80, "num_local_experts": 4, "num_experts_per_tok": 2,
                     "interleave_moe_layer_step": 2, "attention_chunk_size": 8, "floor_scale": 4,
                     "rms_norm_eps": 1e-3}),
    ("mistral", {**GROUPED, "sliding_window": 8, "head_dim": 16}),
    ("mistral", {**SIZE, "num_key_value_heads": 4, "sliding_window": 64}),
    ("qwen2", GROUPED),
    ("qwen2", {**GROUPED, "use_sliding_window": True, "sliding_window": 10,
               "max_window_layers": 1}),
    ("qwen3", {**GROUPED, "head_dim": 16, "rms_norm_eps": 2e-2}),
    ("gpt2", {"vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 32,
              **NO_DROPOUT, "attn_pdrop": 0.0}),
    ("opt", {"vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "ffn_dim": 80,
             "num_attention_heads": 4, "max_position_embeddings": 32, "word_embed_proj_dim": 48,
             "dropout": 0.0, "layerdrop": 0.0, "activation_function": "gelu"}),
    ("opt", {"vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "ffn_dim": 80,
             "num_attention_heads": 4, "max_position_embeddings": 32, "word_embed_proj_dim": 32,
             "do_layer_norm_before": False, "dropout": 0.0, "layerdrop": 0.0,
             "activation_function": "gelu"}),
    ("gpt_neox", {**SIZE, "rotary_pct": 0.5}),
    ("gpt_neox", {**SIZE, "rotary_pct": 0.5, "use_parallel_residual": False,
                  "hidden_act": "gelu_fast"}),
    ("qwen2_vl_text", {**GROUPED, "rope_parameters": GRIDS}),
    ("qwen2_5_vl_text", {**GROUPED, "rope_parameters": GRIDS, "tie_word_embeddings": True}),
    ("qwen3_vl_text", {**GROUPED, "head_dim": 12, "rope_parameters": GRIDS}),
    ("qwen3_vl_moe_text", {**EXPERTS, "head_dim": 12, "num_experts": 8, "rope_parameters": GRIDS}),
    ("phi", {**GROUPED, "partial_rotary_factor": 0.5, **NO_DROPOUT}),
    ("phi3", {**GROUPED, "pad_token_id": 0, "original_max_position_embeddings": 32,
              **NO_DROPOUT}),
    ("phi3", {**GROUPED, "pad_token_id": 0, "original_max_position_embeddings": 16,
              "rope_scaling": LONGROPE, **NO_DROPOUT}),
    ("gemma", {**SIZE, "num_key_value_heads": 1, "head_dim": 16}),
    ("gemma2", {**GROUPED, "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24}),
    ("gemma3_text", {**GROUPED, "num_hidden_layers": 3, "sliding_window_pattern": 2,
                     "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24,
                     "rms_norm_eps": 1e-2}),
    ("gemma4_text", {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
                     "final_logit_softcapping": 30.0}),
    ("gemma4_text", {**GEMMA4, "hidden_size_per_layer_input": 8,
                     "vocab_size_per_layer_input": 97, "num_kv_shared_layers": 2,
                     "use_double_wide_mlp": True}),
    ("gemma4_text", {**GEMMA4, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
                     "moe_intermediate_size": 24}),
    ("olmo", {**GROUPED, "pad_token_id": 0}),
    ("olmo2", {**GROUPED, "pad_token_id": 0}),
    ("olmo3", {**GROUPED, "num_hidden_layers": 4, "pad_token_id": 0, "sliding_window": 8,
               "rms_norm_eps": 1e-3}),
    ("smollm3", {**GROUPED, "num_hidden_layers": 4, "pad_token_id": 0}),
    ("granite", {**GROUPED, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
                 "residual_multiplier": 0.22, "attention_multiplier": 0.0078125}),
    ("granite", {**SIZE, "num_key_value_heads": 4, "attention_multiplier": 0.125}),
    ("granitemoe", {**GROUPED, "num_local_experts": 8, "num_experts_per_tok": 2,
                    "embedding_multiplier": 12.0, "logits_scaling": 6.0,
                    "residual_multiplier": 0.22, "attention_multiplier": 0.015625}),
    ("seed_oss", {**GROUPED, "head_dim": 16, "pad_token_id": 0, "attention_dropout": 0.0,
                  "residual_dropout": 0.0}),
    ("arcee", GROUPED),
    ("apertus", {**GROUPED, "pad_token_id": None}),
    ("hunyuan_v1_dense", {**GROUPED, "head_dim": 16}),
    ("exaone4", {**GROUPED, "sliding_window": 8, "sliding_window_pattern": 2}),
    ("ministral", {**GROUPED, "sliding_window": 8, "head_dim": 16}),
    ("helium", {**GROUPED, "head_dim": 12, "pad_token_id": 0, "rms_norm_eps": 1e-3}),
    ("ernie4_5", {**GROUPED, "head_dim": 16}),
    ("cohere", {**GROUPED, "logit_scale": 0.25}),
    ("cohere", {**GROUPED, "logit_scale": 0.25, "use_qk_norm": True}),
    ("cohere2", {**GROUPED, "sliding_window": 8, "sliding_window_pattern": 2}),
    ("nemotron", GROUPED),
    ("dots1", {**EXPERTS, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1,
               "norm_topk_prob": True, "sliding_window": 8, "max_window_layers": 1}),
    ("jais2", GROUPED),
    ("cwm", {**GROUPED, "head_dim": 12, "sliding_window": 8,
             "layer_types": ["full_attention", "sliding_attention"]}),
    ("youtu", {**LATENT, "q_lora_rank": 24, "initializer_range": 0.02}),
    ("glm4_moe_lite", {**MLA, "q_lora_rank": 24, "n_group": 1, "topk_group": 1,
                       "mlp_layer_types": ["sparse", "dense"]}),
    ("solar_open", {k: v for k, v in {**EXPERTS, "n_routed_experts": 6, "n_shared_experts": 1}.items()
                    if k != "intermediate_size"}),
    ("exaone_moe", {**EXPERTS, "num_experts": 6, "sliding_window": 8, "sliding_window_pattern": 2}),
    ("flex_olmo", {**GROUPED, "num_experts": 6, "num_experts_per_tok": 2, "pad_token_id": 1,
                   "eos_token_id": 2}),
    ("vaultgemma", {**GROUPED, "head_dim": 12, "sliding_window": 8}),
    ("minimax_m2", {**GROUPED, "head_dim": 16, "rotary_dim": 8, "num_local_experts": 6,
                    "num_experts_per_tok": 2}),
    ("ministral3", {**GROUPED, "head_dim": 16, "rope_parameters": {
        **YARN, "rope_type": "yarn", "rope_theta": 1e4, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
        "mscale_all_dim": 1.0}}),
    ("hunyuan_v1_moe", {**GROUPED, "head_dim": 16, "num_experts": 6, "moe_topk": [2, 2]}),
    ("afmoe", {**EXPERTS, "num_experts": 6, "num_shared_experts": 1, "sliding_window": 8, "mup_enabled": True, "rms_norm_eps": 1e-3,
               "route_scale": 2.5, "layer_types": ["full_attention", "sliding_attention"]}),
    ("mistral4", {**MLA, "q_lora_rank": 24, "n_group": 4, "topk_group": 2, "pad_token_id": 0, "rope_parameters": {
        **YARN, "rope_type": "yarn", "rope_theta": 1e4, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
        "mscale_all_dim": 1.0}}),
    ("deepseek_v32", {**MLA, **INDEXER, "q_lora_rank": 24, "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "rope_scaling": {
        **YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    ("glm_moe_dsa", {**MLA, **INDEXER, "num_hidden_layers": 3, "q_lora_rank": 24, "n_group": 1, "topk_group": 1,
                     "indexer_types": ["full", "shared", "full"]}),
    ("axk1", {**MLA, "q_lora_rank": 24, "n_group": 4, "topk_group": 2, "rms_norm_eps": 1e-3}),
    ("cohere2_moe", {**GROUPED, "num_hidden_layers": 3, "head_dim": 12, "intermediate_size": 24, "prefix_dense_intermediate_size": 80,
                     "num_experts": 6, "num_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
                     "sliding_window": 8, "sliding_window_pattern": 2, "logit_scale": 0.25, "bos_token_id": 1, "eos_token_id": 2}),
    ("cohere2_moe", {**GROUPED, "head_dim": 12, "intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2, "sliding_window": 8,
                     "expert_selection_fn": "sigmoid", "rms_norm_eps": 1e-3, "logit_scale": 0.25, "bos_token_id": 1, "eos_token_id": 2}),
    ("mimo_v2_flash", {**EXPERTS, "num_attention_heads": 8, "head_dim": 12, "v_head_dim": 8, "n_routed_experts": 6, "sliding_window": 8,
                       "layer_types": ["full_attention", "sliding_attention"], "rope_parameters": {
                           "full_attention": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.34},
                           "sliding_attention": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.34}}}),
    ("hy_v3", {**EXPERTS, "num_experts": 6, "num_shared_experts": 1}),
    ("minicpm3", {**LATENT, "q_lora_rank": 24, "scale_emb": 4, "dim_model_base": 16,
                  "initializer_range": 0.02}),
    ("mellum", {**EXPERTS, "num_experts": 6, "sliding_window": 8, "layer_types": [
        "full_attention", "sliding_attention"], "mlp_layer_types": ["dense", "sparse"]}),
    ("nanochat", {**GROUPED, "pad_token_id": 0, "rms_norm_eps": 1e-3}),
    ("internlm3", {**GROUPED, "head_dim": 16, "qkv_bias": True, "bias": True}),
    ("hyperclovax", {**GROUPED, "head_dim": 12, "embedding_multiplier": 4.0, "logits_scaling": 0.125,
                     "residual_multiplier": 0.5, "attention_multiplier": 0.2}),
    ("granitemoeshared", {**GROUPED, "num_local_experts": 8, "num_experts_per_tok": 2,
                          "shared_intermediate_size": 40, "logits_scaling": 6.0,
                          "residual_multiplier": 0.22, "attention_multiplier": 0.015625}),
    ("granitemoehybrid", {**{k: v for k, v in GROUPED.items() if k != "intermediate_size"}, "shared_intermediate_size": 80,
                          "num_local_experts": 0, "num_experts_per_tok": 0, "layer_types": ["attention", "attention"],
                          "mamba_n_heads": 4, "mamba_d_head": 24, "position_embedding_type": "rope",
                          "embedding_multiplier": 12.0, "logits_scaling": 6.0, "residual_multiplier": 0.22,
                          "attention_multiplier": 0.015625}),
    ("gpt_bigcode", {"vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 32,
                     **NO_DROPOUT, "attn_pdrop": 0.0}),
    ("gpt_bigcode", {"vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 32,
                     "multi_query": False, **NO_DROPOUT, "attn_pdrop": 0.0}),
    ("gptj", {"vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 32, "rotary_dim": 8,
              "n_inner": 80}),
    ("codegen", {"vocab_size": 97, "n_embd": 64, "n_layer": 2, "n_head": 8, "n_positions": 32, "rotary_dim": 4, "n_inner": 80}),
    ("gpt_neo", {"vocab_size": 97, "hidden_size": 48, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 32,
                 "intermediate_size": 80, "attention_types": [[["global", "local"], 1]], "window_size": 8}),
    ("mpt", {"vocab_size": 97, "d_model": 48, "n_layers": 2, "n_heads": 4, "max_seq_len": 32}),
    ("falcon", FALCON),
    ("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon", {**FALCON, "multi_query": False, "parallel_attn": False, "bias": True}),
    ("falcon", {**FALCON, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True}),
    ("ernie4_5_moe", {**GROUPED, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 24,
                      "moe_num_shared_experts": 1, "pad_token_id": 0}),
    ("starcoder2", {**GROUPED, "sliding_window": None, "embedding_dropout": 0.0,
                    "residual_dropout": 0.0, "attention_dropout": 0.0}),
    ("stablelm", {**GROUPED, "partial_rotary_factor": 0.5, "attention_dropout": 0.0}),
    ("glm", {**GROUPED, "head_dim": 16, "pad_token_id": 0}),
    ("glm4", {**GROUPED, "head_dim": 16, "pad_token_id": 0}),
    ("mixtral", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("qwen2_moe", {**EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 40}),
    ("qwen3_moe", {**EXPERTS, "num_experts": 8, "norm_topk_prob": True}),
    ("olmoe", {**GROUPED, "num_experts": 8, "num_experts_per_tok": 2, "pad_token_id": 1,
               "eos_token_id": 2}),
    ("gpt_oss", {**EXPERTS, "num_local_experts": 8, "sliding_window": 8}),
    ("deepseek_v2", {**MLA, "q_lora_rank": None, "n_group": 1, "topk_group": 1,
                     "topk_method": "greedy"}),
    ("deepseek_v3", {**MLA, "q_lora_rank": 24, "n_group": 4, "topk_group": 2,
                     "norm_topk_prob": True}),
    ("deepseek_v3", {**MLA, "q_lora_rank": 24, "n_group": 2, "topk_group": 1,
                     "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    ("glm4_moe", {**EXPERTS, "n_routed_experts": 6, "n_shared_experts": 1, "n_group": 1,
                  "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": True,
                  "attention_bias": True}),
    ("roberta", {**SIZE, "max_position_embeddings": 40, "hidden_dropout_prob": 0.0,
                 "attention_probs_dropout_prob": 0.0}),
    ("eurobert", {**GROUPED, **SPECIAL_OF_LLAMA}),
    ("modernbert", {**SIZE, "num_hidden_layers": 3, "local_attention": 8, **SPECIAL}),
    ("electra", {**SIZE, "embedding_size": 32, "hidden_dropout_prob": 0.0,
                 "attention_probs_dropout_prob": 0.0}),
    ("distilbert", {"vocab_size": 97, "dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 80,
                    "max_position_embeddings": 32, "dropout": 0.0, "attention_dropout": 0.0}),
    ("bert", {**SIZE, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
    ("t5", {"vocab_size": 97, "d_model": 48, "d_kv": 12, "d_ff": 80, "num_layers": 2,
            "num_heads": 4, "dropout_rate": 0.0, "layer_norm_epsilon": 1e-3,
            "feed_forward_proj": "gelu"}),
    ("t5", {"vocab_size": 97, "d_model": 48, "d_kv": 16, "d_ff": 80, "num_layers": 2,
            "num_heads": 4, "dropout_rate": 0.0, "layer_norm_epsilon": 1e-3,
            "feed_forward_proj": "gated-gelu"}),
    ("mt5", {"vocab_size": 97, "d_model": 48, "d_kv": 12, "d_ff": 80, "num_layers": 2,
             "num_decoder_layers": 3, "num_heads": 4, "dropout_rate": 0.0, "tie_word_embeddings": False}),
]
PADDED = [("llama", 40), ("mistral", 1), ("gemma2", 100), ("gpt2", 161), ("gpt_neox", 50), ("opt", 33), ("falcon", 60), ("gpt_oss", 30),
          ("gptj", 25), ("mpt", 90), ("bert", 70), ("distilbert", 20), ("modernbert", 47), ("eurobert", 80), ("mixtral", 64)]
PROMPTS = [("llama", 9, 0), ("gpt2", 1, 0), ("opt", 12, 33)]    # tokens of each prompt, and of padding in all
CLASSES = {"bert": AutoModelForMaskedLM, "roberta": AutoModelForMaskedLM, "electra": AutoModelForMaskedLM,
           "distilbert": AutoModelForMaskedLM, "modernbert": AutoModelForMaskedLM, "eurobert": AutoModelForMaskedLM,
           "t5": AutoModelForSeq2SeqLM, "mt5": AutoModelForSeq2SeqLM}


def values(index, parameter, name):
    if name.endswith("sinks"):  # numbers of heads, and no norm
        return parameter_values(index, [1, *parameter.shape], name)[0]
    return parameter_values(index, list(parameter.shape), name)


def inputs(model_type, step, vocab, padding, prompt):
    given = whole_inputs(model_type, step, vocab)
    if prompt:
        given["labels"] = given["labels"].clone()
        given["labels"][:, :prompt] = -100
    if not padding:
        return given
    mask = models.padded({"batch": BATCH, "seq": SEQ, "padding_tokens": padding})
    return given | {"attention_mask": mask, "labels": given["labels"].masked_fill(mask == 0, -100)}


def whole_inputs(model_type, step, vocab):
    batch = tokens(step, vocab)[:, :-1].contiguous()
    if CLASSES.get(model_type) is AutoModelForSeq2SeqLM:
        return {"input_ids": batch, "labels": tokens(step + 1, vocab)[:, :-1].contiguous()}
    if model_type not in CLASSES:
        return {"input_ids": batch, "labels": batch, "use_cache": False}
    masked = ((torch.arange(SEQ) + step) % 7 == 3).expand(BATCH, SEQ)
    return {"input_ids": batch.masked_fill(masked, vocab - 1),
            "labels": batch.masked_fill(~masked, -100)}


def train(model_type, settings, padding=0, prompt=0):
    settings = {"model_type": model_type, **settings}
    config = config_of(settings)
    whole = models.WHOLE.get(model_type)    # a model that sees, called by text alone
    if whole:
        config = models.hf_config(getattr(transformers, whole), model_type, {k: v for k, v in settings.items() if k != "model_type"})
    if model_type == "t5":
        config.decoder_start_token_id = 0  # as published files say
    make = CLASSES.get(model_type, AutoModelForCausalLM)
    make = AutoModelForImageTextToText if whole else make
    made = make.from_config(config) if model_type != "mistral4" else transformers.Mistral4ForCausalLM(config)    # AutoModel has it not
    model = models.without_tower(made).float().train()
    named = list(model.named_parameters())
    with torch.no_grad():
        for index, (name, parameter) in enumerate(named):
            parameter.copy_(values(index, parameter, name))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1)
    losses, norms, first = [], [], {}
    for step in range(STEPS):
        loss = model(**inputs(model_type, step, config.get_text_config().vocab_size, padding, prompt)).loss
        loss.backward()
        each = {name: float(p.grad.norm()) if p.grad is not None else 0.0 for name, p in named}
        losses.append(loss.item())
        norms.append(math.sqrt(sum(n * n for n in each.values())))
        first = first or each
        optimizer.step()
        optimizer.zero_grad()
    cut = {name: number for name, number in (("padding_tokens", padding), ("prompt_tokens", prompt)) if number}
    return {"config": settings, "batch": BATCH, "seq": SEQ} | cut | {"loss": losses, "grad_norm": norms,
            "first_step_grad_norm_by_parameter": first}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    print("torch", torch.__version__, "transformers", transformers.__version__)
    wanted = sys.argv[2:]
    rows = []
    for model_type, settings in FAMILIES:
        if wanted and model_type not in wanted:
            continue
        rows.append(train(model_type, settings))
        print(model_type, rows[-1]["loss"][0], rows[-1]["loss"][-1], flush=True)
    write(sys.argv[1], "hf.json", rows)
    of = dict(reversed(FAMILIES))   # the first of each name
    cut = [(name, 0, padding) for name, padding in PADDED] + PROMPTS
    write(sys.argv[1], "hf_padded.json", [train(name, of[name], padding, prompt) for name, prompt, padding in cut if not wanted or name in wanted])


if __name__ == "__main__":
    main()
