#!/usr/bin/env python3
"""Every language model of transformers beside what the planner says of its config.json.

types: of each model_type that AutoModelForCausalLM has, a small model (and, with --default, the class's own sizes, whose
parameters alone are counted) is recorded under fully_shard and planned from the config.json that transformers writes of it:
    equal    every event is as recorded
    said     planned is less than the class, and a note says what: the text model of one that sees, too
    refused  by a sentence that names tools/record.py
    key      refused by a sentence that names a key of the file
    differs  planned, and wrong
    failed   transformers itself cannot make or run it
keys: of each planned family, each key of its config class that its files read takes another value. Where that changes nothing
of the plan, the same is asked: what a class obeys and a family's table of keys has not shows here as `differs`.

random: COUNT files of planned families with other head sizes, groups, biases, ties, windows, kinds of RoPE, experts, under one of
a few strategies.

Usage: inventory.py types|keys|random [--count N --seed S] [--only TYPE ...] [--dtype fp32|bf16 ...] [--jobs N] [--default]
Run with PYTHONHASHSEED=0: on it the order of masks depends. Exit status 1: some differ. Needs torch 2.14.1, transformers 5.23; SHARDPLAN is the program.
"""
import argparse
import collections
import contextlib
import inspect
import json
import multiprocessing
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
import os
import pathlib
import re
from random import Random

warnings.filterwarnings("ignore")

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

import beside
import models
import record
import recorder

SECONDS = 300
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
    ("head_dim", "global_head_dim", "qk_head_dim"): 16,
}
NO_KEYS = {"use_cache", "dtype", "torch_dtype", "architectures", "model_type", "initializer_range", "chunk_size_feed_forward",
           "is_encoder_decoder", "problem_type", "label2id", "id2label", "transformers_version"}
IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id")


def class_name(kind):
    """What is recorded: encoders with the head that models.HF names."""
    name = models.HF[kind][0] if kind in models.HF else NAMES[kind]
    return name if isinstance(name, str) else name[0]


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
    for name in ("layer_types", "layers_block_type", "mlp_layer_types"):
        if isinstance(values.get(name), (list, tuple)) and values[name]:
            kinds = list(dict.fromkeys(values[name]))
            fields[name] = [kinds[0], kinds[-1]]
    return fields


def blocks_of(model):
    """The outermost lists of modules of one class that have parameters."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) and not any(name.startswith(f + ".") for f in found):
            if any(True for _ in module.parameters()):
                found.append(name)
    return [b for name in found for b in model.get_submodule(name)]


def hf_model(m, attention=None):
    """models.hf_model of any type, wherever it has its blocks."""
    transformers.utils.import_utils.is_fake_tensor = lambda x: False
    config = CONFIG_MAPPING[m["model_type"]](use_cache=False, **m["fields"])
    model_class = getattr(transformers, class_name(m["model_type"]))
    config._attn_implementation = "sdpa" if model_class._supports_sdpa and attention != "eager" else "eager"
    model = model_class(config)
    return model.train(), blocks_of(model)


models.hf_model = hf_model


def config_json(m):
    """As save_pretrained writes it."""
    config = CONFIG_MAPPING[m["model_type"]](**m["fields"])
    text = json.loads(config.to_json_string(use_diff=not m.get("whole")))
    text["model_type"] = m["model_type"]
    text["architectures"] = [class_name(m["model_type"])]
    text.pop("transformers_version", None)
    return text


beside.model_config = lambda m: (config_json(m), "hf")


class Late(Exception):
    pass


def late(*_):
    raise Late(f"more than {SECONDS} s")


def said_of(path):
    program = os.environ.get("SHARDPLAN", str(beside.ROOT / "build/shardplan"))
    done = subprocess.run([program, "fit", path, "--code=hf", "--gpu=a100-sxm-80gb", "--seq=32", "--micro-batch=2", "--json"],
                          capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr.strip()


def said_of_model(m):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config_json(m)))
        return said_of(folder)


def parameters_of(m):
    """By transformers, on the meta device."""
    config = CONFIG_MAPPING[m["model_type"]](**m["fields"])
    with torch.device("meta"):
        model = getattr(transformers, class_name(m["model_type"]))(config)
    return sum(p.numel() for p in model.parameters())


def by_count(m):
    status, out, said = said_of_model(m)
    if status == 2:
        return refusal(said)
    if json.loads(out).get("notes"):
        return "said", json.loads(out)["notes"]
    have = json.loads(out)["model"]["parameters"]
    want = parameters_of(m)
    return ("equal", []) if have == want else ("differs", [f"parameters {want} | {have}"])


def refusal(said):
    return ("refused" if "tools/record.py" in said else "key"), [said]


def events_of(m):
    """A plan's, as text; None where it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "config.json").write_text(json.dumps(config_json(m)))
        program = os.environ.get("SHARDPLAN", str(beside.ROOT / "build/shardplan"))
        done = subprocess.run([program, "fit", folder, "--code=hf", "--gpu=a100-sxm-80gb", "--seq=16", "--micro-batch=2", "--gpus=4",
                               "--json", "--events", str(path / "events")], capture_output=True, text=True)
        return (path / "events").read_text() if done.returncode in (0, 1) else None


def is_ignored(base, other):
    """Whether the planner does the same of both files."""
    try:
        return events_of(base) == events_of(other)
    except Exception:       # the class refuses it
        return False


def asked(job):
    """(name, how, lines)"""
    name, m, dtype = job
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    strategy = {"world": 4, "code": "hf", **m.pop("strategy", {})}
    if dtype == "bf16":
        strategy.update(param_dtype="bf16", reduce_dtype="fp32")
    m = {"kind": "hf", "batch": 2, "seq": 16, **m}
    try:
        if m.pop("count", False):
            return name, *by_count(m)
        # a refusal needs no recording
        status, out, said = said_of_model(m)
        if status == 2:
            return name, *refusal(said)
        if json.loads(out).get("notes"):
            return name, "said", json.loads(out)["notes"]
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
            row = recorder.record({"name": name, "model": m, "strategy": strategy}, record.Fsdp2)
        how, lines, _ = beside.verdict(row)
        return name, how if how != "refused" else refusal(lines[0])[0], lines
    except Exception as error:
        return name, "failed", ["".join(traceback.format_exception_only(error))[:300]]
    finally:
        signal.alarm(0)


def sources_of(kind):
    """The text of the files in which a model of that type is computed: its package, and what masks and RoPE are made by."""
    package = pathlib.Path(inspect.getfile(CONFIG_MAPPING[kind])).parent
    common = pathlib.Path(transformers.__file__).parent
    files = [*package.glob("modeling_*.py"), *package.glob("configuration_*.py"), common / "masking_utils.py", common / "modeling_rope_utils.py",
             common / "integrations" / "moe.py"]
    return "".join(f.read_text() for f in files if f.exists())


def is_read(text, name):
    """Whether anything asks a config for that key."""
    return re.search(rf"(config|self)\.{name}\b|[\"']{name}[\"']", text) is not None


def other_values(name, value):
    """Values that a key may have in another file."""
    if name in IDS or name.startswith(("_", "output_", "return_")) or name in NO_KEYS:
        return
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, float):
        yield value + 0.25 if value < 1 else value * 2
    elif isinstance(value, int):
        yield 2 * value if value else 1
        if value > 1:
            yield value // 2
    elif value is None:
        yield True
        yield 2
        yield 0.5
    elif isinstance(value, str):
        yield from (v for v in ("relu", "gelu", "silu", "gelu_new") if v != value and ("act" in name or "func" in name))


def jobs_of_types(args):
    for kind in args.only or NAMES:
        try:
            fields = small(kind)
        except Exception as error:
            fields = {}
        for dtype in args.dtype:
            yield f"{kind} {dtype}", {"model_type": kind, "fields": fields}, dtype
        if args.default:
            yield kind + " default", {"model_type": kind, "fields": {}, "count": True}, None


def planned_types():
    """Those of which a small model is not refused."""
    for kind in NAMES:
        with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
            m = {"model_type": kind, "fields": small(kind)}
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config_json(m)))
            if "is not known" not in said_of(folder)[2]:
                yield kind


def jobs_of_keys(args):
    for kind in args.only or planned_types():
        base = small(kind)
        values, text = CONFIG_MAPPING[kind](**base).to_dict(), sources_of(kind)
        for name in sorted(n for n in values if is_read(text, n)):
            for value in other_values(name, values[name]):
                m = {"model_type": kind, "fields": {**base, name: value}}
                if is_ignored({"model_type": kind, "fields": base}, m):
                    for dtype in args.dtype:
                        yield f"{kind} {dtype} {name}={value}", m, dtype


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
    "layer_types": ("random",), "mlp_layer_types": ("random",), "rope_parameters": ("random",),
}
STRATEGIES = ({}, {"ac": "full", "clip": True}, {"reshard": "never", "accumulate": 2, "optimizer": "sgd"}, {"ac": "selective", "world": 8},
              {"world": 6, "rank": 5}, {"replicate": 2, "world": 8})


def drawn(kind, random):
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
    return {"model_type": kind, "fields": fields, "batch": random.choice((1, 2, 3)), "seq": random.choice((16, 24, 33)),
            "strategy": random.choice(STRATEGIES)}


def jobs_of_random(args):
    random = Random(args.seed)
    kinds = args.only or list(planned_types())
    for i in range(args.count):
        kind = random.choice(kinds)
        try:
            m = drawn(kind, random)
        except Exception:
            continue
        dtype = random.choice(("fp32", "bf16"))
        yield f"{i} {kind} {dtype} {m['strategy']} b{m['batch']} s{m['seq']} " + json.dumps(
            {k: v for k, v in m["fields"].items() if small(kind).get(k) != v}), m, dtype


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["types", "keys", "random"])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--dtype", nargs="*", default=["fp32"], choices=["fp32", "bf16"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--default", action="store_true")
    args = parser.parse_args()
    tally = collections.Counter()
    jobs = {"types": jobs_of_types, "keys": jobs_of_keys, "random": jobs_of_random}[args.what](args)
    with multiprocessing.get_context("fork").Pool(args.jobs, maxtasksperchild=1) as pool:
        for name, how, lines in pool.imap(asked, jobs):
            tally[how] += 1
            print(f"{how:8} {name}", flush=True)
            for line in lines if how != "equal" else []:
                print("    " + str(line)[:260])
    print(", ".join(f"{n} {how}" for how, n in sorted(tally.items())))
    return any(tally[how] for how in ("differs", "crashed"))


if __name__ == "__main__":
    sys.exit(main())
