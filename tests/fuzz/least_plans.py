#!/usr/bin/env python3
"""Makes the seeds of fuzz_plan and fuzz_execute: the least programs that still do each kind of work.

    least_plans.py CHECK FOLDER PLAN.json...

CHECK is check_plan.c, built. Of each kind of work that no file of FOLDER has, all is taken out of the
plan (instructions, buffers, parameters, events) that it can be read and run without; what is left is
FOLDER/WORK.json. A fuzzer tries some tens of these in the time that a whole program takes.
"""
import copy
import json
import os
import subprocess
import sys
import tempfile


class Checker:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.path = os.path.join(tempfile.mkdtemp(), "plan.json")

    def runs(self, plan):
        with open(self.path, "w") as file:
            json.dump(plan, file)
        self.process.stdin.write(self.path + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip() == "1"


def kind_of(instruction):
    return instruction.get("work") or instruction["op"]


def operands(instruction):
    return [one for side in ("in", "out") for one in instruction.get(side, [])]


def buffer_of(operand):
    return operand["buffer"] if isinstance(operand, dict) else operand


def buffers_of(instruction):
    named = [buffer_of(one) for one in operands(instruction)]
    return named + ([instruction["buffer"]] if "buffer" in instruction else [])


def holders(plan):
    """Every object outside of instructions that names a buffer under a key."""
    for param in plan["params"]:
        if "step" in param:
            yield param, "step"
        for piece in param["pieces"]:
            yield piece, "buffer"
    for list_name in ("inputs", "module_buffers"):
        for one in plan[list_name]:
            yield one, "buffer"


def number(items):
    for i, one in enumerate(items):
        if "id" in one:
            one["id"] = i


def without_instructions(plan, gone):
    plan["instructions"] = [one for i, one in enumerate(plan["instructions"]) if i not in gone]
    number(plan["instructions"])
    events = sorted({one["event"] for one in plan["instructions"] if "event" in one})
    for one in plan["instructions"]:
        if "event" in one:
            one["event"] = events.index(one["event"])
    plan["events"] = len(events)


def without_idle_buffers(plan):
    used = {buffer for one in plan["instructions"] for buffer in buffers_of(one)}
    used |= {holder[key] for holder, key in holders(plan)}
    new = {old: i for i, old in enumerate(sorted(used))}
    plan["buffers"] = [plan["buffers"][old] for old in sorted(used)]
    number(plan["buffers"])
    for holder, key in holders(plan):
        holder[key] = new[holder[key]]
    for one in plan["instructions"]:
        if "buffer" in one:
            one["buffer"] = new[one["buffer"]]
        for side in ("in", "out"):
            for i, operand in enumerate(one.get(side, [])):
                if isinstance(operand, dict):
                    operand["buffer"] = new[operand["buffer"]]
                else:
                    one[side][i] = new[operand]


def without_others(plan, kind):
    """All but what memory, the optimizer and the first instruction of the kind are."""
    first = next(i for i, one in enumerate(plan["instructions"]) if kind_of(one) == kind)
    frame = ("alloc", "free", "mark", "optimizer")
    without_instructions(
        plan, {i for i, one in enumerate(plan["instructions"]) if one["op"] not in frame and i != first})


def without_idle_memory(plan):
    """Allocs and frees of buffers that nobody else names."""
    memory = ("alloc", "free")
    used = {b for one in plan["instructions"] if one["op"] not in memory for b in buffers_of(one)}
    used |= {holder[key] for holder, key in holders(plan)}
    without_instructions(
        plan,
        {i for i, one in enumerate(plan["instructions"]) if one["op"] in memory and one["buffer"] not in used})


def without_param(plan, index):
    gone = {piece["buffer"] for piece in plan["params"][index]["pieces"]}
    del plan["params"][index]
    gone -= {holder[key] for holder, key in holders(plan)}  # flat ones are of others, too
    for unit in plan["units"]:
        unit["params"] = [p - (p > index) for p in unit["params"] if p != index]
    for one in plan["instructions"]:
        if one["op"] == "optimizer":  # of all parameters
            for side in ("in", "out"):
                one[side] = [
                    operand
                    for operand in one[side]
                    if buffer_of(operand) not in gone
                    and not (isinstance(operand, dict) and operand.get("local") == index)
                ]
    local = plan["buffers"] + [o for i in plan["instructions"] for o in operands(i) if isinstance(o, dict)]
    for one in local:
        if one.get("local") == index:
            del one["local"]
        elif "local" in one:
            one["local"] -= one["local"] > index
    without_instructions(plan, {i for i, one in enumerate(plan["instructions"]) if gone & set(buffers_of(one))})


def without_buffer(plan, buffer):
    without_instructions(plan, {i for i, one in enumerate(plan["instructions"]) if buffer in buffers_of(one)})


def without_event(plan, event):
    without_instructions(plan, {i for i, one in enumerate(plan["instructions"]) if one.get("event") == event})


class Least:
    def __init__(self, plan, kind, checker):
        self.plan, self.kind, self.checker = plan, kind, checker

    def attempt(self, change, *arguments):
        plan = copy.deepcopy(self.plan)
        change(plan, *arguments)
        if not any(kind_of(one) == self.kind for one in plan["instructions"]) or not self.checker.runs(plan):
            return False
        self.plan = plan
        return True

    def chunks(self):
        size = len(self.plan["instructions"]) // 2
        while size > 0:
            at = 0
            while at < len(self.plan["instructions"]):
                if not self.attempt(without_instructions, set(range(at, at + size))):
                    at += size
            size //= 2

    def each(self, change, count):
        for i in reversed(range(count)):
            self.attempt(change, i)

    def made(self):
        before = None
        self.attempt(without_others, self.kind)
        self.attempt(without_idle_memory)
        self.each(without_param, len(self.plan["params"]))
        self.attempt(without_idle_buffers)
        while before != len(self.plan["instructions"]):
            before = len(self.plan["instructions"])
            self.chunks()
            self.each(without_buffer, len(self.plan["buffers"]))
            self.each(without_event, self.plan["events"])
            self.attempt(without_idle_buffers)
        self.attempt(lambda plan: [one.pop("scope", None) for one in plan["instructions"]])
        return self.plan


def bare(plan):
    """Without what a program can do without."""
    for key in ("settings", "memory", "time", "modules"):
        plan.pop(key, None)
    return plan


def main():
    checker, folder = Checker(sys.argv[1]), sys.argv[2]
    done = set()
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as file:
            done |= {kind_of(one) for one in json.load(file)["instructions"]}
    for path in sys.argv[3:]:
        with open(path) as file:
            plan = bare(json.load(file))
        if not checker.runs(plan):
            sys.exit(f"{path} does not run")
        for kind in sorted({kind_of(one) for one in plan["instructions"]} - done):
            done.add(kind)
            least = Least(copy.deepcopy(plan), kind, checker).made()
            done |= {kind_of(one) for one in least["instructions"]}
            with open(os.path.join(folder, kind + ".json"), "w") as file:
                json.dump(least, file, separators=(",", ":"))
                file.write("\n")
            print(kind, len(least["instructions"]), "instructions", len(json.dumps(least)), "bytes", flush=True)


main()
