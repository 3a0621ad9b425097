#!/usr/bin/env python3
"""Record what torch.compile makes of whole models: what is saved for backward, and Inductor's programs.

As record_compile.py does of blocks, whose parts these are: torch.compile(model), on fake tensors of a fake
"cuda:0", with the loss outside: as one graph (under DDP: with DDPOptimizer off), or as DDPOptimizer splits it where
buckets of strategy.bucket_cap_mb end.  With --hf, models of transformers, which compute their loss inside and
return logits, too.

Usage
    record_compile_model.py --out OUT.jsonl [--only PATTERN] [--texts DIR] [--parts | --hf | --wider]
    record_compile_model.py --out OUT.jsonl --inside
    record_compile_model.py --check OUT.jsonl

A row: as one of compile.jsonl (saved, parameters, forward, backward), with strategy.compile "model", and
    part, parts         which graph it is, in the order of forward, of how many
    inputs, returned    how many tensors come besides parameters and modules' buffers, and how many forward returns

With --inside, of models whose forward computes the loss, too, as one graph: name, model, strategy and
    saved       [how many tensors, their bytes] that backward gets besides parameters and modules' buffers
    kernels     [of forward, of backward]
"""
import argparse
import contextlib
import fnmatch
import json
import math
import pathlib
import sys
import unittest.mock

import record_compile       # which runs this script again under no_gpu.c
from record_compile import GLM4_MOE, MIXTRAL, OLMOE, QWEN2_MOE, QWEN3_MOE
from record_compile import BIG, BF16, GPT2, HF, HF_GPT2, HF_LLAMA, HFB, LLAMA, AUTOCAST, Program, Recorder

import torch
import torch._functorch.partitioners as partitioners
from torch._dynamo.backends.distributed import DDPOptimizer
from torch._subclasses.fake_tensor import FakeTensorMode

import models
import record_compile_loss
import recorder as recorder_of

MODEL = {"compile": "model"}
WHOLE = {**BF16, **MODEL}
CASES = (
    ("model-llama", LLAMA, WHOLE),
    ("model-llama-deep", {**LLAMA, "layers": 6}, WHOLE),
    ("model-llama-mha", {**LLAMA, "kv_heads": 8}, WHOLE),
    ("model-llama-fp32", LLAMA, {**WHOLE, "store_dtype": "fp32"}),
    ("model-llama-full", LLAMA, {**WHOLE, "ac": "full"}),
    ("model-llama-selective", LLAMA, {**WHOLE, "ac": "selective"}),
    ("model-llama-autocast", LLAMA, {**AUTOCAST, **MODEL}),
    ("model-llama-8b", BIG, WHOLE),
    ("model-gpt2", GPT2, WHOLE),
    ("model-gpt2-untied", {**GPT2, "tied": False}, WHOLE),
    ("model-gpt2-autocast", GPT2, {**AUTOCAST, **MODEL}),
    ("model-gpt2-full", GPT2, {**WHOLE, "ac": "full"}),
)

DEEP, ONE = {**LLAMA, "layers": 3}, {"bucket_cap_mb": 1}
HF_WHOLE = {**HFB, **MODEL}
HF_GQA = {**HF_LLAMA, "num_key_value_heads": 2}
ACCELERATE = {**AUTOCAST, "code": "hf", **MODEL, "outputs": "fp32"}
HF_OPT = {"kind": "hf", "model_type": "opt", "vocab_size": 251, "hidden_size": 256, "num_hidden_layers": 2, "ffn_dim": 1024,
          "num_attention_heads": 8, "max_position_embeddings": 128, "word_embed_proj_dim": 256, "dropout": 0.0,
          "batch": 2, "seq": 128}
HF_CASES = (
    ("model-hf-llama", HF_LLAMA, HF_WHOLE),
    ("model-hf-llama-deep", {**HF_GQA, "num_hidden_layers": 5}, HF_WHOLE),
    ("model-hf-llama-gqa", HF_GQA, HF_WHOLE),
    ("model-hf-llama-one", {**HF_GQA, "batch": 1}, HF_WHOLE),
    ("model-hf-llama-odd", {**HF_GQA, "seq": 100}, HF_WHOLE),
    ("model-hf-llama-tied", {**HF_GQA, "tie_word_embeddings": True}, HF_WHOLE),
    ("model-hf-llama-full", HF_GQA, {**HF_WHOLE, "ac": "full"}),
    ("model-hf-llama-selective", HF_GQA, {**HF_WHOLE, "ac": "selective"}),
    ("model-hf-llama-fp32", HF_GQA, {**HF_WHOLE, "store_dtype": "fp32"}),
    ("model-hf-llama-autocast", HF_GQA, {**AUTOCAST, "code": "hf", **MODEL}),
    ("model-hf-llama-1b", {**HF_LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
                           "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True,
                           "batch": 2, "seq": 4096}, HF_WHOLE),
    ("model-hf-mistral", {**HF_GQA, "model_type": "mistral", "sliding_window": None}, HF_WHOLE),
    ("model-hf-qwen2", {**HF_GQA, "model_type": "qwen2"}, HF_WHOLE),
    ("model-hf-qwen3", {**HF_GQA, "model_type": "qwen3", "head_dim": 32}, HF_WHOLE),
    ("model-hf-mistral-window", {**HF_GQA, "model_type": "mistral", "sliding_window": 64}, HF_WHOLE),
    ("model-hf-mistral-wide", {**HF_GQA, "model_type": "mistral", "sliding_window": 4096}, HF_WHOLE),
    ("model-hf-qwen2-window", {**HF_GQA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64,
                               "max_window_layers": 1}, HF_WHOLE),
    ("model-hf-olmo2", {**HF_GQA, "model_type": "olmo2"}, HF_WHOLE),
    ("model-hf-olmo", {**HF_GQA, "model_type": "olmo"}, HF_WHOLE),
    ("model-hf-olmo3", {**HF_GQA, "model_type": "olmo3", "sliding_window": 64}, HF_WHOLE),
    ("model-hf-granite", {**HF_GQA, "model_type": "granite"}, HF_WHOLE),
    ("model-hf-stablelm", {**HF_GQA, "model_type": "stablelm"}, HF_WHOLE),
    ("model-hf-starcoder2", {**HF_GQA, "model_type": "starcoder2", "sliding_window": None, "residual_dropout": 0.0,
                             "embedding_dropout": 0.0, "attention_dropout": 0.0}, HF_WHOLE),
    ("model-hf-smollm3", {**HF_GQA, "model_type": "smollm3", "pad_token_id": 0}, HF_WHOLE),
    ("model-hf-seed_oss", {**HF_GQA, "model_type": "seed_oss", "head_dim": 32, "attention_out_bias": False,
                           "attention_dropout": 0.0, "residual_dropout": 0.0}, HF_WHOLE),
    ("model-hf-ministral", {**HF_GQA, "model_type": "ministral", "head_dim": 32, "sliding_window": 64}, HF_WHOLE),
    ("model-hf-exaone4", {**HF_GQA, "model_type": "exaone4", "sliding_window": 64, "sliding_window_pattern": 2,
                          "layer_types": ["sliding_attention", "full_attention"]}, HF_WHOLE),
    ("model-hf-phi", {**HF_GQA, "model_type": "phi", "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attention_dropout": 0.0},
     HF_WHOLE),
    ("model-hf-gpt2", HF_GPT2, HF_WHOLE),
    ("model-hf-gpt2-untied", {**HF_GPT2, "tie_word_embeddings": False, "batch": 1}, HF_WHOLE),
    ("model-hf-gpt2-fp32", HF_GPT2, {**HF_WHOLE, "store_dtype": "fp32"}),
    ("model-hf-gpt2-autocast", HF_GPT2, {**AUTOCAST, "code": "hf", **MODEL}),
    ("model-hf-gpt2-full", HF_GPT2, {**HF_WHOLE, "ac": "full"}),
    ("model-hf-gpt2-dropout", {**HF_GPT2, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1}, HF_WHOLE),
    ("model-hf-opt", HF_OPT, HF_WHOLE),
    ("model-hf-opt-dropout", {**HF_OPT, "dropout": 0.1}, HF_WHOLE),
    ("model-hf-gemma", {**HF_GQA, "model_type": "gemma", "head_dim": 32}, HF_WHOLE),
    ("model-hf-gemma3", {**HF_GQA, "model_type": "gemma3_text", "head_dim": 32, "sliding_window": 64,
                         "layer_types": ["sliding_attention", "full_attention"]}, HF_WHOLE),
    ("model-hf-glm4", {**HF_GQA, "model_type": "glm4", "head_dim": 32, "pad_token_id": 0}, HF_WHOLE),
    ("model-hf-glm", {**HF_GQA, "model_type": "glm", "head_dim": 32, "pad_token_id": 0}, HF_WHOLE),
    ("model-hf-cohere", {**HF_GQA, "model_type": "cohere"}, HF_WHOLE),
    ("model-hf-ernie4_5", {**HF_GQA, "model_type": "ernie4_5", "head_dim": 32}, HF_WHOLE),
    ("model-hf-helium", {**HF_GQA, "model_type": "helium", "head_dim": 32}, HF_WHOLE),
    ("model-hf-phi3", {**HF_GQA, "model_type": "phi3", "pad_token_id": 0, "sliding_window": None}, HF_WHOLE),
    ("model-hf-gemma2", {**HF_GQA, "model_type": "gemma2", "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 64,
                         "layer_types": ["sliding_attention", "full_attention"]}, HF_WHOLE),
    ("model-hf-arcee", {**HF_GQA, "model_type": "arcee"}, HF_WHOLE),
    ("model-hf-cohere2", {**HF_GQA, "model_type": "cohere2", "sliding_window": 64,
                          "layer_types": ["sliding_attention", "full_attention"]}, HF_WHOLE),
    ("model-hf-hunyuan_v1_dense", {**HF_GQA, "model_type": "hunyuan_v1_dense", "head_dim": 32}, HF_WHOLE),
    ("model-hf-vaultgemma", {**HF_GQA, "model_type": "vaultgemma", "head_dim": 32, "query_pre_attn_scalar": 32,
                             "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}, HF_WHOLE),
    ("model-hf-llama-accelerate", HF_GQA, ACCELERATE),
    ("model-hf-llama-accelerate-full", HF_GQA, {**ACCELERATE, "ac": "full"}),
    ("model-hf-llama-accelerate-tied", {**HF_GQA, "tie_word_embeddings": True, "batch": 1}, ACCELERATE),
    ("model-hf-qwen3-accelerate", {**HF_GQA, "model_type": "qwen3", "head_dim": 32}, ACCELERATE),
    ("parts-hf-llama-accelerate", {**HF_GQA, "num_hidden_layers": 4}, {**ACCELERATE, **ONE}),
    ("parts-hf-llama", {**HF_GQA, "num_hidden_layers": 4}, {**HF_WHOLE, **ONE}),
    ("parts-hf-llama-2", {**HF_GQA, "num_hidden_layers": 6}, {**HF_WHOLE, "bucket_cap_mb": 2}),
    ("parts-hf-llama-tied", {**HF_GQA, "num_hidden_layers": 4, "tie_word_embeddings": True},
     {**HF_WHOLE, "bucket_cap_mb": 2}),
    ("parts-hf-llama-mha", {**HF_LLAMA, "num_hidden_layers": 4}, {**HF_WHOLE, **ONE}),
)

MOE_CASES = (           # mixtures of experts, as one graph, and as DDPOptimizer splits them
    ("model-moe-qwen3", QWEN3_MOE, HF_WHOLE),
    ("model-moe-qwen3-full", QWEN3_MOE, {**HF_WHOLE, "ac": "full"}),
    ("model-moe-mixtral", MIXTRAL, HF_WHOLE),
    ("model-moe-qwen2", QWEN2_MOE, HF_WHOLE),
    ("model-moe-olmoe", OLMOE, HF_WHOLE),
    ("model-moe-glm4", {**GLM4_MOE, "first_k_dense_replace": 1}, HF_WHOLE),
    ("parts-moe-qwen3", {**QWEN3_MOE, "num_hidden_layers": 4}, {**HF_WHOLE, **ONE}),
    ("parts-moe-mixtral", {**MIXTRAL, "num_hidden_layers": 3}, {**HF_WHOLE, **ONE}),
)
HF_GPTJ = {"kind": "hf", "model_type": "gptj", "vocab_size": 251, "n_embd": 256, "n_layer": 2, "n_head": 8, "n_positions": 128,
           "rotary_dim": 16, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "batch": 2, "seq": 128}
HF_NEOX = {"kind": "hf", "model_type": "gpt_neox", "vocab_size": 251, "hidden_size": 256, "num_hidden_layers": 2,
           "num_attention_heads": 8, "intermediate_size": 1024, "max_position_embeddings": 128, "attention_dropout": 0.0,
           "hidden_dropout": 0.0, "batch": 2, "seq": 128}
LATENT = {**HF_LLAMA, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
WIDER_CASES = (
    ("model-hf-gptj", HF_GPTJ, HF_WHOLE),
    ("model-hf-nemotron", {**HF_GQA, "model_type": "nemotron"}, HF_WHOLE),
    ("model-hf-cwm", {**HF_GQA, "model_type": "cwm", "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]},
     HF_WHOLE),
    ("model-hf-gpt_neox", HF_NEOX, HF_WHOLE),
    ("model-hf-hyperclovax", {**HF_GQA, "model_type": "hyperclovax"}, HF_WHOLE),
    ("model-hf-iquestcoder", {**HF_GQA, "model_type": "iquestcoder"}, HF_WHOLE),
    ("model-hf-internlm3", {**HF_GQA, "model_type": "internlm3", "head_dim": 32}, HF_WHOLE),
    ("model-hf-jais2", {**HF_GQA, "model_type": "jais2", "head_dim": 32}, HF_WHOLE),
    ("model-hf-ministral3", {**HF_GQA, "model_type": "ministral3", "head_dim": 32, "sliding_window": None}, HF_WHOLE),
    ("model-hf-nanochat", {**HF_GQA, "model_type": "nanochat", "num_key_value_heads": 8}, HF_WHOLE),
    ("model-hf-minicpm3", {**LATENT, "model_type": "minicpm3"}, HF_WHOLE),
    ("model-hf-youtu", {**LATENT, "model_type": "youtu"}, HF_WHOLE),
)
EXPERTS = {"num_key_value_heads": 4, "num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 4, "moe_intermediate_size": 192}
HF_EXPERTS = {**HF_GQA, **EXPERTS}
DEEPSEEK_V3 = {**GLM4_MOE, "model_type": "deepseek_v3", "num_key_value_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64,
               "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_group": 4, "topk_group": 2,
               "first_k_dense_replace": 1}
del DEEPSEEK_V3["head_dim"]
WINDOWED = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
WIDER_MOE_CASES = (
    ("model-moe-deepseek-v3", DEEPSEEK_V3, HF_WHOLE),
    ("model-moe-dots1", {**GLM4_MOE, "model_type": "dots1", "first_k_dense_replace": 1, "sliding_window": None}, HF_WHOLE),
    ("model-moe-exaone_moe", {**GLM4_MOE, "model_type": "exaone_moe", "first_k_dense_replace": 1, **WINDOWED, "num_experts": 8},
     HF_WHOLE),
    ("model-moe-glm4_moe_lite", {**DEEPSEEK_V3, "model_type": "glm4_moe_lite", "n_group": 1, "topk_group": 1}, HF_WHOLE),
    ("model-moe-flex_olmo", {**HF_EXPERTS, "model_type": "flex_olmo", "pad_token_id": 0}, HF_WHOLE),
    ("model-moe-granitemoe", {**HF_EXPERTS, "model_type": "granitemoe"}, HF_WHOLE),
    ("model-moe-hy_v3", {**HF_EXPERTS, "model_type": "hy_v3", "head_dim": 32, "first_k_dense_replace": 1}, HF_WHOLE),
    ("model-moe-mellum", {**HF_EXPERTS, "model_type": "mellum", "head_dim": 32, **WINDOWED}, HF_WHOLE),
    ("model-moe-minimax_m2", {**HF_EXPERTS, "model_type": "minimax_m2", "head_dim": 32}, HF_WHOLE),
    ("model-moe-solar_open", {**GLM4_MOE, "model_type": "solar_open", "first_k_dense_replace": 1}, HF_WHOLE),
)
HF_FALCON = {**HF, "model_type": "falcon", "vocab_size": 251, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
             "ffn_hidden_size": 1024, "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False,
             "alibi": False, "max_position_embeddings": 128}
FALCON_RW = {**HF_FALCON, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True}
HF_CODEGEN = {**HF_GPTJ, "model_type": "codegen"}
HF_BIGCODE = {**HF_GPTJ, "model_type": "gpt_bigcode", "multi_query": True}
del HF_BIGCODE["rotary_dim"]
HF_MPT = {**HF, "model_type": "mpt", "vocab_size": 251, "d_model": 256, "n_layers": 2, "n_heads": 8, "max_seq_len": 128}
HF_NEO = {**HF, "model_type": "gpt_neo", "vocab_size": 251, "hidden_size": 256, "num_layers": 2, "num_heads": 8,
          "max_position_embeddings": 128, "attention_types": [[["global", "local"], 1]], "window_size": 64, "attention_dropout": 0.0,
          "embed_dropout": 0.0, "resid_dropout": 0.0}
HF_BERT = {**HF, "model_type": "bert", "vocab_size": 251, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
           "intermediate_size": 1024, "max_position_embeddings": 128, "type_vocab_size": 2, "hidden_dropout_prob": 0.0,
           "attention_probs_dropout_prob": 0.0}
HF_GEMMA4 = {**HF_GQA, "model_type": "gemma4_text", "head_dim": 32, "global_head_dim": 64, "num_global_key_value_heads": 1,
             "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, **WINDOWED}
HF_QWEN2_VL = {**HF_GQA, "model_type": "qwen2_vl_text",
               "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}}
REST_CASES = (          # what was refused the longest
    ("model-hf-falcon", HF_FALCON, HF_WHOLE),
    ("model-hf-falcon-full", HF_FALCON, {**HF_WHOLE, "ac": "full"}),
    ("model-hf-falcon-new", {**HF_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}, HF_WHOLE),
    ("model-hf-falcon-rw", FALCON_RW, HF_WHOLE),
    ("model-hf-gpt_bigcode", HF_BIGCODE, HF_WHOLE),
    ("model-hf-gpt_bigcode-mha", {**HF_BIGCODE, "multi_query": False}, HF_WHOLE),
    ("model-hf-gpt_bigcode-full", HF_BIGCODE, {**HF_WHOLE, "ac": "full"}),
    ("model-hf-mpt", HF_MPT, HF_WHOLE),
    ("model-hf-mpt-one", {**HF_MPT, "batch": 1}, HF_WHOLE),
    ("model-hf-bert", HF_BERT, HF_WHOLE),
    ("model-hf-codegen", HF_CODEGEN, HF_WHOLE),
    ("model-hf-gpt_neo", HF_NEO, HF_WHOLE),
    ("model-hf-apertus", {**HF_GQA, "model_type": "apertus", "hidden_act": "xielu"}, HF_WHOLE),
    ("model-hf-gemma4", HF_GEMMA4, HF_WHOLE),
    ("model-hf-gemma4-parts", {**HF_GEMMA4, "hidden_size_per_layer_input": 64, "vocab_size_per_layer_input": 251}, HF_WHOLE),
    ("model-hf-qwen2_vl", HF_QWEN2_VL, HF_WHOLE),
    ("model-hf-qwen2_5_vl", {**HF_QWEN2_VL, "model_type": "qwen2_5_vl_text"}, HF_WHOLE),
    ("model-hf-qwen3_vl", {**HF_GQA, "model_type": "qwen3_vl_text", "head_dim": 32}, HF_WHOLE),
)
HF_HUNYUAN = {**HF_EXPERTS, "model_type": "hunyuan_v1_moe", "head_dim": 32, "moe_topk": 4, "intermediate_size": 192,
              "num_shared_expert": 1}
del HF_HUNYUAN["num_experts_per_tok"]
HF_GPT_OSS = {**HF_EXPERTS, "model_type": "gpt_oss", "head_dim": 32, "intermediate_size": 192, **WINDOWED}
REST_MOE_CASES = (
    ("model-moe-gemma4", {**HF_GEMMA4, "enable_moe_block": True, "num_experts": 8, "top_k_experts": 4, "moe_intermediate_size": 192},
     HF_WHOLE),
    ("model-moe-granitemoeshared", {**HF_EXPERTS, "model_type": "granitemoeshared", "intermediate_size": 192,
                                    "shared_intermediate_size": 320}, HF_WHOLE),
    ("model-moe-ernie4_5", {**HF_EXPERTS, "model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_k": 4, "moe_num_shared_experts": 1,
                            "moe_layer_start_index": 0, "moe_layer_end_index": 1}, HF_WHOLE),
    ("model-moe-hunyuan_v1", HF_HUNYUAN, HF_WHOLE),
    ("model-moe-qwen3_vl", {**HF_EXPERTS, "model_type": "qwen3_vl_moe_text", "head_dim": 32}, HF_WHOLE),
    ("model-moe-gpt_oss", HF_GPT_OSS, HF_WHOLE),
    ("model-moe-llama4", {**HF_EXPERTS, "model_type": "llama4_text", "head_dim": 32, "intermediate_size": 192, "intermediate_size_mlp": 320,
                          "num_experts_per_tok": 1, "attention_chunk_size": 64, "interleave_moe_layer_step": 1,
                          "no_rope_layers": [1, 0], "use_qk_norm": True}, HF_WHOLE),
    ("model-moe-deepseek-v2", {**record_compile.DEEPSEEK, **record_compile.MLA, "model_type": "deepseek_v2", "q_lora_rank": None,
                               "topk_method": "greedy", "norm_topk_prob": False, "first_k_dense_replace": 1}, HF_WHOLE),
)
PARTS_CASES = (
    ("parts-llama", DEEP, {**WHOLE, **ONE}),
    ("parts-llama-2", {**LLAMA, "layers": 4}, {**WHOLE, "bucket_cap_mb": 2}),
    ("parts-llama-mha", {**DEEP, "kv_heads": 8}, {**WHOLE, **ONE}),
    ("parts-llama-fp32", DEEP, {**WHOLE, **ONE, "store_dtype": "fp32"}),
    ("parts-llama-full", DEEP, {**WHOLE, **ONE, "ac": "full"}),
    ("parts-llama-autocast", DEEP, {**AUTOCAST, **MODEL, **ONE}),
    ("parts-llama-8b", BIG, {**WHOLE, "bucket_cap_mb": 25}),
    ("parts-gpt2", {**GPT2, "layers": 4}, {**WHOLE, **ONE}),
    ("parts-gpt2-untied", {**GPT2, "layers": 4, "tied": False}, {**WHOLE, **ONE}),
    ("parts-gpt2-autocast", {**GPT2, "layers": 4}, {**AUTOCAST, **MODEL, **ONE}),
    ("parts-gpt2-full", {**GPT2, "layers": 4}, {**WHOLE, **ONE, "ac": "full"}),
    ("parts-gpt2-124m", {"kind": "gpt2", "dim": 768, "heads": 12, "vocab": 50304, "layers": 3, "batch": 4, "seq": 1024},
     {**AUTOCAST, **MODEL, "bucket_cap_mb": 25}),
)

LORA = {**HF_WHOLE, "lora": "8,all-linear"}
HF_MIDDLE = {**HF_GQA, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4,
             "vocab_size": 32000, "batch": 1, "seq": 512}
HF_QWEN3 = {**HF_GQA, "model_type": "qwen3", "head_dim": 32}
FROZEN_CASES = (        # adapters, and what else has parameters that are not trained
    ("model-lora-llama", HF_GQA, LORA),
    ("model-lora-llama-qv", HF_LLAMA, {**HF_WHOLE, "lora": "8"}),
    ("model-lora-llama-one", {**HF_GQA, "batch": 1}, LORA),
    ("model-lora-llama-middle", HF_MIDDLE, LORA),
    ("model-lora-llama-fp32", HF_GQA, {**LORA, "store_dtype": "fp32"}),
    ("model-lora-llama-full", HF_GQA, {**LORA, "ac": "full"}),
    ("model-lora-llama-accelerate", HF_GQA, {**ACCELERATE, "lora": "8,all-linear"}),
    ("model-lora-llama-accelerate-full", {**HF_GQA, "batch": 1}, {**ACCELERATE, "lora": "8", "ac": "full"}),
    ("model-lora-llama-two", HF_GQA, {**LORA, "lora_dtype": "fp32"}),
    ("model-lora-llama-two-middle", HF_MIDDLE, {**LORA, "lora_dtype": "fp32"}),
    ("model-lora-llama-two-accelerate", HF_GQA, {**LORA, "lora_dtype": "fp32", "autocast": "bf16", "outputs": "fp32"}),
    ("model-lora-llama-two-full", HF_GQA, {**LORA, "lora_dtype": "fp32", "ac": "full"}),
    ("model-lora-qwen2", {**HF_GQA, "model_type": "qwen2"}, {**HF_WHOLE, "lora": "8"}),
    ("model-lora-qwen3", HF_QWEN3, LORA),
    ("model-lora-gemma", {**HF_GQA, "model_type": "gemma", "head_dim": 32}, LORA),
    ("model-lora-gpt2", HF_GPT2, {**HF_WHOLE, "lora": "8,c_attn"}),
    ("model-frozen-llama", LLAMA, {**WHOLE, "freeze": "tok_embeddings.*,layers.0.*"}),
    ("model-frozen-llama-norms", LLAMA, {**WHOLE, "freeze": "*norm*", "ac": "full"}),
    ("model-frozen-llama-head", LLAMA, {**WHOLE, "freeze": "*.wq.*,*.w2.*,output.*"}),
    ("model-frozen-gpt2", GPT2, {**WHOLE, "freeze": "wte.*,wpe.*,*.bias"}),
    ("model-frozen-hf-llama", HF_GQA, {**HF_WHOLE, "freeze": "*embed_tokens*,*layers.0.*"}),
    ("model-frozen-hf-llama-mlp", HF_GQA, {**ACCELERATE, "freeze": "*mlp*,*lm_head*"}),
    ("parts-lora-llama", {**HF_GQA, "num_hidden_layers": 4}, {**HF_WHOLE, "lora": "64,all-linear", **ONE}),
    ("parts-frozen-llama", DEEP, {**WHOLE, **ONE, "freeze": "tok_embeddings.*,layers.0.*,*.wq.*"}),
)

INSIDE_CASES = (
    ("inside-llama", {**LLAMA, "vocab": 32000}, WHOLE),
    ("inside-llama-full", LLAMA, {**WHOLE, "ac": "full"}),
    ("inside-gpt2", GPT2, WHOLE),
    ("inside-gpt2-autocast", GPT2, {**AUTOCAST, **MODEL}),
    ("inside-gpt2-124m", {"kind": "gpt2", "dim": 768, "heads": 12, "vocab": 50304, "layers": 2, "batch": 4, "seq": 1024},
     {**AUTOCAST, **MODEL}),
)


def split(backend, s):
    """As torch/_dynamo/convert_frame.py does inside of DDP's forward."""
    if "bucket_cap_mb" not in s:
        return backend
    return DDPOptimizer(int(s["bucket_cap_mb"] * 2 ** 20), backend).compile_fn


def placeholders(graph):
    return record_compile.placeholders(graph)


def pairs(recorder):
    """The graphs of each part and their texts: those of backward come where backward comes to them."""
    both = list(zip(recorder.graphs, recorder.texts))
    forward = [b for b in both if not b[0][1]]
    backward = [b for b in both if b[0][1]]
    return forward, backward[::-1]


def part_of(forward, backward):
    fake = Recorder.__new__(Recorder)
    fake.graphs, fake.texts = [forward[0], backward[0]], [forward[1], backward[1]]
    row = record_compile.described(fake)
    static = set(forward[0][2])
    graph = forward[0][0]
    outputs = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    row["inputs"] = sum(i not in static for i, _ in enumerate(placeholders(graph)))
    row["returned"] = len(outputs)
    return row


def numbers_of(m):
    """GPT-Neo's least number is a tensor made while it is traced."""
    return record_compile.masks_of_numbers(m) if m.get("model_type") == "gpt_neo" else contextlib.nullcontext()


def record(name, m, s, texts=None):
    torch._dynamo.reset()
    recorder = Recorder()
    models.RMSNorm = lambda dim: torch.nn.RMSNorm(dim, eps=1e-5)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda:0"), models.as_on_cuda(), \
                record_compile.lists_as_tensors(m), numbers_of(m):
            with unittest.mock.patch("torch.tensor", record_compile.number):
                model, blocks = models.make(m, s)
            if s["store_dtype"] == "bf16" and not s.get("lora_dtype"):
                record_compile.all_alike(model)
            for p in recorder_of.matching(model, s.get("freeze")):
                p.requires_grad_(False)
            if s.get("ac"):
                models.checkpointed(model, blocks, s["ac"], True)
            if s.get("outputs") == "fp32":
                models.prepared(model)
            model.compile(backend=split(recorder.backend, s), fullgraph=m.get("model_type") != "gpt2")
            with torch.autocast("cuda", torch.bfloat16, enabled="outputs" not in s and s.get("autocast") == "bf16"):
                if s.get("code") == "hf":
                    loss = model(**models.make_inputs(m, s)).loss
                else:
                    tokens, targets = models.make_inputs(m, s)
                    loss = models.loss_of(model(tokens), targets)
            loss.backward()
    finally:
        partitioners.solve_min_cut = recorder.solve
        if texts:
            for i, text in enumerate(recorder.texts):
                pathlib.Path(texts, f"{name}.{i}.py").write_text(text)
            for i, g in enumerate(recorder.graphs):
                pathlib.Path(texts, f"{name}.{i}.graph").write_text(str(g[0].graph))
            pathlib.Path(texts, name + ".txt").write_text(recorder.joint or "")
    forward, backward = pairs(recorder)
    if len(forward) != len(backward):
        raise ValueError(f"{len(forward)} graphs of forward, {len(backward)} of backward")
    parts = [part_of(f, b) for f, b in zip(forward, backward)]
    return [{"name": name, "model": m, "strategy": s, "part": i, "parts": len(parts), **part}
            for i, part in enumerate(parts)]


class Inside(torch.nn.Module):
    """A model that returns its loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, targets):
        return models.loss_of(self.model(tokens), targets)


def bytes_of(saved):
    dtype, shape, *_ = saved
    return math.prod(shape) * getattr(torch, dtype).itemsize


def record_inside(name, m, s):
    torch._dynamo.reset()
    recorder = Recorder()
    models.RMSNorm = lambda dim: torch.nn.RMSNorm(dim, eps=1e-5)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda:0"), models.as_on_cuda():
            model, blocks = models.make(m, s)
            if s.get("ac"):
                models.checkpointed(model, blocks, s["ac"], True)
            model = Inside(model)
            model.compile(backend=recorder.backend, fullgraph=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=s.get("autocast") == "bf16"):
                loss = model(*models.make_inputs(m, s))
            loss.backward()
    finally:
        partitioners.solve_min_cut = recorder.solve
    (forward,), (backward,) = pairs(recorder)
    part = part_of(forward, backward)
    return {"name": name, "model": m, "strategy": s,
            "saved": [len(part["saved"]), sum(map(bytes_of, part["saved"]))],
            "kernels": [sum(event[0] == "kernel" for event in part[way]) for way in ("forward", "backward")]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--check")
    parser.add_argument("--only", default="*")
    parser.add_argument("--parts", action="store_true", help="models that DDPOptimizer splits")
    parser.add_argument("--hf", action="store_true", help="models of transformers, which return logits and loss")
    parser.add_argument("--wider", action="store_true", help="likewise more families, with experts and without")
    parser.add_argument("--rest", action="store_true", help="likewise what was refused the longest")
    parser.add_argument("--moe", action="store_true", help="likewise mixtures of experts")
    parser.add_argument("--frozen", action="store_true", help="models with adapters and frozen parameters, which need peft")
    parser.add_argument("--inside", action="store_true", help="models with their loss inside")
    parser.add_argument("--texts", help="also writes each graph and program there, to be read")
    args = parser.parse_args()
    record_compile.pretend_gpu()
    record_compile_loss.fold_scalars()
    if args.inside:
        with open(args.out, "w") as f:
            for case in INSIDE_CASES:
                f.write(json.dumps(record_inside(*case), separators=(",", ":")) + "\n")
                print(case[0], flush=True)
        return 0
    if args.check:
        rows = [json.loads(line) for line in open(args.check)]
        first = [row for row in rows if row["part"] == 0]
        same = [record(row["name"], row["model"], row["strategy"]) == [r for r in rows if r["name"] == row["name"]]
                for row in first]
        for row, is_same in zip(first, same):
            print(row["name"], "same" if is_same else "DIFFERS")
        return not all(same)
    rows = []
    for case in PARTS_CASES if args.parts else HF_CASES if args.hf else MOE_CASES if args.moe else WIDER_CASES + WIDER_MOE_CASES if args.wider else REST_CASES + REST_MOE_CASES if args.rest else FROZEN_CASES if args.frozen else CASES:
        if fnmatch.fnmatch(case[0], args.only):
            try:
                made = record(*case, args.texts)
                rows += made
                print(case[0], [len(part["saved"]) for part in made], flush=True)
            except Exception as error:
                if not args.texts:
                    raise
                import traceback
                traceback.print_exc(limit=-6)
                print(case[0], "FAILED", str(error)[:300], flush=True)
    if args.out:
        with open(args.out, "w") as f:
            for row in rows:
                f.write(json.dumps(row, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
