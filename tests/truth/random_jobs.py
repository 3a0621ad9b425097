#!/usr/bin/env python3
"""Random jobs under real PyTorch and DeepSpeed, beside what shardplan says of them.

    random_jobs.py --count 100 --seed 1 [--system fsdp2 fsdp1 ddp zero single real] [--out ROWS.jsonl]
    random_jobs.py ... [--models written|mixtures|MODEL_TYPE] [--with offload ...]    models of models.py, or of experts, alone; jobs that
                                                                have a key (or key=value)
    random_jobs.py ... --wide                                   further out, every family and recorded models (draw_wide.py), later settings (draw_newer.py)
    random_jobs.py --check ROWS.jsonl ... [--only NAME ...]     rows recorded before, beside shardplan as it is now

Every job is drawn from what `shardplan fit --help` offers (draw.py), recorded as record.py and its like do, and planned by
the command line (beside.py): each allocation and free, its place and its name, the peak, and what lives at each mark
are compared. Each job has a process of its own: what a library leaves behind (DeepSpeed its linear) meets no other. Prints a line a job, what differs, and at the end how many of each system were equal, refused (by shardplan), not
recordable (PyTorch fails), or differ. Exit status 1: some differ. Needs torch 2.14.1, transformers 5.23 and, for ZeRO,
deepspeed 0.19.8; SHARDPLAN is the program (build/shardplan). Under another torch (2.4.1 to 2.15.0) the jobs are
planned with its --torch.
"""
import argparse
import collections
import importlib.util
import json
import multiprocessing
import random
import shlex
import sys
import traceback
import warnings

import beside
import draw
import draw_wide
from draw_models import MIXTURES


def system_of(row):
    if row.get("autograd") == "gpu":
        return "real"
    return row["strategy"].get("system", "fsdp2").replace("deepspeed", "zero")


LIBRARIES = ("torch._dynamo", "transformers.models.llama.modeling_llama", "peft")     # that libraries import late


def prepare(system, models):
    """What many jobs need is there before the first; a recorder that changes what others see is not."""
    for name in LIBRARIES if models != "written" else ():
        if importlib.util.find_spec(name.split(".")[0]):
            importlib.import_module(name)
    if system == "zero":
        import record_zero
    elif system in ("fsdp2", "real"):
        import record
    else:
        import record_systems


def recording(config):
    import recorder
    system, s = system_of(config), config["strategy"]
    if system == "real":
        import record_real
        return record_real.row_of(config, False)
    if system == "fsdp2":
        import record
        return recorder.record(config, record.Fsdp2)
    if system != "zero":
        import record_systems
        return recorder.record(config, record_systems.KINDS[system])
    import record_zero
    if "offload_optimizer" not in s:
        return recorder.record(config, record_zero.Zero)
    import record_zero_offload
    record_zero_offload.prepare()
    return recorder.record(config, record_zero_offload.ZeroOffload)


def recorded(config):
    try:
        return recording(config), None
    except Exception as error:
        return None, "".join(traceback.format_exception(error)[-3:])


def known(config):
    """(configuration, its row or None, why not, what beside.verdict says of it)"""
    row, failure = recorded(config)
    return config, row, failure, row and beside.verdict(row)


def one_each(systems, jobs, models):
    """The pool whose processes are forked where the recorders are there, each for one job."""
    for system in systems:
        prepare(system, models)
    return multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1)


def wanted(config, args):
    kind = {"mixtures": config["model"].get("model_type") in MIXTURES, "written": config["model"].get("kind") not in ("hf", None)}.get(
        args.models, config["model"].get("model_type") == args.models)
    return (args.models == "all" or kind) and all(has(config["strategy"], key) for key in args.having)


def has(strategy, wanted):
    """Of --with: a key, or key=value."""
    key, _, value = wanted.partition("=")
    return key in strategy and (not value or str(strategy[key]) == value)


def recordable(config):
    """Where fake tensors compose what follows backward of other calls, what is left of it."""
    import older_torch
    if older_torch.COMPOSES_OPTIMIZERS and system_of(config) == "fsdp2":
        config["strategy"]["optimizer"] = "adamw_fused"
        config["strategy"].pop("clip", None)
    return config


def drawn(args):
    for n in range(args.count):
        seed = f"{args.seed}-{n}"
        rng = random.Random(seed)
        module = draw_wide if args.wide else draw
        jobs = iter(lambda: module.job(rng, args.system[n % len(args.system)], f"random-{seed}"), None)
        yield recordable(next(config for config in jobs if wanted(config, args)))


def show(name, how, lines, words, tally, system):
    tally[system][how] += 1
    print(f"{how:9} {system} {name}", flush=True)
    if how in ("differs", "crashed"):
        print("   $ " + shlex.join(str(w) for w in words))
    for line in lines if how != "equal" else []:
        print("   " + line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--system", nargs="*", default=[*draw.SYSTEMS, "real"])
    parser.add_argument("--models", default="all", help="all, written, mixtures, or a model_type")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--with", dest="having", nargs="*", default=[])
    parser.add_argument("--out", default="/dev/null")
    parser.add_argument("--check", nargs="*")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    tally = collections.defaultdict(collections.Counter)
    if args.check:
        for line in (line for path in args.check for line in open(path)):
            row = json.loads(line)
            if not args.only or row["name"] in args.only:
                show(row["name"], *beside.verdict(row), tally, system_of(row))
    else:
        configs = list(drawn(args))     # not in a thread of the pool's, whose locks a fork would copy
        with open(args.out, "w") as out, one_each(args.system, args.jobs, args.models) as pool:
            for config, row, failure, verdict in pool.imap(known, configs):
                if row is None:
                    show(config["name"], "failed", [failure, json.dumps(config)], [], tally, system_of(config))
                    continue
                out.write(json.dumps(row, separators=(",", ":")) + "\n")
                out.flush()
                show(row["name"], *verdict, tally, system_of(row))
    for system, counts in sorted(tally.items()):
        print(f"{system}: {sum(counts.values())} jobs, " + ", ".join(f"{n} {how}" for how, n in sorted(counts.items())))
    return any(counts["differs"] + counts["crashed"] for counts in tally.values())


if __name__ == "__main__":
    sys.exit(main())
