"""A recorded row beside what the command line says of it: its options, its events, what differs."""
import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATTERNS = {"adamw_foreach": ("adamw", "foreach"), "adamw_fused": ("adamw", "fused"), "adamw_loop": ("adamw", "loop"),
            "sgd": ("sgd", "foreach"), "adamw_bnb_8bit": ("adamw-8bit", "foreach"), "paged_adamw_32bit": ("paged-adamw-32bit", "foreach"),
            "adamw_torch_8bit": ("adamw-torch-8bit", "foreach")}
ZERO = {"system", "world", "rank", "accumulate", "clip", "optimizer", "ac", "ac_early_stop", "ac_blocks", "param_dtype",
        "grad_accum_dtype", "no_sync", "code", "freeze", "keep_outputs", "lora", "lora_dropout", "lora_dtype", "lora_kernels", "gpus_per_node", "attention",
        "embedding_bits", "liger", "loss", "input_grads", "precompute_ref_log_probs", "task", "num_labels", "problem_type", "pad_token_id", "tower", "grpo_loss", "grpo_beta",
        "grpo_iterations", "vllm", "steps_per_generation", "load_in_4bit", "double_quant", "compute_dtype", "quant_storage", "kbit",
        "skip_modules", "store_dtype", "load_in_8bit"}
DEFAULT = 14    # 2.x: what is planned without --torch


def model_config(m):
    """(config.json, code) of a row's model."""
    if m["kind"] == "hf":
        return {k: v for k, v in m.items() if k not in ("kind", "batch", "seq", "sample_tokens", "padding_tokens", "prompt_tokens")}, "hf"
    if m["kind"] == "guide":
        return {"model_type": "fsdp2-tutorial", "hidden_size": m["dim"], "num_hidden_layers": m["layers"], "vocab_size": m["vocab"]}, None
    if m["kind"] == "gpt2":
        return {"model_type": "gpt2", "n_embd": m["dim"], "n_layer": m["layers"], "n_head": m["heads"], "vocab_size": m["vocab"],
                "n_positions": m["seq"], "tie_word_embeddings": m.get("tied", True)}, "nanogpt"
    return {"model_type": "llama", "hidden_size": m["dim"], "num_hidden_layers": m["layers"], "num_attention_heads": m["heads"],
            "num_key_value_heads": m.get("kv_heads", m["heads"]), "intermediate_size": m["ffn"], "vocab_size": m["vocab"],
            "max_position_embeddings": m["seq"], "tie_word_embeddings": m.get("tied", False)}, "torchtitan"


def on(value):
    return "on" if value else "off"


def of_ddp(s):
    yield "gradient-as-bucket-view", on(s.get("gradient_as_bucket_view"))
    yield "static-graph", on(s.get("static_graph"))
    yield "comm-hook", s.get("comm_hook", "none")
    yield "find-unused-parameters", on(s.get("find_unused_parameters"))
    yield "broadcast-buffers", on(s.get("broadcast_buffers", True))
    yield "zero-redundancy", s.get("zero_redundancy", "none")
    if s.get("bucket_cap_mb"):
        yield "bucket-cap-mb", s["bucket_cap_mb"]


def of_fsdp1(s):
    yield "sharding", s.get("sharding", "FULL_SHARD")
    yield "units", {"titan": "embeddings"}.get(s.get("wrap", "blocks"), s.get("wrap", "blocks"))
    yield "backward-prefetch", s.get("backward_prefetch", "pre") or "none"
    yield "forward-prefetch", int(s.get("forward_prefetch", False))
    yield "frozen-dtype", "param" if s.get("lora_dtype") or s.get("reference_dtype") else "store"
    yield "use-orig-params", on(s.get("use_orig_params"))
    yield "keep-low-precision-grads", on(s.get("keep_low_precision_grads"))
    yield "limit-all-gathers", on(s.get("limit_all_gathers", True))


def of_fsdp2(s):
    yield "adapter-units", on(s.get("adapter_units"))
    yield "units", s.get("blocks_per_unit") or s.get("units", "blocks").replace("blocks+root", "blocks")
    yield "reshard", s.get("reshard", "default")
    yield "forward-prefetch", s.get("forward_prefetch", 0)
    yield "backward-prefetch", s.get("backward_prefetch", 0)
    kept = list(s.get("reshard_units", {}))
    if len(kept) == 1:
        yield "keep-unsharded", 1       # the last, as draw.py has it
    elif kept:
        yield "keep-units", ",".join(kept)
    yield "placement", "columns" if s.get("shard_dim") else "rows"
    yield "experts-replicate", s.get("experts_replicate", 0)
    yield "frozen-dtype", "param" if s.get("lora_dtype") or s.get("reference_dtype") else "store"
    yield "reduce-buffers", s.get("max_input_buffers", 1)
    last = s.get("last_only", [])
    yield "last-backward", "last" if "is_last_backward" in last else "each"
    yield "all-reduce", "last" if "requires_all_reduce" in last else "each"
    yield "reshard-after-backward", "last" if "reshard_after_backward" in last else "each"
    if s.get("unshard_in_backward_off"):
        yield "not-in-backward", s["unshard_in_backward_off"][0]


def of_zero(s, folder):
    path = folder / "zero.json"
    path.write_text(json.dumps({k: v for k, v in s.items() if k not in ZERO}))
    yield "zero", path
    yield "grad-accum-dtype", s.get("grad_accum_dtype", "same")


def options(row, folder):
    """(option, value), in any order, after the model's path."""
    m, s = row["model"], row["strategy"]
    system = s.get("system", "fsdp2")
    if "recording" not in m:
        config, code = model_config(m)
        (folder / "config.json").write_text(json.dumps(config))
        if code:
            yield "code", code
    yield "gpu", "a100-sxm-80gb"
    minor = int(row["torch"].split(".")[1])
    if minor != DEFAULT:
        yield "torch", f"2.{minor}"
    if m.get("kind") not in ("hf", None) and s.get("attention") != "cudnn":
        yield "attention", "flash"      # as the recorder's models have it in any dtype
    elif s.get("attention"):
        yield "attention", s["attention"]
    yield "autograd", row.get("autograd", "recorded")
    yield "strategy", f"zero{s['stage']}" if system == "deepspeed" else system
    yield "gpus", s["world"]
    yield "gpus-per-node", s.get("gpus_per_node") or next(n for n in range(min(8, s["world"]), 0, -1) if s["world"] % n == 0)
    yield "rank", s.get("rank", 0)
    yield "seq", m["seq"]
    yield "micro-batch", m["batch"]
    yield "sample-tokens", m.get("sample_tokens", 0)
    yield "padding-tokens", m.get("padding_tokens", 0)
    yield "prompt-tokens", m.get("prompt_tokens", 0)
    yield "accumulate", s.get("accumulate", 1)
    if system not in ("deepspeed", "single"):
        yield "accumulate-sync", "last" if s.get("no_sync", True) else "each"
    reentrant = s.get("ac") == "reentrant"
    yield "checkpointing", "full" if reentrant else s.get("ac", "none")
    yield "checkpoint-reentrant", on(reentrant)
    yield "checkpoint-blocks", s.get("ac_blocks", "all")
    yield "early-stop", on(s.get("ac_early_stop", True))
    if s.get("activation_offloading"):
        yield "activation-offloading", {True: "on"}.get(s["activation_offloading"], s["activation_offloading"])
    optimizer, impl = PATTERNS[s.get("optimizer", "adamw_foreach")]
    yield "optimizer", optimizer
    yield "embedding-states", s.get("embedding_bits", 32)
    yield "optimizer-impl", impl
    yield "clip", 1 if s.get("clip", system == "deepspeed") else "off"
    for name in ("task", "num_labels", "problem_type"):
        if s.get(name):
            yield name.replace("_", "-"), s[name]
    if s.get("pad_token_id") is not None:
        yield "sets-pad-token", "on"
    if s.get("precompute_ref_log_probs"):
        yield "precompute-ref-log-probs", "on"
    for name, option in (("grpo_loss", "grpo-loss"), ("grpo_beta", "grpo-beta"), ("vllm", "grpo-vllm"),
                         ("steps_per_generation", "grpo-steps-per-generation"), ("grpo_iterations", "grpo-iterations")):
        if s.get(name):
            yield option, s[name]
    if system == "deepspeed":
        yield "param-dtype", s["param_dtype"]
    elif system in ("ddp", "single"):
        # the adapters' dtype is what is trained, and stored; the rest is in another
        yield "store-dtype", s.get("lora_dtype") or s.get("store_dtype") or "fp32"
        yield "frozen-dtype", s["store_dtype"] if s.get("lora_dtype") and (not s.get("kbit") or s.get("cast_back")) else "store"
    else:
        yield "store-dtype", s.get("lora_dtype") or s.get("store_dtype") or "fp32"
        yield "param-dtype", s.get("param_dtype") or "same"
        yield "reduce-dtype", s.get("reduce_dtype") or "same"
    if s.get("load_in_4bit"):
        yield "load-in-4bit", s["load_in_4bit"]
        yield "bnb-double-quant", "on" if s.get("double_quant") else "off"
        yield "bnb-quant-storage", s.get("quant_storage") or "uint8"
        yield "bnb-compute-dtype", s.get("compute_dtype") or "fp32"
        if s.get("quantize_experts"):
            yield "quantize-moe-experts", "on"
    if s.get("load_in_8bit"):
        yield "load-in-8bit", "on"
    if s.get("input_grads"):
        yield "input-grads", "on"
    if s.get("cast_back"):
        yield "kbit-cast-back", s["cast_back"]
    if s.get("skip_modules"):
        yield "llm-int8-skip-modules", s["skip_modules"]
    for name in ("freeze", "ignore", "lora", "lora_dropout", "lora_kernels", "autocast", "outputs", "keep_outputs", "offload", "replicate", "loss", "liger", "tower"):
        if s.get(name):
            yield name.replace("_", "-"), s[name]
    yield from {"ddp": of_ddp, "single": lambda s: (), "fsdp1": of_fsdp1, "fsdp2": of_fsdp2,
                "deepspeed": lambda s: of_zero(s, folder)}[system](s)


def command(row, folder, program):
    model = ROOT / row["model"]["recording"] if "recording" in row["model"] else folder
    return [program, "fit", str(model)] + [f"--{name}={value}" for name, value in options(row, folder)]


def planned(row):
    """(exit status, what fit --json says, its events, the command, what it said besides)"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        words = command(row, folder, os.environ.get("SHARDPLAN", str(ROOT / "build/shardplan")))
        path = folder / "events.jsonl"
        done = subprocess.run(words + ["--json", "--events", str(path)], capture_output=True, text=True, cwd=folder)
        events = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return done.returncode, done.stdout, events, words, done.stderr.strip()


def named(text):
    return text.replace("._checkpoint_wrapped_module", "").replace("wte (tied)", "lm_head")


def what(event, zero):
    """[bytes, category, where, label] of a recorded or planned event; ZeRO's categories are only a help."""
    size, category, where, label = event[0], event[1], event[2], event[-1]
    if not zero:
        return [size, category, where, label]
    if label.startswith(("histc ", "_to_copy ")):   # experts' tokens are counted in int32 on a GPU, of as many bytes
        label = label.replace(" int32", " float32")
    return [size, named(where), label.removesuffix(" host").removesuffix(" pinned")]


def rebuilt(row):
    """Events of a static graph's rebuilding of its buckets, which is in the step that is recorded."""
    s = row["strategy"]
    again = s.get("static_graph") and row.get("step", 3) == 3 and s.get("accumulate", 1) == 1
    return 9 + len(row["buckets"]) if again else 0


LIVE = ("start", "after_logits", "after_forward", "after_backward", "after_step", "end")


SMALL = 16      # bytes: record_real.py leaves out what is no larger


def differences_of_bytes(want, events):
    """Lines, of a step that was computed: its list has neither names nor places."""
    have = [e for e in events if abs(e[0]) > SMALL]
    sizes = [e[0] for e in have]
    if want == sizes:
        return []
    n = next((i for i, (a, b) in enumerate(zip(want, sizes)) if a != b), min(len(want), len(have)))
    return [f"BYTES {n} of {len(want)}, {len(have)} planned"] + \
        [f"    {i} {want[i] if i < len(want) else None} | {have[i] if i < len(have) else None}" for i in range(max(0, n - 2), n + 4)]


def differences(row, out, events):
    """Lines; none when all is equal."""
    if row.get("autograd") == "gpu":
        return differences_of_bytes(row["event_list"], events)
    zero = row["strategy"].get("system") == "deepspeed"
    want = [what(e, zero) for e in row["event_list"][rebuilt(row):]]
    have = [what(e, zero) for e in events]
    lines = []
    if [e[0] for e in want] != [e[0] for e in have]:
        n = next((i for i, (a, b) in enumerate(zip(want, have)) if a[0] != b[0]), min(len(want), len(have)))
        lines.append(f"BYTES {n} of {len(want)}, {len(have)} planned")
        lines += [f"    {i} {want[i] if i < len(want) else None} | {have[i] if i < len(have) else None}"
                  for i in range(max(0, n - 2), n + 4)]
    elif want != have:
        wrong = [i for i in range(len(want)) if want[i] != have[i]]
        lines.append(f"NAMES {len(wrong)} of {len(want)}")
        lines += [f"    {i} {want[i]} | {have[i]}" for i in wrong[:3]]
    said = json.loads(out)
    if said["peak"]["requested_bytes"] != row["peak_bytes"]:
        lines.append(f"PEAK {row['peak_bytes']} | {said['peak']['requested_bytes']}")
    for mark in LIVE:
        if row["live"].get(mark) is not None and said["live"].get(mark) != row["live"][mark]:
            lines.append(f"LIVE {mark} {row['live'][mark]} | {said['live'].get(mark)}")
    for part, value in row["segment_peaks"].items():
        if part == "optimizer" and value < said["segment_peaks"].get(part) == row["live"]["after_backward"]:
            continue    # a recorded part counts from its first event on, which may be the first of its frees
        if said["segment_peaks"].get(part) != value:
            lines.append(f"PART {part} {value} | {said['segment_peaks'].get(part)}")
    return lines


def verdict(row):
    """("equal" | "refused" | "differs" | "crashed", lines, command)"""
    status, out, events, words, said = planned(row)
    if status in (2, 3) and said and status == 2:
        return "refused", [said], words
    if status not in (0, 1):
        return "crashed", [f"exit {status}", said], words
    lines = differences(row, out, events)
    return "differs" if lines else "equal", lines, words
