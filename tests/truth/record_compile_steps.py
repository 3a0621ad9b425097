#!/usr/bin/env python3
"""Record steps of models whose blocks torch.compile compiles, under FSDP2, DDP, FSDP1 and ZeRO-1 and 2.

Each block is compiled on its own with fullgraph=True before it is wrapped; AOTAutograd's graphs, cut by the
min-cut partitioner after Inductor's decompositions and passes, are run node by node, each node's memory freed with
its last reader, as Inductor's programs free it.  What is inside of a program is Inductor's business
(record_compile.py); what crosses its border is recorded here: who holds it, and when it dies.

Usage
    record_compile_steps.py --out OUT.jsonl [--only PATTERN] [OPTION]
    record_compile_steps.py --check OUT.jsonl

A row: name, model, strategy as record.py and record_systems.py have them (strategy.compile is
"blocks" or "model"; DDPOptimizer is off but where strategy.optimize_ddp says otherwise),
    border      [+-bytes, category, live bytes after it] of every event outside of activations and
                backward's own memory: what the sharding system does, and how much lives around it; of gathers
                in float8 without what has less than LEAST bytes; of torchtitan's mixtures, which are eager around
                what they call, also of births outside of graphs; ZeRO: [+-bytes, category, where, what, live]
                of every event born in DeepSpeed's calls or the optimizer's step
    live        as record.py's
    gradients   DDP: parameters in the order in which autograd accumulates their gradients
    reduced     with optimize_ddp: of each all-reduce its bytes and how many products and attentions of compiled
                graphs came before it
    runs        of models compiled whole under FSDP2 and FSDP1: how many graphs run in a step, forward and backward
    graphs      how many functions each graph of the first block has, forward and backward
"""
import argparse
import fnmatch
import functools
import json
import sys

import torch
import torch._functorch.config as aot_config
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.convert_frame import CatchErrorsWrapper
from torch._inductor.compile_fx import partition_fn
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes import fuse_attention, pad_mm
from torch.utils._python_dispatch import _disable_current_modes

import models
import record
import record_systems
import recorder
import titan
import unfilled
from autocast import cuda_autocast

LLAMA = {"kind": "llama", "dim": 256, "heads": 8, "kv_heads": 4, "ffn": 704, "vocab": 251, "layers": 3,
         "batch": 2, "seq": 128}
MHA = {**LLAMA, "kv_heads": 8, "layers": 2, "batch": 1}
HF = {"kind": "hf", "batch": 2, "seq": 128, "vocab_size": 251}
HF_LLAMA = {**HF, "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2,
            "num_attention_heads": 8, "num_key_value_heads": 8}
HF_GPT2 = {**HF, "model_type": "gpt2", "n_positions": 128, "n_embd": 192, "n_layer": 2, "n_head": 4,
           "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
BF16 = {"param_dtype": "bf16", "reduce_dtype": "fp32"}
FSDP1 = {"system": "fsdp1", "use_orig_params": True}
DDP = {"system": "ddp", "world": 4, "store_dtype": "bf16"}
AUTOCAST = {"system": "ddp", "world": 4, "autocast": "bf16"}
FSDP1_HF = {**FSDP1, "world": 4, "code": "hf"}
CASES = (
    ("fsdp2", LLAMA, {"world": 4, **BF16}),
    ("fsdp2-mha", MHA, {"world": 2, **BF16}),
    ("fsdp2-bf16", LLAMA, {"world": 2, "store_dtype": "bf16"}),
    ("fsdp2-titan-ac", LLAMA, {"world": 4, "units": "torchtitan", "ac": "full", **BF16}),
    ("fsdp2-selective", LLAMA, {"world": 4, "ac": "selective", **BF16}),
    ("fsdp2-never", LLAMA, {"world": 4, "reshard": "never", **BF16}),
    ("fsdp2-hsdp", LLAMA, {"world": 8, "replicate": 2, **BF16}),
    ("fsdp2-accumulate", LLAMA, {"world": 4, "accumulate": 2, **BF16}),
    ("fsdp2-clip-titan", MHA, {"world": 4, "units": "torchtitan", "clip": True, **BF16}),
    ("ddp", LLAMA, DDP),
    ("ddp-mha", MHA, DDP),
    ("ddp-small-buckets", LLAMA, {**DDP, "bucket_cap_mb": 0.25}),
    ("ddp-views", LLAMA, {**DDP, "bucket_cap_mb": 1, "gradient_as_bucket_view": True}),
    ("ddp-accumulate", LLAMA, {**DDP, "bucket_cap_mb": 1, "accumulate": 2}),
    ("ddp-ac", LLAMA, {**DDP, "ac": "full"}),
    ("ddp-autocast", LLAMA, AUTOCAST),
    ("ddp-autocast-ac", LLAMA, {**AUTOCAST, "ac": "full"}),
    ("ddp-autocast-accumulate", LLAMA, {**AUTOCAST, "bucket_cap_mb": 1, "accumulate": 2}),
    ("fsdp1", LLAMA, {**FSDP1, "world": 4, **BF16}),
    ("fsdp1-mha", MHA, {**FSDP1, "world": 2, **BF16}),
    ("fsdp1-bf16", LLAMA, {**FSDP1, "world": 2, "store_dtype": "bf16"}),
    ("fsdp1-grad-op", LLAMA, {**FSDP1, "world": 4, "sharding": "SHARD_GRAD_OP", **BF16}),
    ("fsdp1-ac", LLAMA, {**FSDP1, "world": 4, "ac": "full", **BF16}),
    ("fsdp1-accumulate", LLAMA, {**FSDP1, "world": 4, "accumulate": 2, **BF16}),
    ("fsdp1-autocast", LLAMA, {**FSDP1, "world": 4, "autocast": "bf16", **BF16}),
    ("fsdp1-autocast-mha", MHA, {**FSDP1, "world": 2, "autocast": "bf16", **BF16}),
    ("fsdp1-autocast-fp32", LLAMA, {**FSDP1, "world": 4, "autocast": "bf16"}),
    ("fsdp1-autocast-ac", LLAMA, {**FSDP1, "world": 4, "autocast": "bf16", "ac": "full", **BF16}),
    ("fsdp1-autocast-grad-op", LLAMA, {**FSDP1, "world": 4, "autocast": "bf16", "sharding": "SHARD_GRAD_OP", **BF16}),
    ("fsdp1-autocast-accumulate", LLAMA, {**FSDP1, "world": 4, "autocast": "bf16", "accumulate": 2, **BF16}),
    ("fsdp1-hf", HF_LLAMA, {**FSDP1_HF, **BF16}),
    ("fsdp1-hf-autocast", HF_LLAMA, {**FSDP1_HF, "autocast": "bf16", **BF16}),
    ("fsdp1-hf-autocast-fp32", HF_LLAMA, {**FSDP1_HF, "autocast": "bf16"}),
    ("fsdp1-hf-gpt2-autocast", HF_GPT2, {**FSDP1_HF, "autocast": "bf16", **BF16}),
)
TENSORWISE, ROWWISE = ({"world": 4, "float8": recipe, **BF16} for recipe in ("tensorwise", "rowwise"))
DYNAMIC, PRECOMPUTED = ({**TENSORWISE, "float8_all_gather": scales} for scales in ("dynamic", "precomputed"))
FLOAT8_CASES = (
    ("float8-tensorwise", LLAMA, TENSORWISE),
    ("float8-rowwise", LLAMA, ROWWISE),
    ("float8-rowwise-full", LLAMA, {**ROWWISE, "ac": "full"}),
    ("float8-rowwise-selective", LLAMA, {**ROWWISE, "ac": "selective"}),
    ("float8-gather", LLAMA, DYNAMIC),
    ("float8-gather-titan-full", LLAMA, {**DYNAMIC, "units": "torchtitan", "ac": "full"}),
    ("float8-gather-selective", LLAMA, {**DYNAMIC, "ac": "selective"}),
    ("float8-precomputed", LLAMA, PRECOMPUTED),
    ("float8-precomputed-titan", LLAMA, {**PRECOMPUTED, "units": "torchtitan", "clip": True}),
    ("float8-precomputed-accumulate", LLAMA, {**PRECOMPUTED, "accumulate": 2}),
)
MODEL = {**DDP, "compile": "model"}
GPT2 = {"kind": "gpt2", "dim": 192, "heads": 4, "vocab": 131, "layers": 2, "batch": 2, "seq": 64}
MODEL_CASES = (
    ("model-ddp", LLAMA, MODEL),
    ("model-ddp-accumulate", LLAMA, {**MODEL, "bucket_cap_mb": 1, "accumulate": 2}),
    ("model-ddp-views", LLAMA, {**MODEL, "bucket_cap_mb": 1, "gradient_as_bucket_view": True}),
    ("model-ddp-ac", LLAMA, {**MODEL, "ac": "full"}),
    ("model-ddp-autocast", LLAMA, {**AUTOCAST, "compile": "model"}),
    ("model-ddp-gpt2", GPT2, MODEL),
)
FRAMES = {"compile": "model"}
FRAMES_CASES = (
    ("frames-fsdp2", LLAMA, {"world": 4, **BF16, **FRAMES}),
    ("frames-fsdp2-titan-ac", LLAMA, {"world": 4, "units": "torchtitan", "ac": "full", **BF16, **FRAMES}),
    ("frames-fsdp2-gpt2", GPT2, {"world": 4, **BF16, **FRAMES}),
    ("frames-fsdp2-gpt2-untied", {**GPT2, "tied": False}, {"world": 2, "ac": "selective", **BF16, **FRAMES}),
    ("frames-fsdp2-gpt2-accumulate", GPT2, {"world": 4, "accumulate": 2, "clip": True, **BF16, **FRAMES}),
    ("frames-fsdp1", LLAMA, {**FSDP1, "world": 4, **BF16, **FRAMES}),
    ("frames-fsdp1-gpt2", GPT2, {**FSDP1, "world": 4, **BF16, **FRAMES}),
    ("frames-fsdp1-gpt2-ac", GPT2, {**FSDP1, "world": 4, "ac": "full", **BF16, **FRAMES}),
    ("frames-fsdp1-gpt2-autocast", GPT2, {**FSDP1, "world": 4, "autocast": "bf16", **BF16, **FRAMES}),
    ("frames-fsdp1-none", LLAMA, {**FSDP1, "world": 4, "wrap": "none", **BF16, **FRAMES}),
    ("frames-fsdp1-none-gpt2", GPT2, {**FSDP1, "world": 4, "wrap": "none", "sharding": "SHARD_GRAD_OP", **BF16, **FRAMES}),
)
PARTS = {**DDP, "compile": "model", "optimize_ddp": True, "bucket_cap_mb": 1}
PARTS_AUTOCAST = {**PARTS, **AUTOCAST}
del PARTS_AUTOCAST["store_dtype"]
DEEP = {**GPT2, "layers": 4}
PARTS_CASES = (
    ("parts-ddp", LLAMA, PARTS),
    ("parts-ddp-2", {**LLAMA, "layers": 4}, {**PARTS, "bucket_cap_mb": 2}),
    ("parts-ddp-mha", {**LLAMA, "kv_heads": 8}, PARTS),
    ("parts-ddp-25", LLAMA, {**PARTS, "bucket_cap_mb": 25}),
    ("parts-ddp-tied", {**LLAMA, "tied": True}, PARTS),
    ("parts-ddp-accumulate", LLAMA, {**PARTS, "accumulate": 2}),
    ("parts-ddp-views", LLAMA, {**PARTS, "gradient_as_bucket_view": True}),
    ("parts-ddp-ac", LLAMA, {**PARTS, "ac": "full"}),
    ("parts-ddp-autocast", LLAMA, PARTS_AUTOCAST),
    ("parts-ddp-gpt2", DEEP, PARTS),
    ("parts-ddp-gpt2-autocast", DEEP, PARTS_AUTOCAST),
    ("parts-ddp-gpt2-untied", {**DEEP, "tied": False}, PARTS_AUTOCAST),
    ("parts-blocks", LLAMA, {**PARTS, "compile": "blocks"}),
    ("parts-blocks-mha", MHA, {**PARTS, "compile": "blocks", "bucket_cap_mb": 2}),
    ("parts-blocks-ac", LLAMA, {**PARTS, "compile": "blocks", "ac": "full"}),
    ("parts-blocks-autocast", LLAMA, {**PARTS_AUTOCAST, "compile": "blocks"}),
)
ZERO = {"system": "deepspeed", "world": 4, "param_dtype": "bf16"}
SMALL = {"reduce_bucket_size": 200000}
ZERO_CASES = (
    ("zero1", LLAMA, {**ZERO, "stage": 1}),
    ("zero2", LLAMA, {**ZERO, "stage": 2}),
    ("zero2-mha", MHA, {**ZERO, "world": 2, "stage": 2}),
    ("zero1-buckets", LLAMA, {**ZERO, "stage": 1, **SMALL}),
    ("zero2-buckets", LLAMA, {**ZERO, "stage": 2, "allgather_bucket_size": 100000, **SMALL}),
    ("zero2-overlap", LLAMA, {**ZERO, "stage": 2, "overlap_comm": True, **SMALL}),
    ("zero2-ac", LLAMA, {**ZERO, "stage": 2, "ac": "full", **SMALL}),
    ("zero2-accumulate", LLAMA, {**ZERO, "stage": 2, "accumulate": 2, **SMALL}),
    ("zero1-accumulate-clip", LLAMA, {**ZERO, "stage": 1, "accumulate": 2, "clip": True}),
    ("zero2-hf", HF_LLAMA, {**ZERO, "stage": 2, "code": "hf", **SMALL}),
    ("zero1-hf-gpt2", HF_GPT2, {**ZERO, "stage": 1, "code": "hf", **SMALL}),
    ("zero1-model", LLAMA, {**ZERO, "stage": 1, "compile": "model"}),
    ("zero2-model", LLAMA, {**ZERO, "stage": 2, "compile": "model", **SMALL}),
    ("zero2-model-ac", LLAMA, {**ZERO, "stage": 2, "compile": "model", "ac": "full", **SMALL}),
    ("zero2-model-gpt2", GPT2, {**ZERO, "stage": 2, "compile": "model", "accumulate": 2, **SMALL}),
)
HF_GQA = {**HF_LLAMA, "num_key_value_heads": 2}
HF_MODEL = {**MODEL, "code": "hf"}
HF_ZERO = {**ZERO, "code": "hf", "compile": "model"}
HF_FRAMES = {"world": 4, "code": "hf", **BF16, **FRAMES}
HF_CASES = (
    ("model-hf-ddp", HF_GQA, HF_MODEL),
    ("model-hf-ddp-accumulate", HF_GQA, {**HF_MODEL, "bucket_cap_mb": 1, "accumulate": 2}),
    ("model-hf-ddp-views", HF_GQA, {**HF_MODEL, "bucket_cap_mb": 1, "gradient_as_bucket_view": True}),
    ("model-hf-ddp-ac", HF_GQA, {**HF_MODEL, "ac": "full"}),
    ("model-hf-ddp-tied", {**HF_GQA, "tie_word_embeddings": True, "batch": 1}, HF_MODEL),
    ("model-hf-ddp-odd", {**HF_GQA, "seq": 100}, HF_MODEL),
    ("model-hf-ddp-fp32", HF_LLAMA, {"system": "ddp", "world": 4, "code": "hf", **FRAMES}),
    ("model-hf-ddp-autocast", HF_GQA, {**AUTOCAST, "code": "hf", "compile": "model"}),
    ("model-hf-ddp-mistral", {**HF_GQA, "model_type": "mistral", "sliding_window": None}, HF_MODEL),
    ("model-hf-ddp-qwen2", {**HF_GQA, "model_type": "qwen2"}, HF_MODEL),
    ("model-hf-ddp-qwen3", {**HF_GQA, "model_type": "qwen3", "head_dim": 32}, HF_MODEL),
    ("model-hf-zero1", HF_GQA, {**HF_ZERO, "stage": 1}),
    ("model-hf-zero2", HF_GQA, {**HF_ZERO, "stage": 2, **SMALL}),
    ("model-hf-zero2-qwen3-accumulate", {**HF_GQA, "model_type": "qwen3", "head_dim": 32},
     {**HF_ZERO, "stage": 2, "accumulate": 2, **SMALL}),
    ("frames-hf-fsdp1-none", HF_GQA, {**FSDP1, **HF_FRAMES, "wrap": "none"}),
    ("parts-hf-ddp", {**HF_LLAMA, "num_hidden_layers": 4}, {**PARTS, "code": "hf"}),
    ("parts-hf-ddp-gqa", {**HF_GQA, "num_hidden_layers": 4}, {**PARTS, "code": "hf"}),
    ("parts-hf-ddp-25", HF_GQA, {**PARTS, "code": "hf", "bucket_cap_mb": 25}),
    ("parts-hf-ddp-tied", {**HF_LLAMA, "num_hidden_layers": 3, "tie_word_embeddings": True}, {**PARTS, "code": "hf"}),
    ("parts-hf-ddp-accumulate", {**HF_LLAMA, "batch": 1}, {**PARTS, "code": "hf", "accumulate": 2}),
    ("parts-hf-ddp-ac", {**HF_LLAMA, "num_hidden_layers": 3}, {**PARTS, "code": "hf", "ac": "full"}),
    ("parts-hf-ddp-autocast", {**HF_LLAMA, "num_hidden_layers": 3}, {**PARTS_AUTOCAST, "code": "hf"}),
    ("parts-hf-ddp-qwen3", {**HF_LLAMA, "model_type": "qwen3", "head_dim": 32}, {**PARTS, "code": "hf"}),
    ("parts-hf-blocks", {**HF_LLAMA, "num_hidden_layers": 3}, {**PARTS, "code": "hf", "compile": "blocks"}),
    ("parts-hf-blocks-ac", {**HF_LLAMA, "num_hidden_layers": 3}, {**PARTS, "code": "hf", "compile": "blocks", "ac": "full"}),
)
NATIVE_AMP = {"autocast": "bf16", "outputs": "fp32", "around": True}
ACCELERATE = {**AUTOCAST, "code": "hf", "compile": "model", **NATIVE_AMP, "optimize_ddp": True}
HF_FOUR = {**HF_GQA, "num_hidden_layers": 4}
HF_OPT = {**HF, "model_type": "opt", "hidden_size": 256, "num_hidden_layers": 2, "ffn_dim": 1024,
          "num_attention_heads": 8, "max_position_embeddings": 128, "word_embed_proj_dim": 256, "dropout": 0.0}
HF_GEMMA = {**HF_GQA, "model_type": "gemma", "head_dim": 32}
HF_GEMMA3 = {**HF_GQA, "model_type": "gemma3_text", "head_dim": 32, "sliding_window": 64,
             "layer_types": ["sliding_attention", "full_attention"]}
HF_PHI3 = {**HF_GQA, "model_type": "phi3", "pad_token_id": 0, "sliding_window": None}
HF_GEMMA2 = {**HF_GEMMA3, "model_type": "gemma2", "query_pre_attn_scalar": 32}
HF_GLM4 = {**HF_GQA, "model_type": "glm4", "head_dim": 32, "pad_token_id": 0}
FAMILIES_CASES = tuple(case for name, m in (("gemma2", HF_GEMMA2), ("phi3", HF_PHI3), ("glm4", HF_GLM4),
                                            ("cohere", {**HF_GQA, "model_type": "cohere"})) for case in (
    (f"model-hf-ddp-{name}", m, {**HF_MODEL, "around": True}),
    (f"accelerate-ddp-{name}", {**m, "num_hidden_layers": 4, **({"layer_types": m["layer_types"] * 2} if "layer_types" in m else {})},
     {**ACCELERATE, "bucket_cap_mb": 1, "ac": "full"}),
    (f"frames-hf-fsdp2-{name}", m, HF_FRAMES),
    (f"accelerate-fsdp1-{name}", m, {**FSDP1, **HF_FRAMES, **NATIVE_AMP}),
)) + tuple((f"frames-hf-fsdp2-{name}", {**HF_GQA, "model_type": name, "head_dim": 32, "pad_token_id": 0}, HF_FRAMES)
           for name in ("glm", "ernie4_5", "helium", "hunyuan_v1_dense")) + (
    ("frames-hf-fsdp2-arcee", {**HF_GQA, "model_type": "arcee"}, HF_FRAMES),
    ("frames-hf-fsdp2-cohere2", {**HF_GQA, "model_type": "cohere2", "sliding_window": 64,
                                 "layer_types": ["sliding_attention", "full_attention"]}, HF_FRAMES),
    ("frames-hf-fsdp2-vaultgemma", {**HF_GEMMA2, "model_type": "vaultgemma"}, HF_FRAMES),
)
MORE_CASES = (
    ("model-hf-ddp-opt", HF_OPT, {**HF_MODEL, "around": True}),
    ("accelerate-ddp-opt", {**HF_OPT, "num_hidden_layers": 4}, {**ACCELERATE, "bucket_cap_mb": 1, "ac": "full"}),
    ("frames-hf-fsdp2-opt", HF_OPT, HF_FRAMES),
    ("frames-hf-fsdp1-opt", HF_OPT, {**FSDP1, **HF_FRAMES}),
    ("model-hf-ddp-gemma", HF_GEMMA, {**HF_MODEL, "around": True}),
    ("accelerate-ddp-gemma", {**HF_GEMMA, "num_hidden_layers": 4}, {**ACCELERATE, "bucket_cap_mb": 1}),
    ("frames-hf-fsdp2-gemma", HF_GEMMA, HF_FRAMES),
    ("model-hf-ddp-gemma3", HF_GEMMA3, {**HF_MODEL, "around": True}),
    ("accelerate-ddp-gemma3", {**HF_GEMMA3, "num_hidden_layers": 4, "layer_types": HF_GEMMA3["layer_types"] * 2},
     {**ACCELERATE, "bucket_cap_mb": 1}),
    ("frames-hf-fsdp2-gemma3", HF_GEMMA3, HF_FRAMES),
    ("accelerate-fsdp2-gemma3", HF_GEMMA3, {**HF_FRAMES, "units": "torchtitan"}),
    ("model-hf-ddp-gpt2", HF_GPT2, {**HF_MODEL, "around": True}),
    ("model-hf-ddp-gpt2-ac", HF_GPT2, {**HF_MODEL, "around": True, "ac": "full"}),
    ("parts-hf-ddp-gpt2", {**HF_GPT2, "n_layer": 4}, {**PARTS, "code": "hf", "around": True}),
    ("parts-hf-ddp-gpt2-autocast", {**HF_GPT2, "n_layer": 4, "tie_word_embeddings": False},
     {**PARTS_AUTOCAST, "code": "hf", "around": True}),
    ("accelerate-ddp-gpt2", {**HF_GPT2, "n_layer": 4}, {**ACCELERATE, "bucket_cap_mb": 1}),
    ("accelerate-single-gpt2", HF_GPT2, {**ACCELERATE, "system": "single", "world": 1}),
    ("model-hf-zero2-gpt2", HF_GPT2, {**HF_ZERO, "stage": 2, "accumulate": 2, "around": True, **SMALL}),
    ("frames-hf-fsdp2-gpt2", HF_GPT2, HF_FRAMES),
    ("frames-hf-fsdp1-gpt2", HF_GPT2, {**FSDP1, **HF_FRAMES}),
)
ACCELERATE_CASES = (
    ("accelerate-ddp", HF_GQA, ACCELERATE),
    ("accelerate-ddp-whole", HF_GQA, {**ACCELERATE, "optimize_ddp": False}),
    ("accelerate-ddp-parts", HF_FOUR, {**ACCELERATE, "bucket_cap_mb": 1}),
    ("accelerate-ddp-ac", HF_FOUR, {**ACCELERATE, "bucket_cap_mb": 1, "ac": "full"}),
    ("accelerate-ddp-tied", {**HF_FOUR, "tie_word_embeddings": True, "batch": 1}, {**ACCELERATE, "bucket_cap_mb": 1}),
    ("accelerate-ddp-accumulate", HF_FOUR, {**ACCELERATE, "bucket_cap_mb": 1, "accumulate": 2, "clip": True}),
    ("accelerate-ddp-qwen3", {**HF_GQA, "model_type": "qwen3", "head_dim": 32}, ACCELERATE),
    ("accelerate-ddp-fp32", HF_GQA, {"system": "ddp", "world": 4, "code": "hf", "compile": "model", "around": True,
                                     "optimize_ddp": True}),
    ("accelerate-single", HF_GQA, {**ACCELERATE, "system": "single", "world": 1}),
    ("accelerate-fsdp2", HF_GQA, {**HF_FRAMES, "units": "torchtitan"}),
    ("accelerate-fsdp2-ac", HF_GQA, {**HF_FRAMES, "units": "torchtitan", "ac": "full"}),
    ("accelerate-fsdp2-tied", {**HF_GQA, "tie_word_embeddings": True}, {**HF_FRAMES, "units": "torchtitan"}),
    ("accelerate-fsdp2-fp32", HF_GQA, {**FRAMES, "world": 2, "code": "hf", "units": "torchtitan", "accumulate": 2, "clip": True}),
    ("accelerate-fsdp2-qwen3", {**HF_GQA, "model_type": "qwen3", "head_dim": 32},
     {**HF_FRAMES, "units": "torchtitan", "reshard": "never"}),
    ("accelerate-fsdp2-stablelm", {**HF_GQA, "model_type": "stablelm"}, {**HF_FRAMES, "units": "torchtitan"}),
    ("accelerate-fsdp1", HF_GQA, {**FSDP1, **HF_FRAMES, **NATIVE_AMP}),
    ("accelerate-fsdp1-ac", HF_GQA, {**FSDP1, **HF_FRAMES, **NATIVE_AMP, "ac": "full"}),
    ("accelerate-fsdp1-none", HF_GQA, {**FSDP1, **HF_FRAMES, **NATIVE_AMP, "wrap": "none"}),
    ("accelerate-fsdp1-fp32", HF_GQA, {**FSDP1, **FRAMES, "world": 4, "code": "hf", "around": True}),
    ("accelerate-zero2", HF_GQA, {**HF_ZERO, "stage": 2, "around": True, **SMALL}),
    ("accelerate-zero1", HF_GQA, {**HF_ZERO, "stage": 1, "around": True}),
    ("trainer-ddp", HF_GQA, {**ACCELERATE, "find_unused_parameters": True}),
    ("trainer-ddp-parts", HF_FOUR, {**ACCELERATE, "bucket_cap_mb": 1, "find_unused_parameters": True}),
)
HF_FRAMES_CASES = (
    ("frames-hf-fsdp2", HF_GQA, HF_FRAMES),
    ("frames-hf-fsdp2-qwen3", {**HF_GQA, "model_type": "qwen3", "head_dim": 32}, HF_FRAMES),
    ("frames-hf-fsdp2-ac", HF_GQA, {**HF_FRAMES, "ac": "full"}),
    ("frames-hf-fsdp2-accumulate", HF_GQA, {**HF_FRAMES, "accumulate": 2, "clip": True}),
    ("frames-hf-fsdp2-bf16", HF_GQA, {"world": 2, "code": "hf", "store_dtype": "bf16", **FRAMES}),
    ("frames-hf-fsdp2-tied", {**HF_GQA, "tie_word_embeddings": True}, HF_FRAMES),
    ("frames-hf-fsdp1", HF_GQA, {**FSDP1, **HF_FRAMES}),
    ("frames-hf-fsdp1-autocast", HF_GQA, {**FSDP1, **HF_FRAMES, "autocast": "bf16"}),
    ("frames-hf-fsdp2-mistral-window", {**HF_GQA, "model_type": "mistral", "sliding_window": 64}, HF_FRAMES),
    ("frames-hf-fsdp2-qwen2-window", {**HF_GQA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64,
                                      "max_window_layers": 1}, {**HF_FRAMES, "ac": "selective"}),
    ("frames-hf-fsdp2-olmo3", {**HF_GQA, "model_type": "olmo3", "num_hidden_layers": 4, "sliding_window": 64},
     {**HF_FRAMES, "blocks_per_unit": 2, "reshard": "never"}),
    ("frames-hf-fsdp2-granite", {**HF_GQA, "model_type": "granite", "batch": 1}, {**HF_FRAMES, "replicate": 2}),
    ("frames-hf-fsdp2-stablelm", {**HF_GQA, "model_type": "stablelm", "seq": 100}, HF_FRAMES),
    ("frames-hf-fsdp2-starcoder2", {**HF_GQA, "model_type": "starcoder2", "sliding_window": None, "residual_dropout": 0.0,
                                    "embedding_dropout": 0.0, "attention_dropout": 0.0}, HF_FRAMES),
    ("frames-hf-fsdp2-olmo", {**HF_GQA, "model_type": "olmo"}, HF_FRAMES),
    ("frames-hf-fsdp2-olmo2", {**HF_GQA, "model_type": "olmo2"}, {**HF_FRAMES, "ac": "full"}),
    ("frames-hf-fsdp2-smollm3", {**HF_GQA, "model_type": "smollm3", "pad_token_id": 0, "num_hidden_layers": 4}, HF_FRAMES),
    ("frames-hf-fsdp2-seed_oss", {**HF_GQA, "model_type": "seed_oss", "head_dim": 32, "attention_out_bias": False,
                                  "attention_dropout": 0.0, "residual_dropout": 0.0}, HF_FRAMES),
    ("frames-hf-fsdp2-ministral", {**HF_GQA, "model_type": "ministral", "head_dim": 32, "sliding_window": 64}, HF_FRAMES),
    ("frames-hf-fsdp2-exaone4", {**HF_GQA, "model_type": "exaone4", "sliding_window": 64, "sliding_window_pattern": 2,
                                 "layer_types": ["sliding_attention", "full_attention"]}, HF_FRAMES),
    ("frames-hf-fsdp2-phi", {**HF_GQA, "model_type": "phi", "embd_pdrop": 0.0, "resid_pdrop": 0.0,
                             "attention_dropout": 0.0}, HF_FRAMES),
)
ALL_LINEAR = {"code": "hf", "lora": "8,all-linear"}
TWO = {"store_dtype": "bf16", "lora_dtype": "fp32"}     # adapters in fp32 beside a model in bf16
LORA_DDP = {"system": "ddp", "world": 4, **ALL_LINEAR}
SINGLE = {"system": "single", "world": 1}
WHOLE_LORA = {**ALL_LINEAR, **FRAMES}
ACCELERATE_LORA = {**ACCELERATE, "lora": "8,all-linear"}
HF_WIDE = {**HF_GQA, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4,
           "vocab_size": 1000, "num_hidden_layers": 3, "batch": 1, "seq": 512}
FROZEN_CASES = (        # adapters, and what else has parameters that are not trained
    ("lora-single", HF_GQA, {**SINGLE, **ALL_LINEAR, "store_dtype": "bf16"}),
    ("lora-single-two-autocast", HF_GQA, {**SINGLE, **ALL_LINEAR, **TWO, "autocast": "bf16"}),
    ("lora-single-two-ac", HF_WIDE, {**SINGLE, **ALL_LINEAR, **TWO, "ac": "full"}),
    ("lora-ddp", HF_GQA, {**LORA_DDP, "store_dtype": "bf16"}),
    ("lora-ddp-two-autocast", HF_FOUR, {**LORA_DDP, **TWO, "autocast": "bf16"}),
    ("lora-ddp-accumulate", HF_GQA, {**LORA_DDP, "lora": "8", "store_dtype": "bf16", "accumulate": 2}),
    ("lora-fsdp2", HF_GQA, {"world": 4, **ALL_LINEAR, **BF16}),
    ("lora-fsdp2-two", HF_GQA, {"world": 4, **ALL_LINEAR, **BF16, **TWO}),
    ("lora-fsdp2-ac", HF_FOUR, {"world": 4, **ALL_LINEAR, **BF16, "ac": "full"}),
    ("lora-fsdp2-qwen3-accumulate", {**HF_GQA, "model_type": "qwen3", "head_dim": 32},
     {"world": 2, **ALL_LINEAR, **BF16, "accumulate": 2, "clip": True}),
    ("lora-fsdp1", HF_GQA, {**FSDP1, "world": 4, **ALL_LINEAR, **BF16}),
    ("lora-fsdp1-autocast", HF_GQA, {**FSDP1, "world": 4, **ALL_LINEAR, **BF16, "autocast": "bf16"}),
    ("lora-zero2", HF_GQA, {**ZERO, "stage": 2, **ALL_LINEAR}),
    ("frozen-fsdp2", LLAMA, {"world": 4, **BF16, "freeze": "tok_embeddings.*,layers.0.*"}),
    ("frozen-fsdp2-ac", LLAMA, {"world": 4, **BF16, "freeze": "*.wq.*,*.w2.*", "ac": "full"}),
    ("frozen-ddp", LLAMA, {**DDP, "freeze": "tok_embeddings.*,layers.0.*"}),
    ("frozen-ddp-norms", LLAMA, {**DDP, "freeze": "*norm*"}),
    ("frozen-fsdp1", LLAMA, {**FSDP1, "world": 4, **BF16, "freeze": "tok_embeddings.*,*.wk.*"}),
    ("frozen-zero1", LLAMA, {**ZERO, "stage": 1, "freeze": "tok_embeddings.*,layers.0.*"}),
    ("model-lora-single", HF_GQA, {**SINGLE, **WHOLE_LORA, "store_dtype": "bf16"}),
    ("model-lora-single-two", HF_WIDE, {**SINGLE, **WHOLE_LORA, **TWO}),
    ("model-lora-ddp", HF_GQA, {**LORA_DDP, **FRAMES, "store_dtype": "bf16"}),
    ("accelerate-lora-single", HF_GQA, {**ACCELERATE_LORA, **SINGLE}),
    ("accelerate-lora-single-two", HF_GQA, {**ACCELERATE_LORA, **SINGLE, **TWO}),
    ("accelerate-lora-single-two-ac", HF_FOUR, {**ACCELERATE_LORA, **SINGLE, **TWO, "ac": "full", "accumulate": 2}),
    ("accelerate-lora-ddp", HF_FOUR, ACCELERATE_LORA),
    ("accelerate-lora-ddp-two", HF_FOUR, {**ACCELERATE_LORA, **TWO}),
    ("accelerate-lora-ddp-parts", HF_WIDE, {**ACCELERATE_LORA, "lora": "64,all-linear", "bucket_cap_mb": 1}),
    ("accelerate-lora-fsdp2", HF_GQA, {**HF_FRAMES, **ALL_LINEAR, "units": "torchtitan"}),
    ("accelerate-lora-fsdp2-two-ac", HF_FOUR, {**HF_FRAMES, **ALL_LINEAR, **TWO, "units": "torchtitan", "ac": "full"}),
    ("frames-lora-fsdp2-qwen3", {**HF_GQA, "model_type": "qwen3", "head_dim": 32}, {**HF_FRAMES, "lora": "8"}),
    ("frames-lora-fsdp1", HF_GQA, {**FSDP1, **HF_FRAMES, **ALL_LINEAR}),
    ("accelerate-lora-fsdp1", HF_GQA, {**FSDP1, **HF_FRAMES, **ALL_LINEAR, **NATIVE_AMP}),
    ("model-frozen-ddp", LLAMA, {**MODEL, "freeze": "tok_embeddings.*,layers.0.*"}),
    ("parts-frozen-ddp", LLAMA, {**PARTS, "freeze": "tok_embeddings.*,*.wq.*"}),
    ("frames-frozen-fsdp2-gpt2", GPT2, {"world": 4, **BF16, **FRAMES, "freeze": "wte.*,wpe.*,*.bias"}),
    ("frames-frozen-hf-fsdp2", HF_GQA, {**HF_FRAMES, "freeze": "*embed_tokens*,*layers.0.*"}),
    ("accelerate-frozen-ddp", HF_FOUR, {**ACCELERATE, "freeze": "*embed_tokens*,*mlp*"}),
)
HF_MOE = {**HF_GQA, "num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 4, "moe_intermediate_size": 192}
QWEN3_MOE = {**HF_MOE, "model_type": "qwen3_moe", "head_dim": 32, "norm_topk_prob": True}
QWEN2_MOE = {**HF_MOE, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 320}
MIXTRAL = {**HF_MOE, "model_type": "mixtral", "num_local_experts": 8, "sliding_window": None}
GLM4_MOE = {**HF_MOE, "model_type": "glm4_moe", "head_dim": 32, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
            "n_routed_experts": 8, "n_shared_experts": 1}
DEEPSEEK_V3 = {**GLM4_MOE, "model_type": "deepseek_v3", "num_key_value_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64,
               "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_group": 4, "topk_group": 2}
del DEEPSEEK_V3["head_dim"]
MOE = {"world": 4, "code": "hf", **BF16}
MOE_CASES = (           # mixtures of experts of transformers' code
    ("moe-fsdp2-qwen3", QWEN3_MOE, MOE),
    ("moe-fsdp2-qwen3-ac", QWEN3_MOE, {**MOE, "ac": "full"}),
    ("moe-fsdp2-mixtral-accumulate", MIXTRAL, {**MOE, "accumulate": 2, "clip": True}),
    ("moe-fsdp2-qwen2", QWEN2_MOE, {**MOE, "reshard": "never"}),
    ("moe-fsdp2-glm4", GLM4_MOE, MOE),
    ("moe-fsdp2-deepseek-v3", DEEPSEEK_V3, {**MOE, "ac": "full"}),
    ("moe-ddp-qwen3", QWEN3_MOE, {**DDP, "code": "hf"}),
    ("moe-ddp-mixtral-ac", MIXTRAL, {**DDP, "code": "hf", "ac": "full"}),
    ("moe-fsdp1-qwen3", QWEN3_MOE, {**FSDP1, **MOE}),
    ("moe-zero2-qwen3", QWEN3_MOE, {**ZERO, "stage": 2, "code": "hf", **SMALL}),
    ("moe-frames-fsdp2-qwen3", QWEN3_MOE, {**MOE, **FRAMES}),
    ("moe-frames-fsdp2-mixtral-ac", MIXTRAL, {**MOE, **FRAMES, "ac": "full"}),
    ("moe-accelerate-fsdp2-qwen2", QWEN2_MOE, {**MOE, **FRAMES, "units": "torchtitan"}),
    ("moe-model-ddp-qwen3", QWEN3_MOE, {**HF_MODEL, "around": True}),
)
HF_GPTJ = {**HF, "model_type": "gptj", "n_embd": 256, "n_layer": 2, "n_head": 8, "n_positions": 128, "rotary_dim": 16,
           "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
HF_NEOX = {**HF, "model_type": "gpt_neox", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
           "intermediate_size": 1024, "max_position_embeddings": 128}
HF_NEMOTRON = {**HF_GQA, "model_type": "nemotron"}
HF_CWM = {**HF_GQA, "model_type": "cwm", "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
WIDER = (("nemotron", HF_NEMOTRON), ("cwm", HF_CWM), ("gptj", HF_GPTJ), ("gpt_neox", HF_NEOX),
         ("ministral3", {**HF_GQA, "model_type": "ministral3", "head_dim": 32, "sliding_window": None}),
         ("nanochat", {**HF_GQA, "model_type": "nanochat", "num_key_value_heads": 8}),
         *((name, {**HF_GQA, "model_type": name}) for name in ("hyperclovax", "iquestcoder")),
         *((name, {**HF_GQA, "model_type": name, "head_dim": 32}) for name in ("internlm3", "jais2")))
WIDER_CASES = tuple((f"frames-hf-fsdp2-{name}", m, HF_FRAMES) for name, m in WIDER) + tuple(
    (f"model-hf-ddp-{name}", m, {**HF_MODEL, "around": True}) for name, m in WIDER[:4]) + tuple(
    (f"accelerate-fsdp1-{name}", m, {**FSDP1, **HF_FRAMES, **NATIVE_AMP}) for name, m in WIDER[:2]) + (
    ("accelerate-ddp-gptj", {**HF_GPTJ, "n_layer": 4}, {**ACCELERATE, "bucket_cap_mb": 1, "ac": "full"}),
    ("accelerate-ddp-nemotron", {**HF_NEMOTRON, "num_hidden_layers": 4}, {**ACCELERATE, "bucket_cap_mb": 1}),
    ("accelerate-fsdp2-nemotron", HF_NEMOTRON, {**HF_FRAMES, "units": "torchtitan"}),
    ("blocks-fsdp2-gptj", HF_GPTJ, {"world": 4, "code": "hf", **BF16}),
)
HF_FALCON = {**HF, "model_type": "falcon", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
             "ffn_hidden_size": 1024, "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False,
             "alibi": False, "max_position_embeddings": 128}
FALCON_NEW = {**HF_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}
FALCON_RW = {**HF_FALCON, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True}
HF_CODEGEN = {**HF_GPTJ, "model_type": "codegen"}
HF_BIGCODE = {**HF_GPTJ, "model_type": "gpt_bigcode", "multi_query": True}
del HF_BIGCODE["rotary_dim"]
HF_MPT = {**HF, "model_type": "mpt", "d_model": 256, "n_layers": 2, "n_heads": 8, "max_seq_len": 128}
HF_NEO = {**HF, "model_type": "gpt_neo", "hidden_size": 256, "num_layers": 2, "num_heads": 8, "max_position_embeddings": 128,
          "attention_types": [[["global", "local"], 1]], "window_size": 64, "attention_dropout": 0.0, "embed_dropout": 0.0,
          "resid_dropout": 0.0}
HF_BERT = {**HF, "model_type": "bert", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 1024,
           "max_position_embeddings": 128, "type_vocab_size": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WINDOWED = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
HF_GEMMA4 = {**HF_GQA, "model_type": "gemma4_text", "head_dim": 32, "global_head_dim": 64, "num_global_key_value_heads": 1,
             "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, **WINDOWED}
HF_QWEN2_VL = {**HF_GQA, "model_type": "qwen2_vl_text",
               "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}}
HF_APERTUS = {**HF_GQA, "model_type": "apertus", "hidden_act": "xielu"}
HF_EXPERTS = {**HF_MOE, "num_local_experts": 8, "intermediate_size": 192}
HF_HUNYUAN = {**HF_EXPERTS, "model_type": "hunyuan_v1_moe", "head_dim": 32, "moe_topk": 4, "num_shared_expert": 1}
del HF_HUNYUAN["num_experts_per_tok"]
HF_GPT_OSS = {**HF_EXPERTS, "model_type": "gpt_oss", "head_dim": 32, **WINDOWED}
REST = (("gpt_bigcode", HF_BIGCODE), ("falcon-new", FALCON_NEW), ("falcon-rw", FALCON_RW), ("mpt", HF_MPT), ("gpt_neo", HF_NEO),
        ("falcon", HF_FALCON), ("bert", HF_BERT), ("codegen", HF_CODEGEN), ("apertus", HF_APERTUS), ("gemma4", HF_GEMMA4), ("qwen2_vl", HF_QWEN2_VL),
        ("qwen3_vl", {**HF_GQA, "model_type": "qwen3_vl_text", "head_dim": 32}), ("gpt_oss", HF_GPT_OSS),
        ("gemma4-moe", {**HF_GEMMA4, "enable_moe_block": True, "num_experts": 8, "top_k_experts": 4, "moe_intermediate_size": 192}),
        ("qwen3_vl_moe", {**HF_MOE, "model_type": "qwen3_vl_moe_text", "head_dim": 32, "num_local_experts": 8}),
        ("granitemoeshared", {**HF_EXPERTS, "model_type": "granitemoeshared", "shared_intermediate_size": 320}),
        ("llama4", {**HF_EXPERTS, "model_type": "llama4_text", "head_dim": 32, "intermediate_size_mlp": 320, "num_experts_per_tok": 1,
                    "attention_chunk_size": 64, "interleave_moe_layer_step": 1, "no_rope_layers": [1, 0], "use_qk_norm": True}),
        ("deepseek_v2", {**DEEPSEEK_V3, "model_type": "deepseek_v2", "q_lora_rank": None, "n_group": 2, "topk_group": 1,
                         "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 2.5}),
        ("ernie4_5_moe", {**HF_EXPERTS, "intermediate_size": 704, "model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_k": 4, "moe_num_shared_experts": 1,
                          "moe_layer_start_index": 0, "moe_layer_end_index": 1}), ("hunyuan_v1_moe", HF_HUNYUAN))
REST_OF = dict(REST)
REST_CASES = tuple((f"frames-hf-fsdp2-{name}", m, HF_FRAMES) for name, m in REST) + tuple(
    (f"model-hf-ddp-{name}", m, {**HF_MODEL, "around": True}) for name, m in REST[:-2] if name not in ("apertus", "gpt_oss")) + tuple(
    (f"accelerate-fsdp1-{name}", m, {**FSDP1, **HF_FRAMES, **NATIVE_AMP})
    for name, m in (*REST[:2], *REST[3:5], ("gptj", HF_GPTJ), ("gpt_neox", HF_NEOX))) + tuple(
    (f"accelerate-ddp-{name}", {**m, key: 4}, {**ACCELERATE, "bucket_cap_mb": 1, "ac": "full"})
    for name, m, key in (("gpt_bigcode", HF_BIGCODE, "n_layer"), ("mpt", HF_MPT, "n_layers"))) + tuple(
    (f"accelerate-fsdp2-{name}", REST_OF[name], {**HF_FRAMES, "units": "torchtitan"}) for name in ("apertus", "gpt_oss", "deepseek_v2")
    ) + tuple((f"blocks-fsdp2-{name}", REST_OF[name], {"world": 4, "code": "hf", **BF16})
              for name in ("falcon", "mpt", "gpt_neo", "codegen", "gpt_oss"))
def seeing(kind, sections, part=None, **more):
    """The text model of one that sees."""
    ropes = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections, **({"partial_rotary_factor": part} if part else {})}
    return {**HF_GQA, "vocab_size": 251, "model_type": kind, "pad_token_id": 0, "rope_parameters": ropes, **more}


SEEING = {
    "glm4v": seeing("glm4v_text", [2, 3, 3], 0.5), "glm_ocr": seeing("glm_ocr_text", [4, 6, 6], 1.0, head_dim=32),
    "paddleocr_vl": seeing("paddleocr_vl_text", [4, 6, 6], head_dim=32),
    "glm4v_moe": {**seeing("glm4v_moe_text", [2, 3, 3], 0.5), "seq": 512, "head_dim": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
                  "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 96,
                  "max_position_embeddings": 512},
}
REST_CASES += tuple((f"blocks-fsdp2-{name}", m, {"world": 4, "code": "hf", **BF16}) for name, m in SEEING.items())
PEFT = {**FSDP1, "world": 4, **ALL_LINEAR, **BF16, "wrap": "peft", "autocast": "bf16"}  # blocks without fullgraph, as accelerate compiles regions
PEFT_CASES = (          # adapters' Linears are units: hooks within blocks
    ("peft-fsdp1", HF_GQA, PEFT),
    ("peft-fsdp1-qv", HF_GQA, {**PEFT, "lora": "8"}),
    ("peft-fsdp1-deep", {**HF_GQA, "num_hidden_layers": 5}, {**PEFT, "sharding": "SHARD_GRAD_OP", "clip": True}),
    ("peft-fsdp1-qwen3-accumulate", {**HF_GQA, "model_type": "qwen3", "head_dim": 32}, {**PEFT, "accumulate": 2}),
    ("peft-fsdp1-mlp", {**HF_GQA, "batch": 1}, {**PEFT, "lora": "8,gate_proj,o_proj"}),
    ("frames-peft-fsdp1", HF_GQA, {**PEFT, **FRAMES}),
    ("accelerate-peft-fsdp1", HF_GQA, {**PEFT, **FRAMES, **NATIVE_AMP}),
    ("accelerate-peft-fsdp1-qwen3", {**HF_GQA, "model_type": "qwen3", "head_dim": 32, "num_hidden_layers": 3},
     {**PEFT, **FRAMES, **NATIVE_AMP, "lora": "8"}),
)
TITAN_MODEL = {**HF, "seq": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 176,
               "max_position_embeddings": 512}
TITAN_QWEN = {**TITAN_MODEL, "model_type": "qwen3_moe", "num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 48,
              "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True}
TITAN_V3 = {**TITAN_MODEL, "model_type": "deepseek_v3", "num_key_value_heads": 4, "moe_intermediate_size": 48, "n_routed_experts": 8,
            "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 32, "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16, "v_head_dim": 16, "q_lora_rank": 48, "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
            "routed_scaling_factor": 2.5}
TITAN_V2 = {**TITAN_V3, "model_type": "deepseek_v2", "n_shared_experts": 2, "norm_topk_prob": False, "routed_scaling_factor": 16.0,
            "topk_method": "group_limited_greedy"}
TITAN_LITE = {**TITAN_V2, "routed_scaling_factor": 1.0, "topk_method": "greedy", "q_lora_rank": None, "n_group": 1, "topk_group": 1}
TITAN_LLAMA4 = {**TITAN_MODEL, "model_type": "llama4_text", "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 88,
                "intermediate_size_mlp": 176, "num_local_experts": 8, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1}
TITAN = {"code": "torchtitan", "world": 4, "units": "torchtitan", **BF16}
TITAN_AUTOCAST = {"code": "torchtitan", **AUTOCAST}
TITAN_ALONE = {"code": "torchtitan", "system": "single", "world": 1, "autocast": "bf16"}
TITAN_FSDP1 = {"code": "torchtitan", "world": 4, **FSDP1}
TITAN_CASES = (         # torchtitan's mixtures: what their blocks call (titan.apply_compile)
    ("titan-fsdp2-qwen3-moe", TITAN_QWEN, TITAN),
    ("titan-fsdp2-deepseek-v3", TITAN_V3, TITAN),
    ("titan-fsdp2-deepseek-v2", TITAN_V2, TITAN),
    ("titan-fsdp2-deepseek-v2-lite", TITAN_LITE, TITAN),
    ("titan-fsdp2-llama4", TITAN_LLAMA4, TITAN),
    ("titan-fsdp2-llama4-every2", {**TITAN_LLAMA4, "interleave_moe_layer_step": 2}, TITAN),
    *((f"titan-fsdp2-{name}-{ac}", m, {**TITAN, "ac": ac})
      for ac in ("full", "selective") for name, m in (("qwen3-moe", TITAN_QWEN), ("deepseek-v3", TITAN_V3), ("llama4", TITAN_LLAMA4))),
    ("titan-fsdp2-qwen3-moe-every-2", TITAN_QWEN, {**TITAN, "ac": "full", "ac_blocks": "every-2"}),
    ("titan-fsdp2-qwen3-moe-tied", {**TITAN_QWEN, "tie_word_embeddings": True}, TITAN),
    ("titan-fsdp2-qwen3-moe-hsdp-never", TITAN_QWEN, {**TITAN, "world": 8, "replicate": 2, "reshard": "never"}),
    ("titan-fsdp2-deepseek-v3-bf16", TITAN_V3, {"code": "torchtitan", "world": 4, "units": "torchtitan", "store_dtype": "bf16"}),
    ("titan-ddp-qwen3-moe", TITAN_QWEN, TITAN_AUTOCAST),
    ("titan-ddp-qwen3-moe-full", TITAN_QWEN, {**TITAN_AUTOCAST, "ac": "full"}),
    ("titan-ddp-deepseek-v3-small", TITAN_V3, {"code": "torchtitan", **DDP, "bucket_cap_mb": 1}),
    ("titan-ddp-llama4-parts", TITAN_LLAMA4, {**TITAN_AUTOCAST, "optimize_ddp": True}),
    ("titan-ddp-qwen3-moe-parts-full", TITAN_QWEN, {**TITAN_AUTOCAST, "optimize_ddp": True, "ac": "full"}),
    ("titan-ddp-deepseek-v3-parts-1", TITAN_V3, {**TITAN_AUTOCAST, "optimize_ddp": True, "bucket_cap_mb": 1}),
    ("titan-single-qwen3-moe", TITAN_QWEN, TITAN_ALONE),
    ("titan-single-deepseek-v2-lite-selective", TITAN_LITE, {**TITAN_ALONE, "ac": "selective"}),
    ("titan-single-llama4-full", TITAN_LLAMA4, {**TITAN_ALONE, "ac": "full"}),
    ("titan-single-llama4-bf16", TITAN_LLAMA4, {"code": "torchtitan", "system": "single", "world": 1, "store_dtype": "bf16", "ac": "full"}),
    ("titan-fsdp1-qwen3-moe", TITAN_QWEN, {**TITAN_FSDP1, **BF16}),
    ("titan-fsdp1-deepseek-v3-full", TITAN_V3, {**TITAN_FSDP1, **BF16, "ac": "full"}),
    ("titan-fsdp1-llama4-autocast", TITAN_LLAMA4, {**TITAN_FSDP1, "autocast": "bf16"}),
    ("titan-fsdp1-llama4-autocast-bf16-full", TITAN_LLAMA4, {**TITAN_FSDP1, "autocast": "bf16", "ac": "full", **BF16}),
    ("titan-fsdp2-qwen3-moe-late-full", TITAN_QWEN, {**TITAN, "ac": "full", "ac_early_stop": False}),
    ("titan-fsdp2-deepseek-v3-late-full", TITAN_V3, {**TITAN, "ac": "full", "ac_early_stop": False}),
    ("titan-fsdp2-llama4-late-full", TITAN_LLAMA4, {**TITAN, "ac": "full", "ac_early_stop": False}),
    ("titan-fsdp2-llama4-late-selective", TITAN_LLAMA4, {**TITAN, "ac": "selective", "ac_early_stop": False}),
    ("titan-fsdp2-qwen3-moe-late-selective-every-2", TITAN_QWEN,
     {**TITAN, "ac": "selective", "ac_early_stop": False, "ac_blocks": "every-2"}),
    ("titan-fsdp2-deepseek-v2-accumulate-clip", TITAN_V2, {**TITAN, "accumulate": 2, "clip": True}),
    ("titan-fsdp2-llama4-accumulate-full", TITAN_LLAMA4, {**TITAN, "accumulate": 2, "ac": "full"}),
)
LEAST = 200             # bytes: of gathers in float8, scales and lists of all scales are left out; fake tensors
                        # compose what finds them otherwise, and record_real.py has them
GRAPH = "graph"         # the place that is inside of a program


class RMSNorm(models.RMSNorm):
    """One kernel where it is eager, Inductor's decomposition where it is compiled."""

    def forward(self, x):
        if torch.compiler.is_compiling():
            return torch.nn.functional.rms_norm(x, self.weight.shape, self.weight, 1e-5)
        return super().forward(x)


PRODUCTS = {"aten.mm", "aten.addmm", "aten._scaled_dot_product_flash_attention",
            "aten._scaled_dot_product_flash_attention_backward"}


def layer_norm(x, shape, weight, bias, eps):
    """As Inductor decomposes it for CUDA: mean and 1/sigma stay in fp32, which on a CPU are cast to x's dtype."""
    out, mean, rstd = torch._refs._normalize(x, list(range(x.ndim - len(shape), x.ndim)), eps)
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(x.dtype), mean, rstd


class Graphs:
    """A backend: AOTAutograd's graphs, run node by node."""

    products, reduced, runs = 0, [], 0      # of the step so far

    def __init__(self):
        self.sizes = []
        self.backend = aot_autograd(fw_compiler=self.compiled, bw_compiler=self.compiled,
                                    partition_fn=partition_fn,
                                    decompositions={**select_decomp_table(),
                                                    torch.ops.aten.native_layer_norm.default: layer_norm})

    def compiled(self, graph, _):
        self.sizes.append(sum(node.op == "call_function" for node in graph.graph.nodes))
        products = sum(str(getattr(node.target, "overloadpacket", "")) in PRODUCTS for node in graph.graph.nodes)

        def run(arguments):
            place = recorder.Log.current.place
            place.append(GRAPH)
            models.IN_PROGRAM[0] = True
            Graphs.products += products
            Graphs.runs += 1
            try:
                return torch.fx.Interpreter(graph).boxed_run(arguments)
            finally:
                place.pop()
                models.IN_PROGRAM[0] = False
        run._boxed_call = True
        return run


def compiled(kind, whole):
    """The system with its blocks compiled, or the model."""
    class Compiled(kind):
        def shard(self, model, blocks):
            self.graphs, self.gradients, self.hooks = Graphs(), [], 0
            around = self.s.get("around")
            self.hooked = whole and (around or kind is not record_systems.KINDS["ddp"])
            if self.s.get("code") == "torchtitan":
                titan.apply_compile(blocks, self.graphs.backend)
            for part in [] if around or self.s.get("code") == "torchtitan" else [model] if whole else blocks:
                part.compile(backend=self.graphs.backend,
                             fullgraph=not self.hooked and self.s.get("wrap") != "peft")
            wrapped = super().shard(model, blocks)
            if around:
                wrapped.compile(backend=self.graphs.backend)
            for name, p in model.named_parameters():
                if p.is_leaf and p.requires_grad:
                    p.register_post_accumulate_grad_hook(self.arrived(models.plain_name(name)))
                    self.hooks += 1
            return wrapped

        def arrived(self, name):
            name = name.replace("_checkpoint_wrapped_module.", "")
            return lambda _: self.gradients.append(name)
    return Compiled


def kind_of(strategy):
    if strategy.get("system") == "deepspeed":
        import record_zero          # which makes DeepSpeed's accelerator what it needs
        return compiled(record_zero.Zero, strategy["compile"] == "model")
    kind = record_systems.KINDS.get(strategy.get("system"), record.Fsdp2)
    return compiled(kind, strategy["compile"] == "model")


def border(events, least, eager):
    live, out = 0, []
    for size, category, where, _ in events:
        if abs(size) < least:
            continue
        live += size
        if category not in ("activation", "backward") or eager and size > 0 and GRAPH not in where.split("/"):
            out.append([size, category, live])
    return out


def zero_border(events):
    live, out = 0, []
    for size, category, where, what in events:
        live += size
        if "ds_" in where or where.startswith("opt"):
            out.append([size, category, where, what, live])
    return out


def record_case(name, m, s):
    torch._dynamo.reset()
    torch._dynamo.config.optimize_ddp = s.get("optimize_ddp", False)
    s = {"compile": "blocks", **s}
    # torch's own class is no frame of Dynamo's, as one from here would be
    models.RMSNorm = functools.partial(torch.nn.RMSNorm, eps=1e-5) if s["compile"] == "model" else RMSNorm
    made = []

    def make(*args):
        made.append(kind_of(s)(*args))
        return made[0]
    make.log = recorder.Log
    row = recorder.record({"name": name, "model": m, "strategy": s}, make)
    system = made[0]
    more = {"reduced": Graphs.reduced} if s.get("optimize_ddp") else {}
    if made[0].hooked and s.get("wrap") != "peft":      # of which some are of views and casts alone
        more["runs"] = Graphs.runs
    return {**{key: row[key] for key in ("name", "model", "strategy", "live", "peak_bytes")}, **more,
            "border": zero_border(row["event_list"]) if s.get("system") == "deepspeed" else
            border(row["event_list"], LEAST if s.get("float8_all_gather") else 0, s.get("code") == "torchtitan"),
            "gradients": system.gradients[-system.hooks:] if s.get("system") == "ddp" else [],
            "graphs": system.graphs.sizes[:2]}


def noting(collective):
    def called(self, func, args, kwargs):
        if unfilled.op_name(func) == "allreduce_":
            bytes_of = [t.numel() * t.element_size() for t in args[0]]
            Graphs.reduced.append([sum(bytes_of), Graphs.products])
        return collective(self, func, args, kwargs)
    return called


def cleared(clear):
    def call(self):
        Graphs.products, Graphs.reduced, Graphs.runs = 0, [], 0
        return clear(self)
    return call


def without_modes(call):
    """Frames inside of DDP's forward are converted like all others, which are out of sight of dispatch modes."""
    def converted(self, *args, **kwargs):
        with _disable_current_modes():
            return call(self, *args, **kwargs)
    return converted


def out_of_dynamo(implement):
    """CUDA's lists of autocast, which stand in for the CPU's here, are Python: no frames that Dynamo sees on a GPU."""
    def implemented(self, op, call, *args, **kwargs):
        own = call is torch.library.fallthrough_kernel
        return implement(self, op, call if own else torch._dynamo.disable(call), *args, **kwargs)
    return implemented


def prepare():
    """What lets torch.compile run on what has no data, once a process."""
    unfilled.Unfilled.collective = noting(unfilled.Unfilled.collective)
    recorder.Log.clear = cleared(recorder.Log.clear)
    CatchErrorsWrapper.__call__ = without_modes(CatchErrorsWrapper.__call__)
    torch.library.Library.impl = out_of_dynamo(torch.library.Library.impl)
    # patterns of attention written out, and matrices that are padded: neither is in these models
    fuse_attention._sfdp_init = pad_mm._pad_mm_init = lambda *_, **__: None
    aot_config.enable_autograd_cache = False
    for births in (recorder.Births, unfilled.Unfilled):
        births.ignore_compile_internals = classmethod(lambda cls: True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--check")
    parser.add_argument("--only", default="*")
    parser.add_argument("--model", action="store_true", help="models compiled whole")
    parser.add_argument("--frames", action="store_true", help="models compiled whole under FSDP2 and FSDP1")
    parser.add_argument("--parts", action="store_true", help="what DDPOptimizer splits")
    parser.add_argument("--hf", action="store_true", help="models of transformers compiled whole, as one graph")
    parser.add_argument("--hf-frames", action="store_true", help="likewise under FSDP2 and FSDP1")
    parser.add_argument("--accelerate", action="store_true", help="likewise as accelerate and Trainer compile them")
    parser.add_argument("--families", action="store_true", help="likewise of families whose heads are turned or capped otherwise")
    parser.add_argument("--wider", action="store_true", help="likewise of GPT-J, Nemotron and others")
    parser.add_argument("--peft", action="store_true", help="adapters' Linears as units of FSDP1")
    parser.add_argument("--rest", action="store_true", help="likewise of what was refused the longest")
    parser.add_argument("--more", action="store_true", help="likewise of GPT-2 and other families")
    parser.add_argument("--titan", action="store_true", help="torchtitan's mixtures; its package in PYTHONPATH")
    parser.add_argument("--float8", action="store_true", help="the cases in float8, which need torchao")
    parser.add_argument("--frozen", action="store_true", help="adapters and frozen parameters, which need peft")
    parser.add_argument("--moe", action="store_true", help="mixtures of experts; of ZeRO's deepspeed is needed")
    parser.add_argument("--zero", action="store_true", help="ZeRO's, which need deepspeed")
    args = parser.parse_args()
    prepare()
    if args.check:
        rows = [json.loads(line) for line in open(args.check)]
        same = [record_case(row["name"], row["model"], row["strategy"])["border"] == row["border"] for row in rows]
        for row, is_same in zip(rows, same):
            print(row["name"], "same" if is_same else "DIFFERS")
        return not all(same)
    rows = []
    cases = (FLOAT8_CASES if args.float8 else TITAN_CASES if args.titan else MOE_CASES if args.moe else MODEL_CASES if args.model else FRAMES_CASES if args.frames else
             PARTS_CASES if args.parts else FROZEN_CASES if args.frozen else ZERO_CASES if args.zero else HF_CASES if args.hf else
             ACCELERATE_CASES if args.accelerate else MORE_CASES if args.more else PEFT_CASES if args.peft else WIDER_CASES if args.wider else REST_CASES if args.rest else FAMILIES_CASES if args.families else HF_FRAMES_CASES if args.hf_frames else CASES)
    for case in cases:
        if fnmatch.fnmatch(case[0], args.only):
            rows.append(record_case(*case))
            print(case[0], len(rows[-1]["border"]), rows[-1]["graphs"], flush=True)
    with open(args.out, "w") as f:
        for row in rows:
            f.write(json.dumps(row, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
