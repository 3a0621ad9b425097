#!/usr/bin/env python3
"""Record what DeepSpeed's ZeRO-1, 2 and 3 allocate on the device and on the host.

As record_zero.py, where the device and the host are two: the accelerator's device is `meta`, whose tensors have
storages and no data, and the host's tensors are real and never filled.  What is on the CPU because
DeepSpeed says so (offload_optimizer, offload_param, scalars of the host) is told from what is on the device.

Usage: as record_systems.py.  Needs deepspeed 0.19.8.

strategy: record_zero.py's.  With offload_optimizer the optimizer is DeepSpeedCPUAdam, whose C++ extension is
replaced by one that computes nothing: it allocates nothing either.

An event's label ends with " host" for what is pageable memory of the host and with " pinned" for what is
page-locked; the others are the device's.  `pinned_bytes` are page-locked between steps.  Peaks and marks are the sums of both; `device_peak_bytes` and
`host_peak_bytes` are each one's own.  `copies`: [what, bytes, where] of every copy between the two, in order.
"""
import sys

import record_zero                  # noqa: F401  first: it sets DeepSpeed's environment
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.adam import cpu_adam
from deepspeed.runtime.zero import linear
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

import models
import recorder
import unfilled
from recorder import Log

DEVICE = torch.device("meta")
aten = torch.ops.aten


# --------------------------------------------------------------------------------------------
# An accelerator whose device is meta
# --------------------------------------------------------------------------------------------

PINNED = "pinned"


def empty(like, dtype, device):
    return torch.empty_strided(like.shape, like.stride(), dtype=dtype, device=device)


def pin(tensor):
    """torch's pin_memory: a copy in page-locked memory."""
    with Label(PINNED):
        return torch.empty_like(tensor)


class Label:
    """What is born on the host inside is of this kind."""

    current = "host"

    def __init__(self, kind):
        self.kind = kind

    def __enter__(self):
        self.before, Label.current = Label.current, self.kind

    def __exit__(self, *args):
        Label.current = self.before


def on_meta(accelerator):
    kind = type(accelerator)
    accelerator._name = "meta"
    kind.device_name = lambda self, index=None: "meta"
    kind.current_device_name = lambda self: "meta"
    kind.current_device = lambda self: 0
    kind.total_memory = kind.available_memory = lambda self, index=None: 1 << 40
    kind.device_count = lambda self: 8
    kind.on_accelerator = lambda self, tensor: tensor.is_meta
    kind.pin_memory = lambda self, tensor, align_bytes=1: pin(tensor)
    kind.is_pinned = lambda self, tensor: False
    for name, dtype in (("ByteTensor", torch.uint8), ("FloatTensor", torch.float), ("DoubleTensor", torch.double),
                        ("IntTensor", torch.int), ("LongTensor", torch.long)):
        setattr(kind, name, property(lambda self, dtype=dtype: lambda *a, **k: torch.tensor(
            *a, **{"dtype": dtype, "device": DEVICE, **k})))


class NoAutocast:
    @staticmethod
    def device_name():
        return "cpu"


def told_tensor(tensor):
    """torch.tensor, whose last call no mode sees on meta."""
    def call(*args, **kwargs):
        if torch.device(kwargs.get("device") or "cpu") != DEVICE:
            return tensor(*args, **kwargs)
        with _disable_current_modes():
            out = tensor(*args, **kwargs)
        if Log.current:
            Log.current.birth(out, f"lift_fresh {list(out.shape)} {str(out.dtype).removeprefix('torch.')}")
        return out
    return call


def number_put(setitem):
    """Tensor.__setitem__, which makes a tensor of a number as for a GPU, on the host, and on meta in another way."""
    def call(self, index, value):
        if self.is_meta and isinstance(value, (bool, int, float)):
            value = torch.tensor(value, dtype=self.dtype, device=DEVICE)
        setitem(self, index, value)
    return call


def list_taken(getitem):
    """Tensor.__getitem__, whose tensor of a list of numbers no mode sees on meta, either."""
    def call(self, index):
        if self.is_meta and isinstance(index, tuple):
            index = tuple(torch.tensor(part, device=DEVICE) if isinstance(part, list) else part for part in index)
        return getitem(self, index)
    return call


class FusedNorm(torch.autograd.Function):
    """The node that F.rms_norm has on a GPU; torch lets nobody register a kernel of meta's for it (models.py)."""

    @staticmethod
    def forward(ctx, x, shape, weight, eps):
        out, rstd = models._fused_rms_norm(x, shape, weight, eps)
        ctx.save_for_backward(x, weight, rstd)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, rstd = ctx.saved_tensors
        x_grad, weight_grad = models._fused_rms_norm_backward(grad, x, None, rstd, weight, ctx.needs_input_grad[::2])
        del rstd, weight, x     # as PyTorch's own node lets them go
        return x_grad, None, weight_grad, None


def fused_on_meta(rms_norm):
    def call(x, shape, weight=None, eps=None):
        fused = x.is_meta and weight is not None
        return FusedNorm.apply(x, shape, weight, eps) if fused else rms_norm(x, shape, weight, eps)
    return call


class NoAdam:
    """The extension of DeepSpeedCPUAdam."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: 0


# --------------------------------------------------------------------------------------------
# The log and the tensors
# --------------------------------------------------------------------------------------------

class Log2(Log):
    """Of both places: meta's storages are born like others."""

    def __init__(self, places=()):
        super().__init__(places)
        self.of = {"device": 0, "host": 0}
        self.peak_of = dict(self.of)
        self.copies = []

    def clear(self):
        super().clear()
        self.copies = []
        self.peak_of = dict(getattr(self, "of", {}))

    def change(self, delta, category, label, call=None):
        place = "host" if label.endswith((" host", " pinned")) else "device"
        self.of[place] += delta
        self.peak_of[place] = max(self.peak_of[place], self.of[place])
        super().change(delta, category, label, call)

    def forget(self, category):
        for size, own, label, _ in self.alive.values():
            if own == category:
                self.of["host" if label.endswith((" host", " pinned")) else "device"] -= size
        super().forget(category)

    def birth(self, tensor, label):
        super().birth(Known(tensor), label if tensor.is_meta else f"{label} {Label.current}")


class Known:
    """A tensor to Log.birth, which passes over meta's."""

    is_meta = False

    def __init__(self, tensor):
        self.untyped_storage = tensor.untyped_storage


class TwoPlaces(record_zero.Unfilled):
    """Shapes from meta kernels for what is on the device; the host's integers are computed."""

    def call(self, func, args, kwargs):
        if func.namespace == "c10d":
            return self.collective(func, args, kwargs)
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        self.told(func, args, kwargs, tensors)
        device = torch.device(kwargs.get("device") or ("meta" if any(t.is_meta for t in tensors) else "cpu"))
        if func in (aten._to_copy.default, aten.copy_.default):
            return self.moved(func, args, kwargs, device)
        if device != DEVICE or func.is_view or func in unfilled.RUN or func.namespace == "flash_attn":
            return super().call(func, args, kwargs)
        if func is aten._local_scalar_dense.default:
            return 0 if unfilled.exact(args[0]) else 1.0
        if func._schema.is_mutable:
            return unfilled.mutated(func, args, kwargs)
        if func is aten.histc.default and unfilled.exact(args[0]):      # CPUs count no integers
            return torch.empty(args[1], dtype=args[0].dtype, device=DEVICE)
        with self.fake:     # shapes and dtypes of CPU kernels, as in record_zero.py
            out = func(*tree_map_only(torch.Tensor, self.shape, args),
                       **{**tree_map_only(torch.Tensor, self.shape, kwargs),
                          **({"device": torch.device("cpu")} if "device" in kwargs else {})})
        return tree_map_only(torch.Tensor, lambda t: empty(t, t.dtype, DEVICE), out)

    def shape(self, tensor):
        return super().shape(empty(tensor, tensor.dtype, "cpu") if tensor.is_meta else tensor)

    @staticmethod
    def moved(func, args, kwargs, device):
        """Integers of the host move, nothing else."""
        here = not any(isinstance(a, torch.Tensor) and a.is_meta for a in args) and device != DEVICE
        if here and unfilled.exact(args[0]):
            return func(*args, **kwargs)
        if func is aten.copy_.default:
            return args[0]
        return torch.empty_like(args[0], dtype=kwargs.get("dtype"), device=device,     # dense, of what is expanded or cut too
                                memory_format=kwargs.get("memory_format"))

    @staticmethod
    def told(func, args, kwargs, tensors):
        """Copies between the two."""
        log = Log.current
        if func is aten.copy_.default:
            to, of = args[0].is_meta, args[1]
        elif func is aten._to_copy.default:
            to, of = torch.device(kwargs.get("device") or args[0].device) == DEVICE, args[0]
        else:
            return
        if to != of.is_meta and log.recording:
            log.copies.append(["host_to_device" if to else "device_to_host", of.numel() * of.element_size(),
                               "/".join(log.place)])


class ZeroOffload(record_zero.Zero):
    log = Log2
    extra = record_zero.Zero.extra + ("device_peak_bytes", "host_peak_bytes", "pinned_bytes", "copies")

    def tensors(self):
        return TwoPlaces()

    def make(self):
        with DEVICE:
            return super().make()

    def inputs(self, inputs):
        inputs = super().inputs(inputs)
        return {k: t.to(DEVICE) for k, t in inputs.items()} if isinstance(inputs, dict) else [t.to(DEVICE) for t in inputs]

    def inner_optimizer(self, model):
        if self.s.get("offload_optimizer", {}).get("device", "none") == "none":
            return super().inner_optimizer(model)
        return cpu_adam.DeepSpeedCPUAdam(model.parameters(), lr=1e-3)

    def settle(self, log, model, optimizer):
        for tensor in [t for group in getattr(optimizer, "round_robin_bit16_meta", []) for t in group]:
            log.recategorize(tensor, "shapes")      # DeepSpeed's own meta tensors
        log.forget("shapes")
        super().settle(log, model, optimizer)

    def finish(self, model, optimizer):
        log = Log.current
        self.device_peak_bytes, self.host_peak_bytes = log.peak_of["device"], log.peak_of["host"]
        self.pinned_bytes = sum(entry[0] for entry in log.alive.values() if entry[2].endswith(" pinned"))
        self.copies = log.copies


def prepare():
    adam = sys.modules["torch.optim.adam"]      # a GPU's optimizer is foreach unless told otherwise
    default = adam._default_to_fused_or_foreach
    adam._default_to_fused_or_foreach = lambda params, *args, **kwargs: \
        (False, True) if any(p.is_meta for p in params) else default(params, *args, **kwargs)
    torch.nn.functional.rms_norm = fused_on_meta(torch.nn.functional.rms_norm)
    linear.get_accelerator = NoAutocast         # there is none on meta
    torch.tensor = told_tensor(torch.tensor)
    torch.Tensor.__setitem__ = number_put(torch.Tensor.__setitem__)
    torch.Tensor.__getitem__ = list_taken(torch.Tensor.__getitem__)
    on_meta(get_accelerator())
    cpu_adam.CPUAdamBuilder = lambda: type("Builder", (), {"load": lambda self: NoAdam()})()


if __name__ == "__main__":
    prepare()
    sys.exit(recorder.main(lambda config: ZeroOffload if config["strategy"]["system"] == "deepspeed" else None))
