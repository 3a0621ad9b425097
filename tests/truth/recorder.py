"""Writes down what one rank of a training step allocates, in host order.

Storages are followed by weak reference: every birth, resize and death is an event with the place
the host is in (the phase, then the calls of the sharding system it is inside of).  A `System` (one
per recorder program) says how a model is sharded and what it calls its tensors; `record` runs its
step and gives the row.

An output row has the fields of the configuration and
    parameters        number of parameters
    parameter_list    [[name, [shape]], ...] in registration order (code hf only)
    peak_bytes, peak_at, peak_categories, live, segment_peaks, events (their count)
    event_list        [+-bytes, category, where, "op [shape] dtype"] of the birth of that storage
"""
import argparse
import collections
import contextlib
import fnmatch
import gc
import json
import sys
import traceback
import weakref

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

import classification
import cut
import fused_head
import liger
import lora_kernels
import models
import older_torch
import per_token
import grpo
import preferences


# --------------------------------------------------------------------------------------------
# The log: storages by weak reference, phases and places by a stack
# --------------------------------------------------------------------------------------------

class Log:
    """Live storages and, while `recording`, the list of events.

    `places` gives the category of what is born inside a call: (name of the call, category), the
    first that fits; elsewhere the phase gives it.
    """

    current = None

    def __init__(self, places=()):
        self.places = places
        self.place = ["init"]          # phase, then the system's calls the host is in
        self.alive = {}                # storage key -> [bytes, category, birth label, number of the birth]
        self.refs = {}                 # storage key -> weakref with the death callback
        self.births = 0
        self.live = 0
        self.rounded = 0
        self.recording = False
        self.tracking = True
        self.held = None               # deaths that wait for their order
        self.clear()
        self._resize = torch.UntypedStorage.resize_

    def clear(self):
        """Forgets events and peaks; what is alive stays."""
        self.events = []
        self.collectives = []
        self.peak = -1
        self.peak_at = None
        self.peak_categories = {}
        self.peak_rounded = -1
        self.segment = None            # its peak counts from its first event on
        self.segment_peaks = {}

    def category(self):
        names = [p.split("[")[0] for p in self.place[1:]]
        for name, category in self.places:
            if name in names:
                return category
        return {"fwd": "activation", "bwd": "backward", "opt": "optimizer"}.get(self.place[0], "init")

    def change(self, delta, category, label, call=None):
        self.live += delta
        up = (abs(delta) + 511) // 512 * 512
        self.rounded += up if delta > 0 else -up
        if not self.recording:
            return
        self.events.append([delta, category, "/".join(self.place), label])
        if self.live > self.peak:
            self.peak = self.live
            self.peak_at = "/".join(self.place) + " " + (call or label.split(" [")[0])
            sums = collections.Counter()
            for entry in self.alive.values():
                sums[entry[1]] += entry[0]
            self.peak_categories = {k: v for k, v in sums.items() if v}
        self.peak_rounded = max(self.peak_rounded, self.rounded)
        if self.segment:
            self.segment_peaks[self.segment] = max(self.segment_peaks.get(self.segment, 0), self.live)

    def birth(self, tensor, label):
        if tensor.is_meta:
            return
        st = tensor.untyped_storage()
        key = id(st)
        ref = self.refs.get(key)
        if ref is not None and ref() is st:
            return
        size = st.nbytes()
        self.refs[key] = weakref.ref(st, lambda _, key=key: self.death(key))
        cat = self.category()
        self.births += 1
        self.alive[key] = [size, cat, label, self.births]
        if size:
            self.change(size, cat, label)

    def outside(self, tensor):
        """Its storage is none of the allocator's: views of it are no births."""
        st = tensor.untyped_storage()
        self.refs[id(st)] = weakref.ref(st, lambda _, key=id(st): self.death(key))

    def death(self, key):
        self.refs.pop(key, None)
        entry = self.alive.pop(key, None)
        if not entry or not entry[0] or not self.tracking:
            return
        if self.held is None:
            self.change(-entry[0], entry[1], entry[2])
        else:
            self.held.append(entry)

    @contextlib.contextmanager
    def ordered_deaths(self, order=lambda entry: entry[3]):
        """Gives the deaths inside the order of their births, or another of entries (of `alive`): where a library drops a
        hash table of pointers, the real order differs from run to run."""
        self.held = []
        try:
            yield
        finally:
            held, self.held = self.held, None
            for entry in sorted(held, key=order):
                self.change(-entry[0], entry[1], entry[2])

    def resized(self, st, new):
        entry = self.alive.get(id(st))
        if entry is None or self.refs[id(st)]() is not st:
            return
        delta, entry[0] = new - entry[0], new
        if delta:
            self.change(delta, entry[1], entry[2], "resize_")

    def recategorize(self, tensor, category):
        entry = self.alive.get(id(tensor.untyped_storage()))
        if entry:
            entry[1] = category

    def rename(self, old, new):
        for entry in self.alive.values():
            if entry[1] == old:
                entry[1] = new

    def forget(self, category):
        for key in [k for k, entry in self.alive.items() if entry[1] == category]:
            size = self.alive.pop(key)[0]
            self.live -= size
            self.rounded -= (size + 511) // 512 * 512

    def patch(self):
        log = self

        def resize_(st, size):
            out = log._resize(st, size)
            log.resized(st, size)
            return out

        torch.UntypedStorage.resize_ = resize_

    def unpatch(self):
        torch.UntypedStorage.resize_ = self._resize


def placed(function, label):
    """The function, with label(*its arguments) on the stack of places while it runs."""
    def call(*args, **kwargs):
        log = Log.current
        if log is None:
            return function(*args, **kwargs)
        log.place.append(label(*args, **kwargs))
        try:
            return function(*args, **kwargs)
        finally:
            log.place.pop()
    return call


def op_name(func):
    return str(func).removeprefix("aten.").removesuffix(".default")


def is_of_codes(tensor):
    """torchao's states, which look like the tensors that they stand for and have no memory but that of their parts."""
    return type(tensor).__module__.startswith("torchao.optim")


class Births(TorchDispatchMode):
    """Every storage that an ATen call returns for the first time is a birth."""

    int8 = None     # eight_bits.Kernels, once one of them was called
    padded = 0      # tokens of the batch that are padding, by its mask and by its labels
    lacks = ()      # how many of each sequence
    first = 0       # which sequence what is indexed begins with
    unlabelled = 0  # tokens but each sequence's first that have no label: these, and the prompts'

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(t, older_torch.WRAPPERS) for t in types):
            return NotImplemented
        if str(func) == "bitsandbytes.gemm_4bit.default":
            import quantized
            return quantized.gemm_4bit(self, *args, **(kwargs or {}))
        if self.int8 is not None:
            known, result = self.int8.within(self, func, args, kwargs or {})
            if known:
                return result
        if str(func).startswith("bitsandbytes.int8_"):
            import eight_bits
            self.int8 = eight_bits.RUNNING
            return self.int8.call(self, func, args, kwargs or {})
        if func is torch.ops.aten._local_scalar_dense.default and args[0].dtype == torch.bool and grpo.ASKING:
            return False    # whether a number of each sequence is none
        if func is torch.ops.aten._local_scalar_dense.default and args[0].dtype == torch.bool:
            # transformers asks whether masks are all ones and sequences not packed, a trainer whether there is anything to count
            return not self.padded or preferences.asking
        if func is torch.ops.aten._local_scalar_dense.default and args[0].dtype in (torch.int32, torch.int64) and \
                isinstance(args[0], FakeTensor):
            return 1        # ... and whether a sequence has a length
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor) and Log.current.place == ["fwd"] and \
                args[0].is_floating_point():
            return 0.0      # what a trainer logs
        if func is torch.ops.aten.equal.default and not args[1].shape:
            return not args[0].shape    # Liger asks whether the gradient of the loss is 1
        if func is torch.ops.aten.index.Tensor and args[0].dim():
            Births.first = args[0].storage_offset() // max(1, args[0].stride(0))
        out = self.call(func, args, kwargs or {})
        log = Log.current
        name, born = older_torch.births(op_name(func), out, log.place[0])
        for i, t in enumerate(born if isinstance(born, (tuple, list)) else (born,)):
            if isinstance(t, torch.Tensor) and not isinstance(t, DTensor) and not is_of_codes(t):
                called = older_torch.KERNELS[name][i] if name in older_torch.KERNELS else name
                log.birth(t, f"{called} {list(t.shape)} {str(t.dtype).removeprefix('torch.')}")
        return out

    @staticmethod
    def chosen(mask):
        """How many a mask chooses: of all tokens, or of those of a few sequences, which are one behind the other."""
        if grpo.ASKING:
            return mask.numel()
        if mask.dim() < 2 or len(mask) >= len(Births.lacks):
            return mask.numel() - Births.unlabelled
        return mask.numel() - sum(Births.lacks[Births.first:Births.first + len(mask)])

    @staticmethod
    def of_fakes(func, args, kwargs):
        """The result of fake tensors."""
        if str(func) == "aten._grouped_mm.default" and args[0].dtype == torch.float32:
            return models.fake_grouped_mm(*args)
        if str(func) == "aten.log_sigmoid_forward.default":     # a GPU has no use for the buffer
            return torch.empty_like(args[0]), args[0].new_empty(0)
        if str(func) == "aten.masked_select.default":       # a mask chooses all that there is
            return args[0].new_empty(args[1].numel() - Births.unlabelled)
        if str(func) == "aten.index.Tensor" and args[1][0] is not None and args[1][0].dtype == torch.bool:
            return args[0].new_empty(Births.chosen(args[1][0]), *args[0].shape[args[1][0].dim():])
        return func(*args, **kwargs)

    def call(self, func, args, kwargs):
        if func is torch.ops.aten.nonzero.default and isinstance(args[0], FakeTensor):
            found = getattr(sys.modules.get("flash_attention"), "found", 0) if args[0].dim() == 1 else 0
            less = self.padded if args[0].dim() == 1 else Births.unlabelled
            return args[0].new_empty((args[0].dim(), found or args[0].numel() - less), dtype=torch.int64).t()  # all of them
        return older_torch.results(op_name(func), args, self.of_fakes(func, args, kwargs))


# --------------------------------------------------------------------------------------------
# One recording
# --------------------------------------------------------------------------------------------

class System:
    """How one sharding system is set up and driven. The recorder programs derive from it."""

    step = 2            # the step that is recorded
    places = ()         # of Log
    extra = ()          # fields of a row beside the common ones, attributes of the system
    log = Log           # what writes down

    loss = None         # of the model's output, where that is not its own business
    compute_loss = None # of the model and its inputs, where that calls it
    reference = None    # a second model, of preferences
    saved = contextlib.nullcontext()    # of a micro-batch: where what nodes save waits

    def __init__(self, m, s):
        self.m, self.s = m, s

    def tensors(self):
        """The context under which tensors have shapes and no data."""
        raise NotImplementedError

    def make(self):
        return models.make(self.m, self.s)

    def shard(self, model, blocks):
        """The model to call in its place."""
        raise NotImplementedError

    def prepare_reference(self, model, blocks):
        """A second model that is never trained, as it is called."""
        return model

    def inputs(self, inputs):
        """Where the model finds them."""
        return inputs

    def optimizer(self, model):
        return models.make_optimizer(model, self.s)

    def synced(self, model, last, sync):
        """The context of one micro-batch: is it the last one, and does it synchronise gradients."""
        return contextlib.nullcontext()

    def forward(self, model, inputs):
        if isinstance(inputs, dict):
            return model(**inputs)
        return model(*inputs) if self.s.get("code") == "recorded" else model(inputs[0])

    def after(self, phase):
        """Called behind loss.backward() ("bwd") and optimizer.step() ("opt")."""

    def clip(self, model):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def backward(self, model, loss):
        loss.backward()

    def graph_goes(self, log):
        """The context in which the loss, and with it autograd's graph, is let go of."""
        return contextlib.nullcontext()

    def between(self, model):
        """Behind every micro-batch but the last."""

    def update(self, model, optimizer, live):
        """Clips, steps, marks, drops the gradients."""
        if self.s.get("clip"):
            self.clip(model)
        optimizer.step()
        if self.s.get("float8_all_gather") == "precomputed":
            from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp
            precompute_float8_dynamic_scale_for_fsdp(model)
        self.after("opt")
        live["after_step"] = Log.current.live
        optimizer.zero_grad(set_to_none=True)

    def settle(self, log, model, optimizer):
        """Gives what lives between steps its category."""
        raise NotImplementedError

    def finish(self, model, optimizer):
        """Sets the attributes that `extra` names, after the recording."""


def matching(model, patterns):
    """The parameters whose name fits one of comma-separated glob patterns."""
    return [p for name, p in model.named_parameters()
            if any(fnmatch.fnmatchcase(name, g) for g in (patterns or "").split(","))]


def record(config, kind):
    """The row of one configuration under a kind of System."""
    m, s = config["model"], config["strategy"]
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=s.get("rank", 0), world_size=s["world"])
    if liger.wanted_by(s):
        liger.prepare()
    if s.get("loss") == "cut-cross-entropy":
        cut.prepare()
    if s.get("loss") in fused_head.LOSSES:
        fused_head.prepare(s.get("stage") == 3)
    if s.get("loss") == "dpo":
        preferences.trainer_module()
    if s.get("loss") == "grpo":
        grpo.trainer_module()
    if s.get("loss") == "reward":
        classification.trainer_module()
    if s.get("lora_kernels"):
        lora_kernels.prepare()
    if s.get("attention") == "flash-attn":
        import flash_attention
        flash_attention.prepare()
        flash_attention.found = flash_attention.to_find(m)
    Births.padded = m.get("padding_tokens", 0)
    Births.lacks = (models.padded(m) == 0).sum(1).tolist()
    Births.unlabelled = Births.padded + m["batch"] * max(m.get("prompt_tokens", 0) - 1, 0)  # of those that are labels, shifted
    gc.collect()
    gc.disable()
    system = kind(m, s)
    if s.get("loss") == "fused-lm-head":
        system.loss = fused_head.loss
    if s.get("loss") == "dpo":
        system.compute_loss = preferences.compute_loss
    if s.get("loss") == "grpo":
        system.compute_loss = grpo.compute_loss
    if s.get("loss") == "reward":
        system.compute_loss = classification.compute_loss
    Log.current = log = system.log(system.places)
    log.patch()
    try:
        with system.tensors(), on_cuda(s.get("code")), models.attention_by(s):
            return run(config, system, log)
    finally:
        log.unpatch()
        log.tracking = False
        Log.current = None
        gc.enable()


def on_cuda(code):
    """What runs in the place of CPU kernels, in models that others wrote."""
    if code == "recorded":
        return models.tool().as_on_cuda()
    return models.as_on_cuda() if code in ("hf", "torchtitan") else contextlib.nullcontext()


def one_step(system, log, model, optimizer, inputs, live):
    s = system.s
    steps = s.get("accumulate", 1)
    keeps = s.get("keep_outputs")              # "backward", or "next": a loop's variable
    output = logits = None
    for i in range(steps):
        last = i == steps - 1
        with system.synced(model, last, last or not s.get("no_sync", True)), system.saved:
            log.place = ["fwd"]
            log.segment = "forward"
            if system.compute_loss is not None:
                loss = system.compute_loss(system, model, inputs)
                live["after_logits"] = None
            elif s.get("loss") in ("per-token", "per-token-liger"):
                def call(given):
                    output = system.forward(model, given)
                    live["after_logits"] = log.live
                    log.segment = "loss"
                    return output
                loss = per_token.loss(call, inputs, s["world"])
                del call
            elif system.loss is not None:
                output = system.forward(model, inputs)
                live["after_logits"] = log.live
                log.segment = "loss"
                loss = system.loss(output)
                del output
            elif s.get("code") == "recorded":      # its output is one, or has one
                loss = models.tool().loss_of(system.forward(model, inputs), None)
                live["after_logits"] = None
            elif isinstance(inputs, dict):
                if keeps == "next":
                    system.kept = system.forward(model, inputs)
                    loss = system.kept.loss
                elif keeps:
                    output = system.forward(model, inputs)
                    loss = output.loss
                else:
                    loss = system.forward(model, inputs).loss
                live["after_logits"] = None
            else:
                logits = system.forward(model, inputs)
                live["after_logits"] = log.live
                log.segment = "loss"
                loss = models.loss_of(logits, inputs[1], s.get("loss", "eager"))
                if not keeps:
                    logits = None
            live["after_forward"] = log.live
            log.place = ["bwd"]
            log.segment = "backward_head"
            system.backward(model, loss)
            system.after("bwd")
            with system.graph_goes(log):
                del loss
                output = logits = None
            live["after_backward"] = log.live
        if not last:
            log.place = ["opt"]
            system.between(model)
    log.place = ["opt"]
    log.segment = "optimizer"
    system.update(model, optimizer, live)
    live["end"] = log.live


def run(config, system, log):
    m, s = system.m, system.s
    model, blocks = system.make()
    inputs = getattr(model, "recorded_inputs", None)
    if inputs is not None:
        system.loss = model.recorded_loss
        del model.recorded_inputs, model.recorded_loss
    # as the model has them: two are in each byte of bitsandbytes' 4 bits
    parameters = sum(p.numel() * (2 * p.element_size() if type(p).__name__ == "Params4bit" or ".parametrizations." in n else 1)
                     for n, p in model.named_parameters())
    parameter_list = [[models.plain_name(n), list(p.shape)] for n, p in model.named_parameters()]
    if s.get("ac"):
        blocks = models.checkpointed(model, blocks, s["ac"], s.get("ac_early_stop", True),
                                      s.get("ac_blocks", "all"), s.get("code"))
    if s.get("input_grads"):
        model.enable_input_require_grads()
    if s.get("activation_offloading"):
        import offloaded
        system.saved = offloaded.context(model, s["activation_offloading"])
    model = system.shard(model, blocks)
    del blocks
    system.reference = preferences.reference(system)
    optimizer = system.optimizer(model)
    inputs = system.inputs(models.make_inputs(m, s) if inputs is None else inputs)
    peaks, live, start = [], {}, 0
    system.step = config.get("step", system.step)
    for step in range(1, system.step + 1):
        gc.collect()
        for b in model.buffers():
            log.recategorize(b, "buffer")
        for of, category in ((system.reference.parameters(), "param"), (system.reference.buffers(), "buffer")) if system.reference else ():
            for t in of:
                log.recategorize(t, category)
        for t in inputs.values() if isinstance(inputs, dict) else inputs:
            if isinstance(t, torch.Tensor):
                log.recategorize(t, "input")
        system.settle(log, model, optimizer)
        start = log.live
        log.clear()
        log.recording = True
        one_step(system, log, model, optimizer, inputs, live)
        log.recording = False
        peaks.append(log.peak)
    log.tracking = False
    collectives = log.collectives[:]
    system.peak_bytes_by_step = peaks
    system.finish(model, optimizer)
    out = {field: config[field] for field in ("name", "model", "strategy")}
    out["parameters"] = parameters
    if s.get("code") == "hf":
        out["parameter_list"] = parameter_list
    out["torch"] = torch.__version__
    if "step" in config:
        out["step"] = config["step"]
    for field in system.extra:
        if getattr(system, field) is not None:
            out[field] = getattr(system, field)
    out["peak_bytes"] = log.peak
    out["peak_bytes_rounded_512"] = log.peak_rounded
    out["peak_at"] = log.peak_at
    out["peak_categories"] = log.peak_categories
    out["live"] = {"start": start, **{k: live[k] for k in
                   ("after_logits", "after_forward", "after_backward", "after_step", "end")}}
    out["segment_peaks"] = log.segment_peaks
    out["events"] = len(log.events)
    out["event_list"] = log.events
    if system.extra:
        out["collectives"] = collectives
    return out


# --------------------------------------------------------------------------------------------
# The program
# --------------------------------------------------------------------------------------------

NUMBERS = ("parameters", "buckets", "owners", "units", "peak_bytes_by_step", "peak_bytes",
           "peak_bytes_rounded_512", "peak_at", "live", "segment_peaks", "events")


def compare(truth, got):
    """Lines of what differs; those in brackets are names only."""
    bad = [f"{k}: want {truth[k]} got {got.get(k)}" for k in NUMBERS if k in truth and truth[k] != got.get(k)]
    if truth["peak_categories"] != got["peak_categories"]:
        bad.append(f"(categories: want {truth['peak_categories']} got {got['peak_categories']})")
    for field in ("event_list", "collectives"):
        want, have = truth.get(field), got.get(field)
        if not want:
            continue
        for i in range(max(len(want), len(have))):
            a = want[i] if i < len(want) else None
            b = have[i] if i < len(have) else None
            if a != b:
                bad.append(f"{field} {i}: want {a} got {b}")
                if len(bad) > 12:
                    break
    return bad


def check(paths, only, kind_of):
    """Records rows of files again; the number of those that differ."""
    wrong = 0
    for path in paths:
        for line in open(path):
            truth = json.loads(line)
            if only and truth["name"] not in only or kind_of(truth) is None:
                continue
            try:
                bad = compare(truth, record(truth, kind_of(truth)))
            except Exception:
                bad = [traceback.format_exc()]
            hard = [b for b in bad if not b.startswith("(")]
            wrong += bool(hard)
            print(("DIFF " if hard else "same ") + truth["name"], flush=True)
            for b in bad:
                print("     " + b)
    return wrong


def main(kind_of):
    """kind_of(configuration): its kind of System, or None when it is another program's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("--out")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--no-events", action="store_true")
    parser.add_argument("--check", nargs="*", help="record rows again and compare")
    args = parser.parse_args()
    if args.check:
        return 1 if check(args.check, args.only, kind_of) else 0
    failed = 0
    with open(args.out, "w") as out:
        for line in open(args.config):
            config = json.loads(line)
            if args.only and config["name"] not in args.only:
                continue
            try:
                row = record(config, kind_of(config))
            except Exception:
                failed += 1
                print("FAIL", config["name"], traceback.format_exc(), file=sys.stderr, flush=True)
                continue
            if args.no_events:
                row.pop("event_list")
                row.pop("collectives", None)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(row["name"], row["events"], row["peak_bytes"], flush=True)
    return 1 if failed else 0
