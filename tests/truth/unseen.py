#!/usr/bin/env python3
"""Models of any kind, each recorded once and planned under several strategies, beside real fully_shard's recordings.

Each TYPE (a model_type of transformers) is made small (or, where that does not run, of its class's own sizes), recorded by tools/record.py, and that file is planned under each strategy
of STRATEGIES, which fully_shard is recorded under, too:
    equal    every event is as recorded
    differs  planned, and wrong
    refused  by a sentence
    failed   transformers cannot make or run it, or it cannot be recorded: the last line says which

Usage: unseen.py [--types TYPE ...] [--strategies NAME ...] [--seq S] [--keep FOLDER] [--trace]
Run with PYTHONHASHSEED=0. Exit status 1: some differ. Needs torch 2.14.1, transformers 5.23; SHARDPLAN is the program.
"""
import argparse
import collections
import contextlib
import json
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import traceback
import warnings

warnings.filterwarnings("ignore")

import torch._dynamo        # here, not once in each process that is forked
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import beside
import inventory
import models
import record
import record_systems
import recorder
from small_models import small

SECONDS = 400
CLASSES = ("MODEL_FOR_CAUSAL_LM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "MODEL_FOR_MASKED_LM", "MODEL_FOR_IMAGE_TEXT_TO_TEXT",
           "MODEL_FOR_IMAGE_CLASSIFICATION", "MODEL_FOR_CTC", "MODEL_FOR_SPEECH_SEQ_2_SEQ", "MODEL_FOR_AUDIO_CLASSIFICATION",
           "MODEL_FOR_SEMANTIC_SEGMENTATION", "MODEL_FOR_OBJECT_DETECTION", "MODEL_FOR_DEPTH_ESTIMATION", "MODEL")
STRATEGIES = {
    "fsdp2": {"world": 8, "param_dtype": "bf16", "reduce_dtype": "fp32", "clip": True},
    "fsdp2-full": {"world": 4, "param_dtype": "bf16", "ac": "full", "reshard": "never", "accumulate": 2, "optimizer": "sgd"},
    "fsdp1": {"system": "fsdp1", "world": 4, "param_dtype": "bf16", "accumulate": 2},
    "fsdp1-full": {"system": "fsdp1", "world": 2, "param_dtype": "bf16", "ac": "full", "use_orig_params": True},
    "ddp": {"system": "ddp", "world": 4, "accumulate": 2},
    "ddp-view": {"system": "ddp", "world": 2, "accumulate": 3, "gradient_as_bucket_view": True, "find_unused_parameters": True,
                 "ac": "full", "optimizer": "sgd"},
}
SMALLER = {"image_size": 64, "patch_size": 16, "num_mel_bins": 32, "max_source_positions": 64, "max_target_positions": 64,
           "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_d_state": 16, "state_size": 16}


def class_of(kind):
    for names in CLASSES:
        name = getattr(auto, names + "_MAPPING_NAMES").get(kind)
        if name:
            return name if isinstance(name, str) else name[0]
    raise ValueError("no class")


def config_of(kind, own=False):
    """Of a small model, or with the class's own sizes: not every one can be small in each."""
    config_class = CONFIG_MAPPING[kind]
    if own:
        return {**json.loads(config_class().to_json_string(use_diff=False)), "architectures": [class_of(kind)]}
    fields, values = small(kind), vars(config_class())
    fields.update({k: v for k, v in SMALLER.items() if isinstance(values.get(k), int)})
    config = config_class(**fields)
    for part in ("text_config", "vision_config", "audio_config", "encoder", "decoder"):     # configs inside
        inner = getattr(config, part, None)
        if hasattr(inner, "model_type") and inner.model_type in CONFIG_MAPPING:
            smaller = small(inner.model_type)
            smaller.update({k: v for k, v in SMALLER.items() if isinstance(vars(inner).get(k), int)})
            setattr(config, part, type(inner)(**smaller))
    text = json.loads(config.to_json_string(use_diff=False))
    return {**text, "architectures": [class_of(kind)]}


def late(*_):
    raise inventory.Late(f"more than {SECONDS} s")


def recorded(kind, args, dtype):
    """The folder with the config and the recording beside it."""
    folder = pathlib.Path(args.keep or tempfile.mkdtemp()) / kind
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.parent / f"{kind}.{dtype}.stream.json.gz"
    said = ""
    for own in (False, True):
        try:
            (folder / "config.json").write_text(json.dumps(config_of(kind, own)))
        except Exception as error:
            said = said or str(error)
            continue
        why = run_tool(["--hf", str(folder), "--seq", str(args.seq), "--batch", "2", "--checkpointing", "none,full",
                        "--dtype", dtype, "-o", str(path)], args.trace)
        if why is None:
            return folder, path
        said = said or why
    raise RuntimeError(said)


def run_tool(words, trace):
    """tools/record.py in a process of its own, which has the libraries already; what it failed with, or None."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(0)
        sys.argv = ["record.py"] + words
        try:
            sys.stdout = open(os.devnull, "w")
            models.tool().main()
            os._exit(0)
        except BaseException as error:
            if trace:
                traceback.print_exc()
            os.write(here, "".join(traceback.format_exception_only(error)).strip().encode()[:2000])
            os._exit(1)
    os.close(here)
    try:
        why = b"".join(iter(lambda: os.read(there, 4096), b"")).decode()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(there)
        _, status = os.waitpid(child, 0)
    return (why or f"record.py ended with {status}") if status else None


def asked(job):
    kind, args = job
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    answers, made = [], {}
    try:        # all files first: no process is forked behind a backward pass, which has threads
        for dtype in sorted({STRATEGIES[name].get("param_dtype", "fp32") for name in args.strategies}):
            made[dtype] = recorded(kind, args, dtype)
    except BaseException as error:
        signal.alarm(0)
        return [(kind, "failed", ["".join(traceback.format_exception_only(error))[:300].strip()])]
    for name in args.strategies:
        strategy = STRATEGIES[name]
        try:
            folder, path = made[strategy.get("param_dtype", "fp32")]
            m = {"source": str(folder), "recording": str(path), "batch": 2, "seq": args.seq}
            system = record_systems.KINDS.get(strategy.get("system"), record.Fsdp2)
            with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
                row = recorder.record({"name": f"{kind} {name}", "model": m, "strategy": {**strategy, "code": "recorded"}}, system)
            how, lines, _ = beside.verdict(row)
            if args.keep:
                (folder.parent / f"{kind}.{name}.row.json").write_text(json.dumps(row))
            answers.append((f"{kind} {name}", how, lines))
        except BaseException as error:
            answers.append((f"{kind} {name}", "failed", ["".join(traceback.format_exception_only(error))[:300].strip()]))
            if args.trace:
                traceback.print_exc()
    signal.alarm(0)
    return answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--types", nargs="*")
    parser.add_argument("--seq", type=int, default=32)
    parser.add_argument("--keep")
    parser.add_argument("--strategies", nargs="*", choices=STRATEGIES, default=["fsdp2", "fsdp2-full"])
    parser.add_argument("--trace", action="store_true", help="print where Python failed")
    args = parser.parse_args()
    tally = collections.Counter()
    jobs = [(kind, args) for kind in args.types or auto.MODEL_MAPPING_NAMES]
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for answers in pool.imap(asked, jobs):
            for name, how, lines in answers:
                tally[how] += 1
                print(f"{how:8} {name}", flush=True)
                for line in lines if how != "equal" else []:
                    print("    " + str(line)[:260], flush=True)
    print(", ".join(f"{n} {how}" for how, n in sorted(tally.items())))
    return any(tally[how] for how in ("differs", "crashed"))


if __name__ == "__main__":
    sys.exit(main())
