#!/usr/bin/env python3
"""Steps of compiled models drawn at random, recorded as record_compile_steps.py records them.

    random_compiled.py --count 40 --seed 1 --out ROWS.jsonl
    COMPILED_STEPS=ROWS.jsonl build/tests/compile/test_compiled_steps       what shardplan says of them

Each job has a process of its own: what torch.compile keeps of one meets no other. Prints a line a job; those that
PyTorch or the recorder fails with are left out. Run with PYTHONHASHSEED=0. Needs torch 2.14.1, transformers 5.23.
"""
import argparse
import json
import multiprocessing
import queue
import random
import sys

import torch._dynamo        # here, not once in each process that is forked
import transformers         # likewise

import record_compile_steps

SECONDS = 120
FAMILIES = ["llama", "llama", "qwen2", "qwen3", "mistral", "gemma2", "phi3", "olmo2", "gpt2", "smollm3", "granite"]


def draw_model(r):
    common = {"layers": r.choice([1, 2, 3, 4]), "batch": r.choice([1, 2, 3]), "seq": r.choice([16, 33, 64, 128])}
    heads, kind = r.choice([4, 8]), r.choice(["llama", "llama", "gpt2", "hf", "hf"])
    if kind == "llama":
        return {"kind": kind, **common, "dim": heads * r.choice([16, 32]), "heads": heads,
                "kv_heads": r.choice([n for n in (1, 2, 4, 8) if heads % n == 0]), "ffn": r.choice([176, 704]),
                "vocab": r.choice([97, 251, 512]), "tied": r.random() < 0.2}
    if kind == "gpt2":
        return {"kind": kind, **common, "dim": heads * r.choice([16, 48]), "heads": heads, "vocab": r.choice([131, 256]),
                "tied": r.random() < 0.6}
    m = {"kind": "hf", "batch": common["batch"], "seq": common["seq"], "vocab_size": 251, "model_type": r.choice(FAMILIES)}
    if m["model_type"] == "gpt2":
        return {**record_compile_steps.HF_GPT2, **m}
    m |= {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": common["layers"], "num_attention_heads": heads,
          "num_key_value_heads": r.choice([2, heads])}
    if m["model_type"] in ("phi3", "smollm3"):
        m["pad_token_id"] = 0
    if m["model_type"] in ("gemma2", "qwen3", "smollm3"):
        m["head_dim"] = 32
    return m


def draw_fsdp2(r, s, low):
    if low:
        s |= {"param_dtype": "bf16", "reduce_dtype": r.choice(["fp32", "bf16"])}
    elif r.random() < 0.5:
        s["store_dtype"] = "bf16"
    if r.random() < 0.35:
        s["units"] = "torchtitan"
    if s["world"] >= 4 and r.random() < 0.2:
        s["replicate"] = 2
    elif r.random() < 0.4:
        s["reshard"] = r.choice(["always", "never", 2])
    for prefetch in ("forward_prefetch", "backward_prefetch"):
        if r.random() < 0.3:
            s[prefetch] = r.choice([1, 2])


def draw_fsdp1(r, s, low):
    s |= {"system": "fsdp1", "use_orig_params": True, "sharding": r.choice(["FULL_SHARD", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])}
    if low:
        s |= {"param_dtype": "bf16", "reduce_dtype": r.choice(["fp32", "bf16"])}
    if r.random() < 0.4:
        s["autocast"] = "bf16"


def draw_ddp(r, s, low):
    s |= {"system": "ddp", **({"store_dtype": "bf16"} if low else {"autocast": "bf16"})}
    if r.random() < 0.5:
        s["bucket_cap_mb"] = r.choice([0.25, 1])
    if r.random() < 0.4:
        s["gradient_as_bucket_view"] = True


def draw(r, name):
    m = draw_model(r)
    s = {"world": r.choice([2, 4, 8]), **({"code": "hf"} if m["kind"] == "hf" else {}),
         **({"compile": "model"} if r.random() < 0.5 else {})}
    r.choice([draw_fsdp2, draw_fsdp2, draw_fsdp2, draw_fsdp1, draw_ddp])(r, s, r.random() < 0.7)
    if r.random() < 0.4:
        s["ac"] = r.choice(["full", "full", "selective"])
    if r.random() < 0.35:
        s["accumulate"] = r.choice([2, 3])
    if r.random() < 0.35:
        s["clip"] = True
    if r.random() < 0.3:
        s["optimizer"] = r.choice(["adamw_fused", "adamw_loop", "sgd"])
    return name, m, s


def record(case, out):
    try:
        record_compile_steps.prepare()
        out.put((record_compile_steps.record_case(*case), ""))
    except BaseException as e:      # torch's, and SystemExit of what is no job
        out.put((None, f"{type(e).__name__}: {str(e)[:200]}"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    context = multiprocessing.get_context("fork")
    with open(args.out, "w") as f:
        for i in range(args.count):
            name = f"compiled-{args.seed}-{i}"
            case, out = draw(random.Random(name), name), context.Queue()
            process = context.Process(target=record, args=(case, out))
            process.start()
            try:
                row, why = out.get(timeout=SECONDS)
            except queue.Empty:
                row, why = None, f"no end after {SECONDS} s"
            process.join(2)
            process.kill()
            if row:
                f.write(json.dumps(row, separators=(",", ":")) + "\n")
            print("recorded" if row else "failed", name, why, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
