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
from small_models import IDS, drawn, small

SECONDS = 300
NO_KEYS = {"use_cache", "dtype", "torch_dtype", "architectures", "model_type", "initializer_range", "chunk_size_feed_forward",
           "is_encoder_decoder", "problem_type", "label2id", "id2label", "transformers_version"}


def class_name(kind):
    """What is recorded: encoders with the head that models.HF names."""
    name = models.HF[kind][0] if kind in models.HF else NAMES[kind]
    return name if isinstance(name, str) else name[0]


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


STRATEGIES = ({}, {"ac": "full", "clip": True}, {"reshard": "never", "accumulate": 2, "optimizer": "sgd"}, {"ac": "selective", "world": 8},
              {"world": 6, "rank": 5}, {"replicate": 2, "world": 8})


def job(kind, random):
    return {"model_type": kind, "fields": drawn(kind, random), "batch": random.choice((1, 2, 3)),
            "seq": random.choice((16, 24, 33)), "strategy": random.choice(STRATEGIES)}


def jobs_of_random(args):
    random = Random(args.seed)
    kinds = args.only or list(planned_types())
    for i in range(args.count):
        kind = random.choice(kinds)
        try:
            m = job(kind, random)
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
