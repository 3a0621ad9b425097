#!/usr/bin/env python3
"""Reference numbers of models with unusual settings, from PyTorch and transformers.

Writes into a folder (tests/data/numerics):
    variants.json   trajectories: 20 AdamW steps of small models, on real fp32 tensors on a CPU
    rope.json       RoPE frequencies and tables of every kind of scaling
    inits.json      standard deviations of freshly made models' parameters

The models are transformers' own classes. Their parameters get the values of
tests/data/numerics/README.md under the names, in the order and in the layout of the code that
shardplan plans by default: torchtitan's for the Llama family, nanoGPT's for GPT-2. That changes
nothing but the layout:
    Llama family   transformers turns numbers j and j + d/2 of a head together, torchtitan its
                   neighbours 2j and 2j + 1: rows of q and k are permuted inside each head
    GPT-2          transformers' Conv1D holds the transpose of a Linear's weight

Usage: numerics.py FOLDER          (torch 2.14.1, transformers 5.23.0; one thread)
"""
import json
import math
import sys

import torch
import torch.nn.functional as F
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers import AutoModelForSeq2SeqLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

STEPS, BATCH, SEQ = 20, 8, 24
MASK = 0xFFFFFFFF


# ---- values of tests/data/numerics/README.md ----

def parameter_values(index, shape, name):
    count = math.prod(shape)
    if name.endswith("bias"):
        return torch.zeros(shape)
    if len(shape) == 1:
        return torch.ones(shape)
    x = torch.arange(count, dtype=torch.int64) * 2654435761
    x = (x + (index + 1) * 40503 * 65537 + 12345) & MASK
    x = ((x ^ (x >> 16)) * 2246822519) & MASK
    return ((x.double() / 4294967296.0 - 0.5) * 0.2).float().reshape(shape)


def tokens(step, vocab):
    x = torch.arange(BATCH * (SEQ + 1), dtype=torch.int64) * 1103515245
    x = (x + (step + 1) * 12345 * 7919) & MASK
    x = ((x ^ (x >> 15)) * 2246822519) & MASK
    return ((x >> 8) % vocab).reshape(BATCH, SEQ + 1)


# ---- names and layouts ----

def pairs_to_halves(value, head):
    """Rows (a * head, ...) of neighbouring pairs as rows of halves."""
    grouped = value.reshape(-1, head // 2, 2, *value.shape[1:])
    return grouped.transpose(1, 2).reshape(value.shape)


def llama_parameters(config):
    """(plan's name, transformers' name, layout) in the order of torchtitan's module tree."""
    head = config.head_dim
    halves = lambda value: pairs_to_halves(value, head)
    same = lambda value: value
    rows = [("tok_embeddings.weight", "model.embed_tokens.weight", same)]
    for i in range(config.num_hidden_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        for short, name, layout in (("wq", "q_proj", halves), ("wk", "k_proj", halves),
                                    ("wv", "v_proj", same), ("wo", "o_proj", same)):
            for part in ("weight", "bias"):
                rows.append((f"{ours}attention.{short}.{part}", f"{theirs}self_attn.{name}.{part}",
                             layout))
        for norm in ("q_norm", "k_norm"):
            rows.append((f"{ours}attention.{norm}.weight", f"{theirs}self_attn.{norm}.weight",
                         halves))
        for short, name in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")):
            for part in ("weight", "bias"):
                rows.append((f"{ours}feed_forward.{short}.{part}", f"{theirs}mlp.{name}.{part}",
                             same))
        rows.append((f"{ours}attention_norm.weight", f"{theirs}input_layernorm.weight", same))
        rows.append((f"{ours}ffn_norm.weight", f"{theirs}post_attention_layernorm.weight", same))
    return rows + [("norm.weight", "model.norm.weight", same),
                   ("output.weight", "lm_head.weight", same)]


def gpt2_parameters(config):
    same = lambda value: value
    transposed = lambda value: value.t()
    rows = [("wte.weight", "transformer.wte.weight", same),
            ("wpe.weight", "transformer.wpe.weight", same)]
    for i in range(config.num_hidden_layers):
        ours, theirs = f"h.{i}.", f"transformer.h.{i}."
        for name in ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            layout = same if name.startswith("ln") else transposed
            rows.append((f"{ours}{name}.weight", f"{theirs}{name}.weight", layout))
            rows.append((f"{ours}{name}.bias", f"{theirs}{name}.bias", same))
    return rows + [("ln_f.weight", "transformer.ln_f.weight", same),
                   ("ln_f.bias", "transformer.ln_f.bias", same),
                   ("lm_head.weight", "lm_head.weight", same)]


# ---- trajectories ----

def config_of(settings):
    return AutoConfig.for_model(**json.loads(json.dumps(settings)))  # it changes what it is given


def train(name, settings):
    config = config_of(settings)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().train()
    rows = (gpt2_parameters if config.model_type == "gpt2" else llama_parameters)(config)
    theirs = dict(model.named_parameters())  # a tied head is not listed a second time
    listed, ours = [], []
    for plan_name, hf_name, layout in rows:
        if hf_name not in theirs:
            continue
        parameter = theirs.pop(hf_name)
        shape = list(layout(parameter.detach()).shape)
        value = parameter_values(len(listed), shape, plan_name)
        with torch.no_grad():
            parameter.copy_(layout(value))
        listed.append([plan_name, shape])
        ours.append(parameter)
    assert not theirs, sorted(theirs)
    optimizer = torch.optim.AdamW(ours, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, norms, first = [], [], {}
    for step in range(STEPS):
        batch = tokens(step, config.vocab_size)
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.reshape(-1, config.vocab_size), batch[:, 1:].reshape(-1))
        loss.backward()
        each = [float(p.grad.norm()) for p in ours]
        losses.append(loss.item())
        norms.append(math.sqrt(sum(n * n for n in each)))
        if step == 0:
            first = {row[0]: n for row, n in zip(listed, each)}
        optimizer.step()
        optimizer.zero_grad()
    return {"name": name, "config": settings, "batch": BATCH, "seq": SEQ, "parameters": listed,
            "loss": losses, "grad_norm": norms, "first_step_grad_norm_by_parameter": first}


LLAMA = {"model_type": "llama", "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "intermediate_size": 80, "max_position_embeddings": 64, "rms_norm_eps": 3e-3,
         "rope_theta": 523.5, "tie_word_embeddings": False}
GPT2 = {"model_type": "gpt2", "vocab_size": 97, "n_embd": 128, "n_layer": 2, "n_head": 4,
        "n_positions": 32, "layer_norm_epsilon": 1e-3, "tie_word_embeddings": True,
        "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
FACTORS = {"short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0],
           "long_factor": [1.0, 1.5, 2.25, 4.0, 7.0, 12.0, 20.0, 30.5]}


def llama(**settings):
    return {**LLAMA, **settings}


def gpt2(**settings):
    return {**GPT2, **settings}


VARIANTS = [
    ("eps and theta", llama()),
    ("linear", llama(rope_scaling={"type": "linear", "factor": 2.5})),
    ("dynamic, beyond", llama(max_position_embeddings=8,
                              rope_scaling={"type": "dynamic", "factor": 3.0})),
    ("dynamic, within", llama(rope_parameters={"rope_type": "dynamic", "factor": 3.0,
                                               "rope_theta": 523.5})),
    ("yarn", llama(max_position_embeddings=32,
                   rope_scaling={"type": "yarn", "factor": 4.0,
                                 "original_max_position_embeddings": 8})),
    ("yarn, all numbers", llama(max_position_embeddings=80, rope_theta=100.0,
                                rope_parameters={"rope_type": "yarn", "rope_theta": 100.0,
                                                 "factor": 5.0, "beta_fast": 1.25,
                                                 "beta_slow": 0.3, "mscale": 0.7,
                                                 "mscale_all_dim": 1.4, "truncate": False,
                                                 "original_max_position_embeddings": 16})),
    ("longrope, short", llama(rope_scaling={"type": "longrope", **FACTORS,
                                            "original_max_position_embeddings": 32})),
    ("longrope, long", llama(rope_scaling={"type": "longrope", **FACTORS,
                                           "original_max_position_embeddings": 16})),
    ("llama3", llama(rope_theta=5e5,
                     rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                   "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 32})),
    ("biases, tied", llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    ("mistral", llama(model_type="mistral", sliding_window=24, rms_norm_eps=1e-2)),
    ("qwen2", llama(model_type="qwen2", rms_norm_eps=1e-4, rope_theta=1e6)),
    ("qwen3", llama(model_type="qwen3", rms_norm_eps=2e-2)),
    ("gelu by erf", gpt2(activation_function="gelu")),
    ("gelu by tanh", gpt2(activation_function="gelu_new")),
    # few of them: one that is 0 but for rounding may go either way, and AdamW makes much of it
    ("relu", gpt2(activation_function="relu", layer_norm_epsilon=2e-2, n_inner=8)),
    ("silu, head of its own", gpt2(activation_function="silu", tie_word_embeddings=False,
                                   n_inner=100)),
]


# ---- RoPE ----

ROPES = [
    {"rope_theta": 10000.0},
    {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 8192},
     "max_position_embeddings": 131072, "head_dim": 128},
    {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
                                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 8192},
     "max_position_embeddings": 131072, "head_dim": 64},
    {"rope_theta": 777.7, "rope_scaling": {"type": "linear", "factor": 7.5}},
    {"rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "factor": 2.0},
     "max_position_embeddings": 2048},
    {"rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "factor": 2.0},
     "max_position_embeddings": 8192},
    {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0,
                                         "original_max_position_embeddings": 32768},
     "max_position_embeddings": 131072, "head_dim": 128},
    {"rope_theta": 10000.0, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 0.707,
                                             "mscale_all_dim": 1.0, "beta_fast": 32,
                                             "beta_slow": 1,
                                             "original_max_position_embeddings": 4096},
     "max_position_embeddings": 163840, "head_dim": 64},
    {"rope_theta": 10000.0, "rope_scaling": {"type": "yarn", "factor": None, "truncate": False,
                                             "original_max_position_embeddings": 1024},
     "max_position_embeddings": 4096, "head_dim": 64},
    {"rope_theta": 150000.0, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
                                              "attention_factor": 1.5, "truncate": False,
                                              "original_max_position_embeddings": 4096},
     "max_position_embeddings": 131072, "head_dim": 64},
    {"rope_theta": 10000.0, "original_max_position_embeddings": 4096,
     "rope_scaling": {"type": "longrope", "short_factor": [1.0 + j / 8 for j in range(48)],
                      "long_factor": [1.0 + j * j / 32 for j in range(48)]},
     "max_position_embeddings": 131072, "head_dim": 96},
    {"rope_theta": 10000.0, "original_max_position_embeddings": 16384,
     "rope_scaling": {"type": "longrope", "short_factor": [1.0 + j / 8 for j in range(48)],
                      "long_factor": [1.0 + j * j / 32 for j in range(48)]},
     "max_position_embeddings": 131072, "head_dim": 96},
    {"rope_theta": 10000.0, "rope_scaling": {"type": "longrope", "factor": 3.0,
                                             "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
                                             "original_max_position_embeddings": 2048},
     "head_dim": 16},
    {"rope_parameters": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
     "head_dim": 64},
    {"rope_parameters": {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.7,
                         "factor": 8.0}, "head_dim": 40},
]
ROPE_SEQ = 4096


def rope(settings):
    """Frequencies in force for sequences of ROPE_SEQ, and the table at a few positions."""
    settings = {"model_type": "llama", "vocab_size": 8, "hidden_size": 64, "num_hidden_layers": 1,
                "num_attention_heads": 1, "intermediate_size": 8, **settings}
    module = LlamaRotaryEmbedding(config_of(settings))
    positions = torch.arange(ROPE_SEQ)[None]
    cos, sin = module(torch.zeros(1), positions)  # may make the frequencies anew
    at = [1, 1000, ROPE_SEQ - 1]
    half = cos.shape[-1] // 2
    return {"config": settings, "seq": ROPE_SEQ, "frequencies": module.inv_freq.tolist(),
            "attention_factor": float(module.attention_scaling), "positions": at,
            "cos": [cos[0, t, :half].tolist() for t in at],
            "sin": [sin[0, t, :half].tolist() for t in at]}


# ---- first values ----

EXPERTS = {"vocab_size": 1009, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "intermediate_size": 384, "num_experts_per_tok": 2}
INITS = [
    (AutoModelForCausalLM, {"model_type": "llama", "vocab_size": 1009, "hidden_size": 256,
                            "num_hidden_layers": 3, "num_attention_heads": 4,
                            "num_key_value_heads": 2, "intermediate_size": 384,
                            "initializer_range": 0.03, "attention_bias": True}),
    (AutoModelForCausalLM, {"model_type": "qwen3", "vocab_size": 1009, "hidden_size": 256,
                            "num_hidden_layers": 2, "num_attention_heads": 4,
                            "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 384}),
    (AutoModelForCausalLM, {"model_type": "mixtral", "vocab_size": 1009, "hidden_size": 256,
                            "num_hidden_layers": 2, "num_attention_heads": 4,
                            "num_key_value_heads": 2, "intermediate_size": 384}),
    (AutoModelForCausalLM, {"model_type": "gpt2", "vocab_size": 1009, "n_embd": 256, "n_layer": 3,
                            "n_head": 4, "n_positions": 128, "initializer_range": 0.015}),
    (AutoModelForCausalLM, {"model_type": "gpt_neox", "vocab_size": 1009, "hidden_size": 256,
                            "num_hidden_layers": 2, "num_attention_heads": 4,
                            "intermediate_size": 384}),
    (AutoModelForCausalLM, {"model_type": "opt", "vocab_size": 1009, "hidden_size": 256,
                            "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 384,
                            "max_position_embeddings": 128, "init_std": 0.01}),
    (AutoModelForMaskedLM, {"model_type": "bert", "vocab_size": 1009, "hidden_size": 256,
                            "num_hidden_layers": 2, "num_attention_heads": 4,
                            "intermediate_size": 384, "max_position_embeddings": 128}),
    (AutoModelForSeq2SeqLM, {"model_type": "t5", "vocab_size": 1009, "d_model": 256, "d_kv": 32,
                             "num_layers": 2, "num_heads": 4, "d_ff": 384}),
    (AutoModelForSeq2SeqLM, {"model_type": "t5", "vocab_size": 1009, "d_model": 256, "d_kv": 32,
                             "num_layers": 2, "num_heads": 4, "d_ff": 384,
                             "feed_forward_proj": "gated-gelu"}),
] + [(AutoModelForCausalLM, dict(EXPERTS, **own)) for own in (
    {"model_type": "qwen3_moe", "num_experts": 4, "moe_intermediate_size": 96},
    {"model_type": "gpt_oss", "num_local_experts": 4, "head_dim": 64},
    {"model_type": "deepseek_v3", "num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 2, "topk_group": 1,
     "kv_lora_rank": 64, "q_lora_rank": 96, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 32,
     "moe_intermediate_size": 96, "first_k_dense_replace": 1},
)]


def first_values(make, settings):
    torch.manual_seed(0)
    model = make.from_config(config_of(settings)).float()
    return {"config": settings,
            "parameters": [[name, list(p.shape), float(p.double().mean()),
                            float(p.double().std(correction=0))]
                           for name, p in model.named_parameters()]}


def write(folder, name, rows):
    with open(f"{folder}/{name}", "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    print("torch", torch.__version__, "transformers", transformers.__version__)
    write(sys.argv[1], "variants.json", [train(*variant) for variant in VARIANTS])
    write(sys.argv[1], "rope.json", [rope(settings) for settings in ROPES])
    write(sys.argv[1], "inits.json", [first_values(*row) for row in INITS])


if __name__ == "__main__":
    main()
